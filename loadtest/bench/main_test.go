// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"testing"

	"shop/locking/servertest"
)

// MariaDB is not among the servers of each stack.
func TestMain(m *testing.M) {
	servertest.Roles(map[string]func(args []string) error{"contend": contender, "turn": takeTurn, "empty": serveEmpty})
	os.Exit(servertest.WithServer(m, startMariaDB).Run())
}

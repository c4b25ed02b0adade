// SPDX-License-Identifier: MIT

package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// role is the environment variable that names the role of a process of a test.
const role = "LOCKTEST_ROLE"

// Process makes a process that runs this test binary in a role of its Roles, which gets args. It
// is killed when the test ends.
func Process(t testing.TB, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), role+"="+name, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// Roles plays the role of a process that Process has made, and ends it. In every other process it
// does nothing. TestMain calls it first.
func Roles(roles map[string]func(args []string) error) {
	name, is := os.LookupEnv(role)
	if !is {
		return
	}
	play, known := roles[name]
	err := fmt.Errorf("locktest: this package has no role %q", name)
	if known {
		err = play(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

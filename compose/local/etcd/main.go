// SPDX-License-Identifier: MIT

// Command etcd is the etcd server, at the version that go.mod names.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }

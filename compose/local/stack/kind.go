// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// kind describes one kind of server to the stack. Each kind is registered in its own
// file: to add a kind, add a file.
type kind struct {
	name     string
	variable string   // the setting that holds its address; if set already, no server is started
	byName   bool     // started only when requested by name
	members  int      // processes that form one server; 0 is 1
	ports    int      // ports per member; 0 is 1; the first is its address
	program  program  // how to find, install or build it
	users    []string // the first that exists runs it when the stack runs as root; empty: root
	files    uint64   // open files that it needs; 0: any limit suffices

	setup func(context.Context, *instance) error // once, before the first start
	argv  func(*instance) []string               // arguments of the program
	ready func(context.Context, *instance) error // nil when the server has answered a query
	join  func(context.Context, *instance) error // once, when all members are ready; gets the first
	url   func(*instance) string                 // the value of the variable

	stop  syscall.Signal     // clean shutdown
	quick syscall.Signal     // fastest end that leaves nothing outside the folder
	scrub func(record) error // removes what a killed server leaves outside its folder; fails while it is in use
}

var kinds = map[string]*kind{}

// register adds a kind. It returns a value so that a package variable can call it.
func register(k kind) *kind {
	k.members, k.ports = max(k.members, 1), max(k.ports, 1)
	kinds[k.name] = &k
	return &k
}

// Kinds lists the servers that a stack starts by default.
func Kinds() []string {
	var names []string
	for name, k := range kinds {
		if !k.byName {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Variable returns the setting that holds the address of a kind of server.
func Variable(name string) (string, error) {
	k, err := kindOf(name)
	if err != nil {
		return "", err
	}
	return k.variable, nil
}

func kindOf(name string) (*kind, error) {
	k, ok := kinds[name]
	if !ok {
		var known []string
		for name := range kinds {
			known = append(known, name)
		}
		slices.Sort(known)
		return nil, fmt.Errorf("stack: no server is called %q (known: %s)", name, strings.Join(known, ", "))
	}
	return k, nil
}

// manyFiles is a limit above the open files of any of these servers.
const manyFiles = 64_000

// allowFiles raises the soft limit of open files, which servers inherit, to the hard
// limit. The soft limit is 1,024 on most systems. The Go runtime raises its own soft
// limit, but starts children with the original one unless Setrlimit was called.
func allowFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = min(limit.Max, manyFiles)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// checkFiles checks that a server of this kind can open as many files as it needs.
func (k *kind) checkFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if limit.Max >= k.files {
		return nil
	}
	return fmt.Errorf("%s needs %d open files, and the hard limit is %d (ulimit -Hn)\n"+
		"  what to do: raise it to %[2]d or more: `* hard nofile %[4]d` in /etc/security/limits.conf and a new login, LimitNOFILE=%[4]d in a systemd unit, --ulimit nofile=%[4]d for docker run\n"+
		"  or set %[5]s to a running server", k.name, k.files, limit.Max, manyFiles, k.variable)
}

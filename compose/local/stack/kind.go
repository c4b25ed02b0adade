package stack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// kind is everything the stack has to know about one sort of server. Each kind
// stands in a file of its own and registers itself there: a new one is a new
// file, and nothing else changes.
type kind struct {
	name     string
	variable string   // the setting that carries its address; set from outside, it wins
	byName   bool     // started only when asked for by name
	members  int      // processes that form one; 0 is 1
	ports    int      // ports each member listens on; 0 is 1; the first is its address
	program  program  // how to find, install or build it
	users    []string // who runs it when we are root: the first that exists; none: root
	files    uint64   // open files that it cannot do without; 0: it makes do with any limit

	setup func(context.Context, *instance) error // once, before the first start
	argv  func(*instance) []string               // arguments of the program
	ready func(context.Context, *instance) error // nil when it answered a query
	join  func(context.Context, *instance) error // once, when all members are ready; gets the first
	url   func(*instance) string                 // what the variable holds

	stop  syscall.Signal // clean
	quick syscall.Signal // the folder is thrown away: leave nothing outside it
	scrub func(record)   // removes what a killed one leaves outside its folder
}

var kinds = map[string]*kind{}

// register adds a kind; its result only gives each file a place to call it.
func register(k kind) *kind {
	k.members, k.ports = max(k.members, 1), max(k.ports, 1)
	kinds[k.name] = &k
	return &k
}

// Kinds names the servers that a stack starts when it is not told which.
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

// Variable is the setting that carries the address of a kind of server.
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

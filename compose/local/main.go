// Command local runs the servers that the shop needs, for real and without
// Docker: see package stack for how.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"shop/compose/local/stack"
)

type commands struct {
	Exec   execCmd   `cmd:"" help:"Run a command inside a stack of its own; stop all of it afterwards, in every ending."`
	Up     upCmd     `cmd:"" help:"Start a stack in the background and print its settings, for eval."`
	Status statusCmd `cmd:"" help:"List the stacks that run, with servers, addresses and pids."`
	Need   needCmd   `cmd:"" help:"Install packages unless a tool is there."`
	Down   downCmd   `cmd:"" help:"Stop the stack that SHOP_STACK names, or all that up has started."`
}

// exitCode is an error that carries the code to end with, and has been told.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func main() {
	stack.Reexec()
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	var c commands
	parser, err := kong.New(&c, kong.Name("local"), kong.Vars{"servers": strings.Join(stack.Kinds(), ",")},
		kong.Description("The servers of the shop (PostgreSQL, Redis, etcd, MongoDB) on free loopback ports, without Docker."))
	if err != nil {
		panic(err) // a tag above is wrong
	}
	ctx, err := parser.Parse(args)
	if err == nil {
		err = ctx.Run()
	}
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	fmt.Fprintln(os.Stderr, "local:", err)
	return 2
}

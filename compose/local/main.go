// SPDX-License-Identifier: MIT

// Command local runs the shop's servers without Docker. See package stack.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"shop/compose/local/stack"
)

type commands struct {
	Exec   execCmd   `cmd:"" help:"Run a command with its own stack, and stop the stack however the command ends."`
	Up     upCmd     `cmd:"" help:"Start a stack in the background and print its settings, for eval."`
	Status statusCmd `cmd:"" help:"List the running stacks with servers, addresses and pids."`
	Need   needCmd   `cmd:"" help:"Install packages unless a tool is on PATH, or a file exists."`
	Newest newestCmd `cmd:"" help:"Download the newest PostgreSQL, once, and print the path of its program. With SHOP_POSTGRES_SERVER=$(local newest) the other commands, and the tests that start servers of their own, run it."`
	Down   downCmd   `cmd:"" help:"Stop the stack in SHOP_STACK, or all stacks that up started."`
}

// exitCode is an error that carries only the command's exit code. It is not printed.
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

type needCmd struct {
	Tool     string   `arg:"" help:"A program that must be on PATH, or the absolute path of a file."`
	Packages []string `arg:"" help:"The packages that contain it."`
}

func (c *needCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return stack.Need(ctx, c.Tool, c.Packages, os.Stderr)
}

type newestCmd struct{}

func (*newestCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	path, err := stack.NewestPostgres(ctx, os.Stderr)
	if err == nil {
		fmt.Println(path)
	}
	return err
}

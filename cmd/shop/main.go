// SPDX-License-Identifier: MIT

// Command shop sells stock, transfers money and keeps wallets, without overselling or
// losing money.
//
// Only this package reads settings, exits the process, and wires the packages together.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9/logging"
)

// cli is the command line: kong reads flags, environment and help from the tags.
type cli struct {
	Serve   serveCmd         `cmd:"" help:"Serve the API until a signal comes."`
	Migrate migrateCmd       `cmd:"" help:"Create or update the tables and collections. Safe to run at any time, even concurrently."`
	Seed    seedCmd          `cmd:"" help:"Create the demo's clients, products, accounts and wallets unless they exist, and print the new keys."`
	Client  clientCmd        `cmd:"" help:"Clients of the API: add, list, rotate."`
	Batch   batchCmd         `cmd:"" help:"Add up the sales of each day, release expired holds and purge old idempotency keys, once or repeatedly. Several processes may run it: one at a time adds up the sales."`
	Audit   auditCmd         `cmd:"" help:"Count the violations of each invariant."`
	Epoch   epochCmd         `cmd:"" name:"fence-epoch" help:"After etcd was wiped or restored: make the accounts accept the fences of the current etcd. Restart every serve and batch afterwards."`
	Locks   locksCmd         `cmd:"" help:"List the locks that exist in Redis, etcd and PostgreSQL: key, owner, fence, TTL, waiters; or end one."`
	Race    raceCmd          `cmd:"" help:"Let two strategies do the same purchases, transfers or credits at the same time, and count in the stores what each did. Uses tables and databases of its own."`
	Ping    pingCmd          `cmd:"" help:"Check whether a running shop is ready, for health checks."`
	Version kong.VersionFlag `help:"Print the version."`
}

const description = `A shop that sells stock, transfers money and keeps wallets, for many clients at once: it never oversells and loses no money.

Each setting is a flag or an environment variable; the flag takes precedence. Exit status:
0 success, 1 failure, 2 wrong usage or failure to start.`

func main() {
	logging.Disable()              // go-redis returns its connection errors too
	signal.Ignore(syscall.SIGPIPE) // a write fails instead, when its reader has gone away
	stderr := newLogWriter(os.Stderr)
	divert(stderr)
	err := run(untilSignal(), os.Args[1:], os.Stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "shop:", err)
	}
	stderr.close()
	os.Exit(exitCode(err))
}

// untilSignal returns a context that the first signal ends. A second one kills the process at once, except for SIGHUP:
// a terminal that closes sends it twice. nohup starts a program with SIGHUP ignored, which stays so.
func untilSignal() context.Context {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP)
		stop()
	})
	return ctx
}

// stdio is what a command writes to.
type stdio struct {
	out io.Writer
	err *logWriter
}

// run is the whole program except os.Exit, so that tests can run it in their process.
func run(ctx context.Context, args []string, stdout io.Writer, stderr *logWriter) error {
	var (
		c     cli
		ended bool // by --help or --version
	)
	parser, err := kong.New(&c, append(trimmed(),
		kong.Name("shop"), kong.Description(description), kong.Vars{"version": version()},
		kong.Writers(stdout, stderr), kong.Exit(func(int) { ended = true }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.BindTo(stdout, (*io.Writer)(nil)),
		kong.Bind(stdio{stdout, stderr}))...,
	)
	if err != nil {
		return err
	}
	command, err := parser.Parse(args)
	switch {
	case ended:
		return nil
	case err != nil:
		return &usageError{fmt.Errorf("%w\nfor usage, run: shop --help", err)}
	}
	return command.Run()
}

// usageError is an error of the command line, a setting, or the start: no work was done.
type usageError struct{ error }

func (e *usageError) ExitCode() int { return 2 }
func (e *usageError) Unwrap() error { return e.error }

// exitCode returns the exit status of a command. An error may define its own.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var coder kong.ExitCoder
	if errors.As(err, &coder) {
		return coder.ExitCode()
	}
	return 1
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version + " " + info.GoVersion
}

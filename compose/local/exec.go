// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shop/compose/local/stack"
	"shop/locking/servertest/daemon"
)

type execCmd struct {
	Servers []string      `default:"${servers}" help:"Servers to start: ${servers}, or others by name." placeholder:"NAME,…"`
	Restart []string      `help:"Servers of --servers that are started again whenever they end; the end of another one ends the command. If Redis is one of them, and SHOP_LAB_KILL is not set, it is set to redis: the lab of the command may end Redis." placeholder:"NAME,…"`
	While   int           `help:"Also stop when the process with this pid exits (in a Makefile: make itself)." placeholder:"PID"`
	Print   bool          `help:"First print the settings of the servers, as up does: other shells can use the servers while the command runs."`
	Grace   time.Duration `default:"10s" help:"Time for the command to exit after a signal."`
	Command []string      `arg:"" passthrough:"" help:"The command and its arguments."`
}

var errOwner = errors.New("the parent process, or the process of --while, has exited")

func (c *execCmd) Run() error {
	for _, name := range c.Restart {
		if !slices.Contains(c.Servers, name) {
			return fmt.Errorf("--restart %s: it is not one of --servers %s", name, strings.Join(c.Servers, ","))
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if err := watchOwner(c.While, cancel); err != nil {
		return err
	}
	s, env, err := c.open(ctx, signals)
	if err != nil {
		return err
	}
	if c.Print {
		printSettings(env)
	}
	kept, err := c.keep(ctx, s)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	code, err := c.command(ctx, s, append(env, kept...), signals)
	if closed := s.Close(); closed != nil {
		fmt.Fprintln(os.Stderr, "local:", closed)
	}
	if err == nil && code != 0 {
		err = exitCode(code)
	}
	return err
}

// open starts the stack. A signal cancels the start.
func (c *execCmd) open(ctx context.Context, signals <-chan os.Signal) (*stack.Stack, []string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opened := make(chan struct{})
	defer close(opened)
	go func() {
		select {
		case sig := <-signals:
			cancel(fmt.Errorf("%s while starting", sig))
		case <-opened:
		}
	}()
	return openStack(ctx, c.Servers, false)
}

// keep makes the supervisor start the servers of --restart again, and returns what the lab needs to know of that. A
// server whose address was set is not of this stack: nothing starts it again, and the lab must not end it.
func (c *execCmd) keep(ctx context.Context, s *stack.Stack) (env []string, err error) {
	running, err := s.Servers(ctx)
	for _, server := range running {
		if !slices.Contains(c.Restart, server.Kind) { // its name has a number if there are several of the kind
			continue
		}
		err = errors.Join(err, server.Keep(ctx))
		if _, set := os.LookupEnv("SHOP_LAB_KILL"); !set && server.Env["SHOP_REDIS_URL"] != "" {
			env = []string{"SHOP_LAB_KILL=redis"}
		}
	}
	return env, err
}

// watchOwner cancels when the parent of this process (`go run`, a shell) or the
// process of --while exits: if killed, it forwards no signal.
func watchOwner(while int, cancel context.CancelCauseFunc) error {
	parent, other := os.Getppid(), func() bool { return true }
	if while != 0 {
		var err error
		if other, err = daemon.Watch(while); err != nil {
			return fmt.Errorf("--while: %w", err)
		}
	}
	go func() {
		for range time.Tick(100 * time.Millisecond) {
			if os.Getppid() != parent || !other() {
				cancel(errOwner)
			}
		}
	}()
	return nil
}

// command runs the command as the leader of a process group, so that all its
// processes can be killed together.
func (c *execCmd) command(ctx context.Context, s *stack.Stack, env []string, signals <-chan os.Signal) (int, error) {
	if c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return 0, errors.New("no command: exec -- COMMAND …")
	}
	cmd := exec.Command(c.Command[0], c.Command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if !isTerminal(os.Stdin) { // SIGTTIN stops a background group that reads the terminal
		cmd.Stdin = os.Stdin
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := daemon.Spawn(cmd); err != nil {
		return 0, err
	}
	group := -cmd.Process.Pid
	defer func() { _ = syscall.Kill(group, syscall.SIGKILL) }()
	if err := s.AdoptGroup(cmd.Process.Pid); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	died := watchServers(ctx, s)
	var graceEnd <-chan time.Time
	for {
		select {
		case err := <-ended:
			return codeOf(cmd.ProcessState), withoutExitError(err)
		case sig := <-signals:
			_ = syscall.Kill(group, sig.(syscall.Signal))
			if graceEnd == nil {
				graceEnd = time.After(c.Grace)
			}
		case <-graceEnd:
			_ = syscall.Kill(group, syscall.SIGKILL)
		case <-ctx.Done():
			_ = syscall.Kill(group, syscall.SIGKILL)
			return 0, context.Cause(ctx)
		case dead := <-died:
			_ = syscall.Kill(group, syscall.SIGKILL)
			return 0, fmt.Errorf("stack: %s (pid %d) died: %s", dead.Name, dead.PID, dead.Death)
		case <-s.Done():
			_ = syscall.Kill(group, syscall.SIGKILL)
			return 0, errors.New("the stack's supervisor was killed")
		}
	}
}

// watchServers delivers a server that died: no request stopped or killed it.
func watchServers(ctx context.Context, s *stack.Stack) <-chan *stack.Server {
	died := make(chan *stack.Server, 1)
	go func() {
		if dead, err := s.Died(ctx); err == nil {
			died <- dead
		}
	}()
	return died
}

// codeOf returns the command's exit code as a shell reports it: 128 + n for signal n.
func codeOf(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// withoutExitError drops an error that holds nothing but the exit code.
func withoutExitError(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

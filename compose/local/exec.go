package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"shop/compose/local/stack"
)

type execCmd struct {
	Servers []string      `default:"${servers}" help:"Which servers to start: ${servers}, or others by name." placeholder:"NAME,…"`
	While   int           `help:"End when the process with this pid is gone, too (make's, in a Makefile)." placeholder:"PID"`
	Grace   time.Duration `default:"10s" help:"How long the command may take to end after a signal."`
	Command []string      `arg:"" passthrough:"" help:"The command and its arguments."`
}

// errOwner: who asked for the command is gone, so nobody wants its answer.
var errOwner = errors.New("the process that asked for this is gone")

func (c *execCmd) Run() error {
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
	code, err := c.command(ctx, s, env, signals)
	if closed := s.Close(); closed != nil {
		fmt.Fprintln(os.Stderr, "local:", closed)
	}
	if err == nil && code != 0 {
		err = exitCode(code)
	}
	return err
}

// open starts the stack; a signal meanwhile gives up.
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

// watchOwner cancels when our parent (`go run`, a shell) or the process named
// with --while is gone: both may be killed without a chance to tell us.
func watchOwner(while int, cancel context.CancelCauseFunc) error {
	parent, other := os.Getppid(), func() bool { return true }
	if while != 0 {
		var err error
		if other, err = stack.Watch(while); err != nil {
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

// command runs it as the leader of a process group of its own, so that all it
// starts can be ended with it.
func (c *execCmd) command(ctx context.Context, s *stack.Stack, env []string, signals <-chan os.Signal) (int, error) {
	if c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if len(c.Command) == 0 {
		return 0, errors.New("which command? exec -- COMMAND …")
	}
	cmd := exec.Command(c.Command[0], c.Command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if !isTerminal(os.Stdin) { // a group that is not the terminal's would be stopped by reading it
		cmd.Stdin = os.Stdin
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := stack.Spawn(cmd); err != nil {
		return 0, err
	}
	group := -cmd.Process.Pid
	defer func() { _ = syscall.Kill(group, syscall.SIGKILL) }() // who is left of it
	if err := s.AdoptGroup(cmd.Process.Pid); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	died := watchServers(ctx, s)
	var tooLate <-chan time.Time
	for {
		select {
		case err := <-ended:
			return codeOf(cmd.ProcessState), onlyStrange(err)
		case sig := <-signals:
			_ = syscall.Kill(group, sig.(syscall.Signal))
			if tooLate == nil {
				tooLate = time.After(c.Grace)
			}
		case <-tooLate:
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

// watchServers gives a server that has ended although no request asked for that.
func watchServers(ctx context.Context, s *stack.Stack) <-chan *stack.Server {
	died := make(chan *stack.Server, 1)
	go func() {
		if dead, err := s.Died(ctx); err == nil {
			died <- dead
		}
	}()
	return died
}

// codeOf is the command's exit code, in the shells' way: 128 + n for signal n.
func codeOf(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// onlyStrange drops the error that says no more than the exit code.
func onlyStrange(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// SPDX-License-Identifier: MIT

package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// Process identifies one process. A pid alone does not, because pids are reused.
type Process struct {
	PID   int
	Start string // start time as the kernel reports it; compared, never parsed
}

// details is what the kernel reports about a process at one moment.
type details struct {
	Process
	parent, group int
	state         byte // 'T' stopped, 'Z' zombie: dead, but its parent has not waited for it
}

// ErrReused: the pid now names another process, which was not signalled.
var ErrReused = errors.New("the pid now belongs to another process")

// ErrGone: there is no such process.
var ErrGone = errors.New("no such process")

// Identify returns the process that a pid names now. That includes a zombie, which
// may be the leader of a group of live processes.
func Identify(pid int) (Process, error) {
	d, ok := inspect(pid)
	if !ok {
		return Process{}, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	return d.Process, nil
}

// Alive reports whether the process still runs. A zombie does not.
func (p Process) Alive() bool {
	d, ok := inspect(p.PID)
	return ok && d.state != 'Z' && d.Start == p.Start
}

// Watch returns a function that reports whether the process with this pid still runs. A
// zombie does not run, and a later process with the same pid does not count.
func Watch(pid int) (alive func() bool, err error) {
	p, err := Identify(pid)
	if err == nil && !p.Alive() {
		err = fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	return p.Alive, err
}

// Signal signals this process and never another one. It first takes a handle (a pidfd on
// Linux, which never names another process), then compares the start time, then signals.
func (p Process) Signal(sig syscall.Signal) error {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	switch d, ok := inspect(p.PID); {
	case !ok:
		return ErrGone
	case d.Start != p.Start:
		return fmt.Errorf("pid %d: %w", p.PID, ErrReused)
	}
	if err := handle.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// KillAll sends SIGKILL to all listed processes, and repeats until list is empty and
// every process that it ever listed is dead: a child forked during one round is listed
// in the next one.
func KillAll(list func() []Process, limit time.Duration) error {
	seen := map[Process]bool{}
	return Poll(limit, func() error {
		for _, p := range list() {
			seen[p] = true
		}
		for p := range seen {
			if !p.Alive() {
				delete(seen, p)
				continue
			}
			if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, ErrGone) && !errors.Is(err, ErrReused) {
				return fmt.Errorf("kill pid %d: %w", p.PID, err)
			}
		}
		if len(seen) > 0 {
			return fmt.Errorf("%d processes survive SIGKILL", len(seen))
		}
		return nil
	})
}

// GroupOf lists the members of the process group of leader. It lists none if the
// leader's pid now names another process.
func GroupOf(leader Process) []Process {
	if d, ok := inspect(leader.PID); ok && d.Start != leader.Start {
		return nil
	}
	var members []Process
	for _, d := range processes() {
		if d.group == leader.PID && d.state != 'Z' {
			members = append(members, d.Process)
		}
	}
	return members
}

// Poll repeats try until it returns nil. After the limit it returns try's error.
func Poll(limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(wait)
	}
}

// Spawn starts a command that gets SIGKILL when this process ends. Only Linux can do that; elsewhere Spawn only starts
// the command.
func Spawn(cmd *exec.Cmd) error { return spawn(cmd, syscall.SIGKILL) }

// spawn starts a command that gets sig when this process ends. PR_SET_PDEATHSIG fires when the thread that forked ends,
// not the process, so that thread waits for the end of the command.
func spawn(cmd *exec.Cmd, sig syscall.Signal) error {
	dieWith(cmd, sig)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		err := cmd.Start()
		if started <- err; err == nil {
			awaitEnd(cmd.Process.Pid)
		}
	}()
	return <-started
}

// child is a command that gets a signal when this process ends.
type child struct {
	first  Process
	exited chan struct{} // closed when Wait has returned
	err    error         // of Wait
}

// begin spawns a command, and waits for it.
func begin(cmd *exec.Cmd, sig syscall.Signal) (*child, error) {
	if err := spawn(cmd, sig); err != nil {
		return nil, err
	}
	c := &child{exited: make(chan struct{})}
	c.first, _ = Identify(cmd.Process.Pid) // before Wait: the pid cannot have been reused
	go func() {
		c.err = cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

// reaper waits until its stdin closes, and then ends the process $1, paused or not, with the signal $0.
const reaper = `trap "" HUP INT TERM; read -r _; kill -$0 $1; kill -CONT $1`

// reaper starts a shell that ends the child when this process has ended, and ends the shell with the child.
func (c *child) reaper(sig syscall.Signal) error {
	shell := exec.Command("sh", "-c", reaper, strconv.Itoa(int(sig)), strconv.Itoa(c.first.PID))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	life, err := shell.StdinPipe()
	if err == nil {
		err = shell.Start()
	}
	if err != nil {
		return err
	}
	go func() {
		<-c.exited
		_ = shell.Process.Kill()
		_ = life.Close()
		_ = shell.Wait()
	}()
	return nil
}

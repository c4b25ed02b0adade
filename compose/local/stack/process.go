// SPDX-License-Identifier: MIT

package stack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process identifies one process. A pid alone does not, because pids are reused.
type process struct {
	PID   int
	Start string // start time as the kernel reports it; compared, never parsed
}

// details is what the kernel reports about a process at one moment.
type details struct {
	process
	parent, group int
	began         int64 // comparable within one boot
	state         byte  // 'T' stopped, 'Z' zombie: dead, but its parent has not waited for it
}

// errReused: the pid now names another process, which was not signalled.
var errReused = errors.New("stack: the pid now belongs to another process")

// errGone: there is no such process.
var errGone = errors.New("stack: no such process")

// identify returns the process that a pid names now. That includes a zombie, which
// may be the leader of a group of live processes.
func identify(pid int) (process, error) {
	d, ok := inspect(pid)
	if !ok {
		return process{}, fmt.Errorf("pid %d: %w", pid, errGone)
	}
	return d.process, nil
}

// alive reports whether the process still runs. A zombie does not.
func (p process) alive() bool {
	d, ok := inspect(p.PID)
	return ok && d.state != 'Z' && d.Start == p.Start
}

// Watch returns a function that reports whether the process with this pid still runs. A
// zombie does not run, and a later process with the same pid does not count.
func Watch(pid int) (alive func() bool, err error) {
	p, err := identify(pid)
	if err == nil && !p.alive() {
		err = fmt.Errorf("pid %d: %w", pid, errGone)
	}
	return p.alive, err
}

// signal signals this process and never another one. It first takes a handle (a pidfd on
// Linux, which never names another process), then compares the start time, then signals.
func (p process) signal(sig syscall.Signal) error {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	switch d, ok := inspect(p.PID); {
	case !ok:
		return errGone
	case d.Start != p.Start:
		return fmt.Errorf("pid %d: %w", p.PID, errReused)
	}
	if err := handle.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// killAll sends SIGKILL to all listed processes, and repeats until list is empty and
// every process that it ever listed is dead: a child forked during one round is listed
// in the next one.
func killAll(list func() []process, limit time.Duration) error {
	seen := map[process]bool{}
	return poll(limit, func() error {
		for _, p := range list() {
			seen[p] = true
		}
		for p := range seen {
			if !p.alive() {
				delete(seen, p)
				continue
			}
			if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, errGone) && !errors.Is(err, errReused) {
				return fmt.Errorf("kill pid %d: %w", p.PID, err)
			}
		}
		if len(seen) > 0 {
			return fmt.Errorf("%d processes survive SIGKILL", len(seen))
		}
		return nil
	})
}

// groupOf lists the members of the process group of leader. It lists none if the
// leader's pid now names another process.
func groupOf(leader process) []process {
	if d, ok := inspect(leader.PID); ok && d.Start != leader.Start {
		return nil
	}
	var members []process
	for _, d := range processes() {
		if d.group == leader.PID && d.state != 'Z' {
			members = append(members, d.process)
		}
	}
	return members
}

// poll repeats try until it returns nil. After the limit it returns try's error.
func poll(limit time.Duration, try func() error) error {
	deadline := time.Now().Add(limit)
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(wait)
	}
}

// spawn starts a command from one thread that lives as long as this process.
// PR_SET_PDEATHSIG fires when the thread that forked ends, not the process: a server
// started from another thread would be killed when the runtime ends that thread.
func spawn(cmd *exec.Cmd) error {
	started := make(chan error)
	forks() <- func() { started <- cmd.Start() }
	return <-started
}

// Spawn starts a command that gets SIGKILL when this process ends. Only Linux can do
// that; elsewhere Spawn only starts the command.
func Spawn(cmd *exec.Cmd) error {
	dieWith(cmd, syscall.SIGKILL)
	return spawn(cmd)
}

var forks = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go serveForks(work)
	return work
})

func serveForks(work <-chan func()) {
	runtime.LockOSThread()
	for f := range work {
		f()
	}
}

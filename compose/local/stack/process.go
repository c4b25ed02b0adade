package stack

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// process names one process for ever: a pid alone names whoever has it now.
type process struct {
	PID   int
	Start string // when it began, as the kernel tells it; never parsed, only compared
}

// details is what the kernel tells of a process at one moment.
type details struct {
	process
	parent, group int
	began         int64 // comparable within one boot
	state         byte  // 'T' stopped, 'Z' dead but not yet buried by its parent
}

// errStranger: the pid is someone else's by now. Nothing was done to it.
var errStranger = errors.New("stack: the pid belongs to another process by now")

// errGone: there is no such process.
var errGone = errors.New("stack: no such process")

// identify finds out whom a pid names now. One that is dead but not waited for
// still has its name, and may have left a group behind.
func identify(pid int) (process, error) {
	d, ok := look(pid)
	if !ok {
		return process{}, fmt.Errorf("pid %d: %w", pid, errGone)
	}
	return d.process, nil
}

// alive tells whether the process still runs. A zombie does not.
func (p process) alive() bool {
	d, ok := look(p.PID)
	return ok && d.state != 'Z' && d.Start == p.Start
}

// Watch gives a question to ask again and again: does the process that has this
// pid now still run? One that is dead but not waited for does not, and neither
// does one that gets the pid afterwards.
func Watch(pid int) (alive func() bool, err error) {
	p, err := identify(pid)
	if err == nil && !p.alive() {
		err = fmt.Errorf("pid %d: %w", pid, errGone)
	}
	return p.alive, err
}

// signal reaches this process or nobody. The handle is taken first (a pidfd on
// Linux: it cannot come to mean another process), then compared, then used.
func (p process) signal(sig syscall.Signal) error {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	switch d, ok := look(p.PID); {
	case !ok:
		return errGone
	case d.Start != p.Start:
		return fmt.Errorf("pid %d: %w", p.PID, errStranger)
	}
	if err := handle.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// killAll sends SIGKILL to all that list shows, again and again, until list is
// empty and everyone it ever showed is dead: a process that was forking while
// it was looked at is found in the next round.
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
			if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, errGone) && !errors.Is(err, errStranger) {
				return fmt.Errorf("kill pid %d: %w", p.PID, err)
			}
		}
		if len(seen) > 0 {
			return fmt.Errorf("%d processes survive SIGKILL", len(seen))
		}
		return nil
	})
}

// groupOf lists the members of the process group that leader made. When the
// leader's number has been given to another process, the group is not ours.
func groupOf(leader process) []process {
	if d, ok := look(leader.PID); ok && d.Start != leader.Start {
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

// poll repeats try until it returns nil; past the limit it returns try's error.
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

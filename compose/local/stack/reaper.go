// SPDX-License-Identifier: MIT

package stack

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"syscall"
	"time"

	"shop/locking/servertest/daemon"
)

// runReaper is the reaper's main: it waits until the supervisor ends, for whatever reason,
// and reaps the stack.
func runReaper(dir string) error {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	for _, fd := range []int{fdReport, fdOrphaned} {
		syscall.CloseOnExec(fd)
	}
	_, _ = os.NewFile(fdOrphaned, "").Read(make([]byte, 1))
	return errors.Join(reap(dir), removeGoRun())
}

// removeGoRun removes the folder that `go run` built this program in. A killed
// `go run` leaves it behind.
func removeGoRun() error {
	path, err := os.Executable()
	if err != nil {
		return nil
	}
	if match := goRun.FindStringSubmatch(path); match != nil {
		return os.RemoveAll(match[1])
	}
	return nil
}

var goRun = regexp.MustCompile(`^(.*/go-build[0-9]+)/b001/exe/[^/]+$`)

// reap ends all processes of the stack in dir and removes the folder. It may run
// concurrently with itself: each step accepts that it is already done.
func reap(dir string) error {
	var errs []error
	j := readJournal(dir)
	for _, a := range j.Adopted {
		errs = append(errs, a.kill())
	}
	var wait sync.WaitGroup
	ends := make([]error, len(j.Servers))
	for n, r := range j.Servers {
		wait.Go(func() { ends[n] = endOf(r) })
	}
	wait.Wait()
	errs = append(errs, ends...)
	errs = append(errs, daemon.Poll(5*time.Second, func() error { return os.RemoveAll(dir) }))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stack: %s: %w", dir, err)
	}
	return nil
}

// kill ends an adopted process or group, and no other process.
func (a adoptee) kill() error {
	list := func() []daemon.Process { return []daemon.Process{a.Process} }
	if a.Group {
		list = func() []daemon.Process { return daemon.GroupOf(a.Process) }
	}
	return daemon.KillAll(list, 5*time.Second)
}

func endOf(r daemon.Record) error {
	k := kinds[r.Kind]
	if k == nil { // Sweep found the stack of another version of this program
		k = &kind{}
	}
	return r.End(&k.Kind)
}

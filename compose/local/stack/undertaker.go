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
)

// undertake is the undertaker's main: it waits for the supervisor's end, in
// whatever way that comes, and buries the stack.
func undertake(dir string) error {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM) // there is no one after it
	for _, fd := range []int{fdReport, fdOrphaned} {
		syscall.CloseOnExec(fd)
	}
	_, _ = os.NewFile(fdOrphaned, "").Read(make([]byte, 1))
	return errors.Join(bury(dir), removeGoRun())
}

// removeGoRun removes the folder that `go run` built us in. It does so itself,
// unless it was killed.
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

// bury ends all that belongs to the stack in dir and removes the folder. It may
// be done twice at the same time: each step allows that it is done already.
func bury(dir string) error {
	var errs []error
	j := readJournal(dir)
	for _, a := range j.Adopted {
		errs = append(errs, a.kill())
	}
	var wait sync.WaitGroup
	ends := make([]error, len(j.Servers))
	for n, r := range j.Servers {
		wait.Go(func() { ends[n] = r.end() })
	}
	wait.Wait()
	errs = append(errs, ends...)
	errs = append(errs, poll(5*time.Second, func() error { return os.RemoveAll(dir) }))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stack: %s: %w", dir, err)
	}
	return nil
}

// kill ends an adopted process, or a group of them, and nobody else.
func (a adoptee) kill() error {
	list := func() []process { return []process{a.Process} }
	if a.Group {
		list = func() []process { return groupOf(a.Process) }
	}
	return killAll(list, 5*time.Second)
}

// end gives a server a moment to leave nothing outside its folder, then kills
// what is left of it. A paused one is let go on: it can do neither while it stands.
func (r record) end() error {
	for _, p := range r.family() {
		_ = p.signal(syscall.SIGCONT)
	}
	if k := kinds[r.Kind]; k != nil {
		_ = r.First.signal(k.quick)
	}
	_ = poll(3*time.Second, func() error {
		if r.First.alive() {
			return errors.New("it lives")
		}
		return nil
	})
	err := killAll(r.family, 5*time.Second)
	scrub(r)
	return err
}

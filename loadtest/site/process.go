// SPDX-License-Identifier: MIT

package site

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"shop/loadtest/fault"
)

// process is a child process that can be restarted.
type process struct {
	mu    sync.Mutex
	cmd   *exec.Cmd     // of the latest start; nil: it was never started
	done  chan struct{} // closed when it has exited
	watch watch         // which exits of the latest one are noted
	exits []string      // those that were noted
}

// watch says which exits of a process are noted.
type watch int

const (
	watchNone    watch = iota // it is not ready, or was sent a signal that ends it
	watchCrashes              // all but SIGKILL: a failpoint may send it
	watchAll
)

// start starts the process, unless ctx has ended. Its output is appended to a log.
func (p *process) start(ctx context.Context, of *Program, args []string, logFile string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own copy
	cmd, done := exec.Command(of.Path, args...), make(chan struct{})
	// All settings are on the command line: those of the caller's environment must not have an effect.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(setting string) bool { return strings.HasPrefix(setting, "SHOP_") })
	cmd.Stdout, cmd.Stderr = log, log
	if err := of.Spawn(cmd); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	p.cmd, p.done, p.watch = cmd, done, watchNone
	go func() {
		_ = cmd.Wait() // a killed one is not an error
		p.exited(cmd.ProcessState)
		close(done)
	}()
	if of.Adopt == nil {
		return nil
	}
	if err := of.Adopt(cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		p.mu.Unlock() // for exited
		<-done
		p.mu.Lock()
		return fmt.Errorf("report to the supervisor: %w", err)
	}
	return nil
}

// exited notes an exit that nothing here caused.
func (p *process) exited(how *os.ProcessState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch == watchAll || p.watch == watchCrashes && !killed(how) {
		p.exits = append(p.exits, "exited by itself: "+how.String())
	}
}

// noteExits begins to note exits.
func (p *process) noteExits(w watch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = w
}

// pid returns the id of the process; 0 if it was never started.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// send sends a signal. It returns an error if the process has exited.
func (p *process) send(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return os.ErrProcessDone
	}
	return p.cmd.Process.Signal(sig)
}

// signal sends a signal to a process that may have exited, and returns a channel that is closed when it
// has exited.
func (p *process) signal(sig os.Signal) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil { // never started
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	if sig == syscall.SIGKILL || sig == syscall.SIGTERM {
		p.watch = watchNone
	}
	_ = p.cmd.Process.Signal(sig)
	return p.done
}

// killed reports whether a process that has exited was ended by SIGKILL.
func killed(how *os.ProcessState) bool {
	status, known := how.Sys().(syscall.WaitStatus)
	return known && status.Signaled() && status.Signal() == syscall.SIGKILL
}

func (p *process) killed() bool { return killed(p.cmd.ProcessState) }

// sidecar is a process that works on the same database as the replicas. It is restarted when it exits,
// which it may do when a fault stops its servers.
type sidecar struct {
	process
	end   context.CancelFunc
	ended chan struct{}
}

// sidecarRest is the pause before a restart.
const sidecarRest = 100 * time.Millisecond

// startSidecar starts the sidecar. What it prints is in its log.
func startSidecar(p Program) *sidecar {
	ctx, end := context.WithCancel(context.Background())
	s := &sidecar{end: end, ended: make(chan struct{})}
	start := func() { _ = s.start(ctx, &p, p.Sidecar(), filepath.Join(p.Logs, "sidecar.log")) }
	start()
	go func() {
		defer close(s.ended)
		for {
			<-s.signal(syscall.Signal(0))
			if !fault.Wait(ctx, sidecarRest) {
				return
			}
			start()
		}
	}()
	return s
}

// stop sends SIGTERM to the sidecar, and kills it if it does not exit in time.
func (s *sidecar) stop() {
	if s == nil {
		return
	}
	s.end()
	s.signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopWait):
		s.kill()
	}
}

func (s *sidecar) kill() {
	if s == nil {
		return
	}
	s.end()
	s.signal(syscall.SIGKILL)
	<-s.ended
}

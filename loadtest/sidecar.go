package loadtest

import (
	"context"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"shop/loadtest/fault"
)

// sidecar is a process that works on the same database as the replicas, and is
// started again when it ends: a fault that takes its servers away may end it too.
type sidecar struct {
	program Program
	end     context.CancelFunc
	ended   chan struct{}
	mu      sync.Mutex
	cmd     *exec.Cmd // nil between two lives
}

// sidecarRest is between two lives of it.
const sidecarRest = 100 * time.Millisecond

func startSidecar(p Program) *sidecar {
	ctx, end := context.WithCancel(context.Background())
	s := &sidecar{program: p, end: end, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		for s.live(ctx); fault.Wait(ctx, sidecarRest); s.live(ctx) {
		}
	}()
	return s
}

// live is one life. What goes wrong is in its log.
func (s *sidecar) live(ctx context.Context) {
	s.mu.Lock()
	if ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	cmd, done, err := s.program.start(s.program.Sidecar(), filepath.Join(s.program.Logs, "sidecar.log"))
	s.cmd = cmd
	s.mu.Unlock()
	if err == nil {
		<-done
	}
	s.mu.Lock()
	s.cmd = nil
	s.mu.Unlock()
}

// stop asks it to end, and kills it if it does not.
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

func (s *sidecar) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(sig) // it may have ended by itself
	}
}

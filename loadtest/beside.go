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

// beside is a process that works on the same database as the replicas, and is
// started again when it ends: a fault that takes its servers away may end it too.
type beside struct {
	program Program
	end     context.CancelFunc
	ended   chan struct{}
	mu      sync.Mutex
	cmd     *exec.Cmd // nil between two lives
}

// besideRest is between two lives of it.
const besideRest = 100 * time.Millisecond

func startBeside(p Program) *beside {
	ctx, end := context.WithCancel(context.Background())
	b := &beside{program: p, end: end, ended: make(chan struct{})}
	go func() {
		defer close(b.ended)
		for b.live(ctx); fault.Wait(ctx, besideRest); b.live(ctx) {
		}
	}()
	return b
}

// live is one life. What goes wrong is in its log.
func (b *beside) live(ctx context.Context) {
	b.mu.Lock()
	if ctx.Err() != nil {
		b.mu.Unlock()
		return
	}
	cmd, done, err := b.program.start(b.program.Beside(), filepath.Join(b.program.Logs, "beside.log"))
	b.cmd = cmd
	b.mu.Unlock()
	if err == nil {
		<-done
	}
	b.mu.Lock()
	b.cmd = nil
	b.mu.Unlock()
}

// stop asks it to end, and kills it if it does not.
func (b *beside) stop() {
	if b == nil {
		return
	}
	b.end()
	b.signal(syscall.SIGTERM)
	select {
	case <-b.ended:
	case <-time.After(stopWait):
		b.kill()
	}
}

func (b *beside) kill() {
	if b == nil {
		return
	}
	b.end()
	b.signal(syscall.SIGKILL)
	<-b.ended
}

func (b *beside) signal(sig syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd != nil {
		_ = b.cmd.Process.Signal(sig) // it may have ended by itself
	}
}

package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// What can be done to a server that runs. Each holds op, so that no two of them
// work on one server at the same time.

// start brings a stopped or killed server back: same port, same data. The port
// may be taken for a moment (an outgoing connection, a last backend), so it is
// tried again for as long as ctx allows.
func (i *instance) start(ctx context.Context) error {
	i.op.Lock()
	defer i.op.Unlock()
	if state := i.now().State; state != Down {
		return fmt.Errorf("it is %s already", state)
	}
	for {
		if err := os.Truncate(i.logFile(), 0); err != nil {
			return err
		}
		if err := i.launch(); err != nil {
			return err
		}
		err := i.awaitReady(ctx)
		if err == nil {
			i.expect(true)
			return nil
		}
		if !errors.Is(err, errPortTaken) {
			return errors.Join(err, i.killNow())
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// halt ends a server the clean way and waits for it.
func (i *instance) halt(ctx context.Context) error {
	i.op.Lock()
	defer i.op.Unlock()
	if err := i.wake(); err != nil {
		return err
	}
	i.expect(false)
	now := i.now()
	if now.State == Down {
		return nil
	}
	if err := now.First.signal(i.kind.stop); err != nil && !errors.Is(err, errGone) {
		return err
	}
	select {
	case <-i.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("it does not end: %w", context.Cause(ctx))
	}
}

// kill sends SIGKILL to all its processes at once and waits until they are
// gone: nobody is attached to shared memory any more, so that it can be started
// again at once.
func (i *instance) kill() error {
	i.op.Lock()
	defer i.op.Unlock()
	return i.killNow()
}

func (i *instance) killNow() error {
	if i.cmd == nil {
		return nil
	}
	i.expect(false)
	if err := i.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	err := killAll(i.now().family, 10*time.Second)
	<-i.exited
	return err
}

// pause stops all its processes with SIGSTOP and returns when each of them
// stands still. The first process is stopped before it is listed again, so that
// no new one can appear.
func (i *instance) pause() error {
	i.op.Lock()
	defer i.op.Unlock()
	now := i.now()
	if now.State == Down {
		return errors.New("it is down and cannot be paused")
	}
	err := poll(5*time.Second, func() error { return freeze(now) })
	if err == nil {
		i.become(Paused)
	}
	return err
}

func freeze(r record) error {
	moving := 0
	for _, p := range append([]process{r.First}, r.family()...) {
		d, ok := look(p.PID)
		if !ok || d.process != p || d.state == 'T' || d.state == 'Z' {
			continue
		}
		moving++
		if err := p.signal(syscall.SIGSTOP); err != nil && !errors.Is(err, errGone) {
			return err
		}
	}
	if moving > 0 {
		return fmt.Errorf("%d of its processes move after SIGSTOP", moving)
	}
	return nil
}

// resume lets a paused server go on.
func (i *instance) resume() error {
	i.op.Lock()
	defer i.op.Unlock()
	return i.wake()
}

func (i *instance) wake() error {
	now := i.now()
	if now.State != Paused {
		return nil
	}
	for _, p := range now.family() {
		if err := p.signal(syscall.SIGCONT); err != nil && !errors.Is(err, errGone) {
			return err
		}
	}
	i.become(Running)
	return nil
}

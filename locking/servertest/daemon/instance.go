// SPDX-License-Identifier: MIT

package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Instance is a server, or one member of a cluster. Of its Record only First and State change.
type Instance struct {
	Record
	Cluster []*Instance // all members, this one included
	Flags   []string    // of its next start, in addition to those of its kind
	Reaper  bool        // a shell waits for the end of this process, and ends the server too

	kind *Kind
	user *syscall.Credential

	op  sync.Mutex // held by StartAll, Start, Stop, Kill, Pause, Resume: one at a time
	cmd *exec.Cmd  // guarded by op

	mu       sync.Mutex    // guards First, State, and what follows
	exited   chan struct{} // closed when cmd.Wait has returned
	expected bool          // the server is expected to run: if it ends, it died
	kept     bool          // then it is started again
}

// ErrPortTaken: another process took the port between FreePorts and the start.
var ErrPortTaken = errors.New("its port has been taken by another process")

// make creates the folder, owned by the user that runs the server.
func (i *Instance) make(ctx context.Context) error {
	if err := os.Mkdir(i.Dir, 0o700); err != nil {
		return err
	}
	if err := i.own(i.Dir); err != nil || i.kind.Setup == nil {
		return err
	}
	return i.kind.Setup(ctx, i)
}

// Wipe removes the data of a server that is down, and makes the folder again.
func (i *Instance) Wipe(ctx context.Context) error {
	return errors.Join(os.RemoveAll(i.Dir), i.make(ctx))
}

// Write makes a file that only the server's user can read.
func (i *Instance) Write(path, content string) error {
	return errors.Join(os.WriteFile(path, []byte(content), 0o600), i.own(path))
}

// Command runs a program as the server's user, in its folder. It inherits no
// variable that could change what the program does (PGOPTIONS, ETCD_…).
func (i *Instance) Command(ctx context.Context, env []string, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = i.Dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + i.Dir, "TMPDIR=" + i.Dir, "LC_ALL=C"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: i.user}
	return cmd
}

// run runs a short command and waits for it. An error contains its output.
func (i *Instance) run(ctx context.Context, env []string, program string, args ...string) error {
	var out strings.Builder
	cmd := i.Command(ctx, env, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	c, err := begin(cmd, syscall.SIGKILL)
	if err == nil {
		<-c.exited
		err = c.err
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, strings.TrimSpace(out.String()))
	}
	return nil
}

// launch starts the process and does not wait until it is ready.
func (i *Instance) launch() error {
	log, err := os.OpenFile(i.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := i.Command(context.Background(), nil, i.Program, slices.Concat(i.kind.Argv(i), i.Flags)...)
	cmd.Stdout, cmd.Stderr = log, log
	c, err := begin(cmd, i.quick())
	if err != nil {
		return fmt.Errorf("start %s: %w", i.Program, err)
	}
	i.mu.Lock()
	i.cmd, i.exited, i.First, i.State, i.expected = cmd, c.exited, c.first, Running, false
	i.mu.Unlock()
	if i.Reaper {
		return c.reaper(i.quick())
	}
	return nil
}

func (i *Instance) quick() syscall.Signal { return cmp.Or(i.kind.Quick, syscall.SIGKILL) }

// awaitReady repeats the ready query until it is answered or the process has ended.
func (i *Instance) awaitReady(ctx context.Context) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := i.tryReady(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-i.exited:
			return i.exitError()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: last error: %w\n%s", i.Name, context.Cause(ctx), err, i.LastLog())
		case <-time.After(wait):
		}
	}
}

// tryReady sends the ready query once, and cancels it when the process ends. Another
// process may have taken the port, so each kind's query checks that the reply
// comes from this instance.
func (i *Instance) tryReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	exited := i.exited // of this run: the next one may begin before the goroutine does
	go func() {
		select {
		case <-exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	return i.kind.Ready(ctx, i)
}

// exitError reports why a server ended while starting.
func (i *Instance) exitError() error {
	if strings.Contains(strings.ToLower(i.logText()), "address already in use") {
		return fmt.Errorf("%s: %w (%s)", i.Name, ErrPortTaken, i.Addr())
	}
	return fmt.Errorf("%s ended while starting: %s\n%s", i.Name, i.cmd.ProcessState, i.LastLog())
}

// Snapshot copies the record. It also notices a server that ended without a
// request, and sets its state to Down.
func (i *Instance) Snapshot() Record {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-i.exited: // nil before the first start
		i.State = Down
	default:
	}
	return i.Record
}

// Exited is closed when the current or last run has ended.
func (i *Instance) Exited() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.exited
}

func (i *Instance) setState(state string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.State = state
}

// Start restarts a stopped or killed server with the same port and data. The port
// may be in use for a moment (an outgoing connection, a last backend), so Start
// retries until ctx ends.
func (i *Instance) Start(ctx context.Context) error {
	i.op.Lock()
	defer i.op.Unlock()
	return i.startNow(ctx)
}

func (i *Instance) startNow(ctx context.Context) error {
	if state := i.Snapshot().State; state != Down {
		return fmt.Errorf("it is already %s", state)
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
		if !errors.Is(err, ErrPortTaken) {
			return errors.Join(err, i.killNow())
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Stop sends the clean stop signal and waits until the server ends.
func (i *Instance) Stop(ctx context.Context) error {
	i.op.Lock()
	defer i.op.Unlock()
	if err := i.wake(); err != nil {
		return err
	}
	i.expect(false)
	now := i.Snapshot()
	if now.State == Down {
		return nil
	}
	if err := now.First.Signal(cmp.Or(i.kind.Stop, syscall.SIGTERM)); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	select {
	case <-i.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("it has not ended: %w", context.Cause(ctx))
	}
}

// Kill sends SIGKILL to all processes of the server and waits until they are gone.
// Then no process is attached to its shared memory, so it can be started again.
func (i *Instance) Kill() error {
	i.op.Lock()
	defer i.op.Unlock()
	return i.killNow()
}

func (i *Instance) killNow() error {
	if i.cmd == nil {
		return nil
	}
	i.expect(false)
	if err := i.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	now := i.Snapshot()
	err := KillAll(now.family, 10*time.Second)
	<-i.exited
	return errors.Join(err, i.kind.scrub(now))
}

// Pause sends SIGSTOP to all processes of the server and returns when each is
// stopped. The first process is stopped before the others are listed, so no new
// one can appear.
func (i *Instance) Pause() error {
	i.op.Lock()
	defer i.op.Unlock()
	now := i.Snapshot()
	if now.State == Down {
		return errors.New("a server that is down cannot be paused")
	}
	err := Poll(5*time.Second, now.freeze)
	if err == nil {
		i.setState(Paused)
	}
	return err
}

// Resume sends SIGCONT to a paused server.
func (i *Instance) Resume() error {
	i.op.Lock()
	defer i.op.Unlock()
	return i.wake()
}

func (i *Instance) wake() error {
	now := i.Snapshot()
	if now.State != Paused {
		return nil
	}
	for _, p := range now.family() {
		if err := p.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, ErrGone) {
			return err
		}
	}
	i.setState(Running)
	return nil
}

// expect sets whether the server is expected to run.
func (i *Instance) expect(running bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expected = running
}

// Death reports how a server died that is expected to run. It returns "" while it runs, or is kept.
func (i *Instance) Death() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.kept || !i.died() {
		return ""
	}
	return fmt.Sprintf("%s; last log lines:\n%s", i.cmd.ProcessState, i.LastLog())
}

// died is called with mu held.
func (i *Instance) died() bool {
	select {
	case <-i.exited:
		return i.expected
	default:
		return false
	}
}

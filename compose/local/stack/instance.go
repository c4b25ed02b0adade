// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// record is the part of an instance that the journal stores: everything that the reaper
// needs to end the server.
type record struct {
	Name    string
	Kind    string
	Program string // absolute; by its own name, which may be a link: redis-server is one
	Dir     string
	Ports   []int
	Secret  string
	First   process // the parent of the server's other processes, in the current or last run
	State   string
}

// instance is one member of a server in the supervisor. Of its record only First
// and State change.
type instance struct {
	record
	kind    *kind
	cluster []*instance // all members, this one included
	user    *user

	op  sync.Mutex // held by start, halt, kill, pause, resume: one at a time
	cmd *exec.Cmd  // guarded by op

	mu       sync.Mutex    // guards First, State, and what follows
	exited   chan struct{} // closed when cmd.Wait has returned
	expected bool          // the server is expected to run: if it ends, it died
	kept     bool          // then it is started again
}

// States of a server.
const (
	Running = "running"
	Paused  = "paused"
	Down    = "down"
)

// errPortTaken: another process took the port between freePorts and the start.
var errPortTaken = errors.New("its port has been taken by another process")

func (r record) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Ports[0])) }

// tool is the path of a program in the folder of the server's program.
func (r record) tool(name string) string {
	return filepath.Join(filepath.Dir(realPath(r.Program)), name)
}

func (r record) logFile() string { return r.Dir + ".log" }

// make creates the folder, owned by the user that runs the server.
func (i *instance) make(ctx context.Context) error {
	if err := os.Mkdir(i.Dir, 0o700); err != nil {
		return err
	}
	if err := i.user.own(i.Dir); err != nil || i.kind.setup == nil {
		return err
	}
	return i.kind.setup(ctx, i)
}

// write makes a file that only the server's user can read.
func (i *instance) write(path, content string) error {
	return errors.Join(os.WriteFile(path, []byte(content), 0o600), i.user.own(path))
}

// command runs a program as the server's user, in its folder. It inherits no
// variable that could change what the program does (PGOPTIONS, ETCD_…).
func (i *instance) command(ctx context.Context, env []string, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = i.Dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + i.Dir, "TMPDIR=" + i.Dir, "LC_ALL=C"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: i.user.credential()}
	return cmd
}

// run runs a short command and waits for it. An error contains its output.
func (i *instance) run(ctx context.Context, env []string, program string, args ...string) error {
	var out strings.Builder
	cmd := i.command(ctx, env, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := Spawn(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, strings.TrimSpace(out.String()))
	}
	return nil
}

// launch starts the process and does not wait until it is ready.
func (i *instance) launch() error {
	log, err := os.OpenFile(i.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := i.command(context.Background(), nil, i.Program, i.kind.argv(i)...)
	cmd.Stdout, cmd.Stderr = log, log
	dieWith(cmd, i.kind.quick)
	if err := spawn(cmd); err != nil {
		return fmt.Errorf("start %s: %w", i.Program, err)
	}
	d, _ := inspect(cmd.Process.Pid) // before Wait: the pid cannot have been reused
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cmd, i.exited, i.First, i.State, i.expected = cmd, exited, d.process, Running, false
	return nil
}

// awaitReady repeats the ready query until it is answered or the process has ended.
func (i *instance) awaitReady(ctx context.Context) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := i.tryReady(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-i.exited:
			return i.exitError()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: last error: %w\n%s", i.Name, context.Cause(ctx), err, i.lastLog())
		case <-time.After(wait):
		}
	}
}

// tryReady sends the ready query once, and cancels it when the process ends. Another
// process may have taken the port, so each kind's query checks that the reply
// comes from this instance.
func (i *instance) tryReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	go func() {
		select {
		case <-i.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	return i.kind.ready(ctx, i)
}

// exitError reports why a server ended while starting.
func (i *instance) exitError() error {
	if strings.Contains(strings.ToLower(i.logText()), "address already in use") {
		return fmt.Errorf("%s: %w (%s)", i.Name, errPortTaken, i.addr())
	}
	return fmt.Errorf("%s ended while starting: %s\n%s", i.Name, i.cmd.ProcessState, i.lastLog())
}

// logText is the server's log since the last start.
func (r record) logText() string {
	content, _ := os.ReadFile(r.logFile())
	return string(content)
}

func (r record) lastLog() string { return lastLines(r.logText(), 12) }

// snapshot copies the record. It also notices a server that ended without a
// request, and sets its state to Down.
func (i *instance) snapshot() record {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-i.exited: // nil before the first start
		i.State = Down
	default:
	}
	return i.record
}

func (i *instance) setState(state string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.State = state
}

func (r record) family() []process { return family(r.First, realPath(r.Program), r.Dir) }

// start restarts a stopped or killed server with the same port and data. The port
// may be in use for a moment (an outgoing connection, a last backend), so start
// retries until ctx ends.
func (i *instance) start(ctx context.Context) error {
	i.op.Lock()
	defer i.op.Unlock()
	return i.startNow(ctx)
}

func (i *instance) startNow(ctx context.Context) error {
	if state := i.snapshot().State; state != Down {
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

// halt sends the clean stop signal and waits until the server ends.
func (i *instance) halt(ctx context.Context) error {
	i.op.Lock()
	defer i.op.Unlock()
	if err := i.wake(); err != nil {
		return err
	}
	i.expect(false)
	now := i.snapshot()
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
		return fmt.Errorf("it has not ended: %w", context.Cause(ctx))
	}
}

// kill sends SIGKILL to all processes of the server and waits until they are gone.
// Then no process is attached to its shared memory, so it can be started again.
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
	now := i.snapshot()
	err := killAll(now.family, 10*time.Second)
	<-i.exited
	return errors.Join(err, scrub(now))
}

// pause sends SIGSTOP to all processes of the server and returns when each is
// stopped. The first process is stopped before the others are listed, so no new
// one can appear.
func (i *instance) pause() error {
	i.op.Lock()
	defer i.op.Unlock()
	now := i.snapshot()
	if now.State == Down {
		return errors.New("a server that is down cannot be paused")
	}
	err := poll(5*time.Second, func() error { return freeze(now) })
	if err == nil {
		i.setState(Paused)
	}
	return err
}

func freeze(r record) error {
	running := 0
	for _, p := range append([]process{r.First}, r.family()...) {
		d, ok := inspect(p.PID)
		if !ok || d.process != p || d.state == 'T' || d.state == 'Z' {
			continue
		}
		running++
		if err := p.signal(syscall.SIGSTOP); err != nil && !errors.Is(err, errGone) {
			return err
		}
	}
	if running > 0 {
		return fmt.Errorf("%d of its processes still run after SIGSTOP", running)
	}
	return nil
}

// resume sends SIGCONT to a paused server.
func (i *instance) resume() error {
	i.op.Lock()
	defer i.op.Unlock()
	return i.wake()
}

func (i *instance) wake() error {
	now := i.snapshot()
	if now.State != Paused {
		return nil
	}
	for _, p := range now.family() {
		if err := p.signal(syscall.SIGCONT); err != nil && !errors.Is(err, errGone) {
			return err
		}
	}
	i.setState(Running)
	return nil
}

// expect sets whether the server is expected to run.
func (i *instance) expect(running bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expected = running
}

// death reports how a server died that is expected to run. It returns "" while it runs, or is kept.
func (i *instance) death() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.kept || !i.died() {
		return ""
	}
	return fmt.Sprintf("%s; last log lines:\n%s", i.cmd.ProcessState, i.lastLog())
}

// died is called with mu held.
func (i *instance) died() bool {
	select {
	case <-i.exited:
		return i.expected
	default:
		return false
	}
}

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

// record is what the journal and the clients are told of an instance, and all
// that the undertaker needs to bury it.
type record struct {
	Name    string
	Kind    string
	Program string // absolute; by its own name, which may be a link: redis-server is one
	Dir     string
	Ports   []int
	Secret  string
	First   process // of the running or the last run; its children follow it
	State   string
}

// instance is one process of a server, as the supervisor sees it. After it was
// made, only First and State of the record change.
type instance struct {
	record
	kind    *kind
	cluster []*instance // itself included
	user    *user

	op  sync.Mutex // one of start, stop, kill, pause, resume at a time
	cmd *exec.Cmd  // guarded by op

	mu       sync.Mutex    // guards First, State, and what follows
	exited   chan struct{} // closed when cmd was waited for
	expected bool          // to run: its end would be a death
}

// States of a server.
const (
	Running = "running"
	Paused  = "paused"
	Down    = "down"
)

// errPortTaken: someone took the port between the choice and the start.
var errPortTaken = errors.New("its port has been taken by another process")

func (r record) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Ports[0])) }

// tool is a program that stands beside the server's own.
func (r record) tool(name string) string {
	return filepath.Join(filepath.Dir(realPath(r.Program)), name)
}

func (r record) logFile() string { return r.Dir + ".log" }

// make creates the folder, owned by whoever will run the server.
func (i *instance) make(ctx context.Context) error {
	if err := os.Mkdir(i.Dir, 0o700); err != nil {
		return err
	}
	if err := i.user.own(i.Dir); err != nil || i.kind.setup == nil {
		return err
	}
	return i.kind.setup(ctx, i)
}

// write makes a file that the server's user, and nobody else, can read.
func (i *instance) write(path, content string) error {
	return errors.Join(os.WriteFile(path, []byte(content), 0o600), i.user.own(path))
}

// command is a program of the server's, run as its user, in its folder, with
// nothing of our environment that could change what it does (PGOPTIONS, ETCD_…).
func (i *instance) command(ctx context.Context, env []string, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = i.Dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + i.Dir, "TMPDIR=" + i.Dir, "LC_ALL=C"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: i.user.credential()}
	return cmd
}

// run waits for a short command; its output becomes the error.
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

// launch starts the process. It is not ready yet.
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
	d, _ := look(cmd.Process.Pid) // not waited for yet: the pid is still its own
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cmd, i.exited, i.First, i.State, i.expected = cmd, exited, d.process, Running, false
	return nil
}

// awaitReady asks until a query is answered, or the process ended.
func (i *instance) awaitReady(ctx context.Context) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := i.askOnce(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-i.exited:
			return i.obituary()
		case <-ctx.Done():
			return fmt.Errorf("%s did not get ready: %w: last: %w\n%s", i.Name, context.Cause(ctx), err, i.lastWords())
		case <-time.After(wait):
		}
	}
}

// askOnce is one try, given up when the process ends. Someone else may answer on
// a port that was lost, so each kind's question is one that only ours can answer.
func (i *instance) askOnce(ctx context.Context) error {
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

// obituary says why a server ended by itself.
func (i *instance) obituary() error {
	if strings.Contains(strings.ToLower(i.words()), "address already in use") {
		return fmt.Errorf("%s: %w (%s)", i.Name, errPortTaken, i.addr())
	}
	return fmt.Errorf("%s ended while starting: %s\n%s", i.Name, i.cmd.ProcessState, i.lastWords())
}

// words are its log since the last start.
func (r record) words() string {
	content, _ := os.ReadFile(r.logFile())
	return string(content)
}

func (r record) lastWords() string { return lastLines(r.words(), 12) }

// now is the record at this moment. A server that ended by itself, or by a
// stranger's hand, is noticed here.
func (i *instance) now() record {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-i.exited: // blocks for ever while nil
		i.State = Down
	default:
	}
	return i.record
}

func (i *instance) become(state string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.State = state
}

func (r record) family() []process { return family(r.First, realPath(r.Program), r.Dir) }

// SPDX-License-Identifier: MIT

package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"shop/locking/servertest/daemon"
)

// Stack is a handle of a set of running servers, identified by their supervisor's folder.
type Stack struct {
	dir        string
	parentPipe *os.File      // the supervisor ends when this closes; nil: detached, or attached to
	done       chan struct{} // closed when supervisor and reaper are gone; nil: attached to
}

// Done is closed when the stack that this process opened has ended: by Close, or
// because its supervisor was killed.
func (s *Stack) Done() <-chan struct{} { return s.done }

// Attach returns a handle of a running stack; dir is the value of SHOP_STACK.
func Attach(dir string) (*Stack, error) {
	if dir == "" {
		return nil, errors.New("stack: SHOP_STACK is not set: no local stack runs here (go run ./compose/local exec -- …)")
	}
	s := &Stack{dir: dir}
	_, err := s.Servers(context.Background())
	return s, err
}

// Dir is the stack's folder, the value of SHOP_STACK.
func (s *Stack) Dir() string { return s.dir }

// Servers lists the servers, including private ones.
func (s *Stack) Servers(ctx context.Context) ([]*Server, error) {
	found, err := call(ctx, s.dir, request{Op: "list"})
	return s.handles(found), err
}

// Server returns the handle of one server by name: "postgres", "redis", "etcd".
func (s *Stack) Server(name string) (*Server, error) {
	all, err := s.Servers(context.Background())
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(all, func(s *Server) bool { return s.Name == name })
	if n < 0 {
		return nil, fmt.Errorf("stack: %s has no server called %q: its address was already set, or it was not requested", s.dir, name)
	}
	return all[n], nil
}

// Died waits until a server ends that no request has stopped or killed. A test that
// waits for a reply of that server may wait for ever, so exec then kills its command.
func (s *Stack) Died(ctx context.Context) (*Server, error) {
	dead, err := call(ctx, s.dir, request{Op: "died"})
	if err != nil {
		return nil, err
	}
	return s.handles(dead)[0], nil
}

// Private starts one more server of a kind, for a test that breaks it and must not
// disturb others. It ends with the stack.
func (s *Stack) Private(ctx context.Context, kind string) (*Server, error) {
	opened, err := s.open(ctx, kind, "")
	if err != nil {
		return nil, err
	}
	return opened[0], nil
}

// Adopt makes a process end with the stack, paused or not.
func (s *Stack) Adopt(pid int) error { return s.adopt("adopt", pid) }

// AdoptGroup makes the process group that pid leads end with the stack.
func (s *Stack) AdoptGroup(pid int) error { return s.adopt("adopt-group", pid) }

func (s *Stack) adopt(op string, pid int) error {
	p, err := daemon.Identify(pid)
	if err != nil {
		return fmt.Errorf("stack: %s: %w", op, err)
	}
	_, err = call(context.Background(), s.dir, request{Op: op, Process: p})
	return err
}

// End stops the stack, whichever process opened it, and returns when nothing of it remains.
func (s *Stack) End() error {
	if _, err := s.Servers(context.Background()); err != nil {
		return err
	}
	_, _ = call(context.Background(), s.dir, request{Op: "end"}) // the supervisor exits without a reply
	return daemon.Poll(closeLimit, func() error {
		if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("stack: %s is still there", s.dir)
		}
		return nil
	})
}

const closeLimit = 20 * time.Second

// Close stops the stack and returns when nothing of it remains.
func (s *Stack) Close() error {
	if s.parentPipe == nil {
		return s.End()
	}
	_ = s.parentPipe.Close()
	select {
	case <-s.done:
	case <-time.After(closeLimit):
		return fmt.Errorf("stack: %s has not ended after %s", s.dir, closeLimit)
	}
	if _, err := os.Stat(s.dir); err == nil {
		return fmt.Errorf("stack: %s could not be removed; see the logs in it", s.dir)
	}
	return nil
}

func (s *Stack) handles(found []Server) []*Server {
	var handles []*Server
	for _, f := range found {
		f.dir = s.dir
		handles = append(handles, &f)
	}
	return handles
}

// Options configure Open.
type Options struct {
	Servers  []string  // kinds; empty: a stack without servers, for Private and Adopt
	Detached bool      // the stack outlives this process, until End
	Log      io.Writer // progress messages; nil: none
}

// Open finds or installs the servers, starts them concurrently, and returns
// when each has answered a query. Unless detached, the stack ends with this
// process, however this process ends.
func Open(ctx context.Context, o Options) (*Stack, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	Sweep()
	programs, err := provide(ctx, o.Servers, o.Log)
	if err != nil {
		return nil, err
	}
	s, err := begin(o.Detached)
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range o.Servers {
		group.Go(func() error {
			_, err := s.openProgram(ctx, name, name, programs[name])
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stack) open(ctx context.Context, kind, name string) ([]*Server, error) {
	programs, err := provide(ctx, []string{kind}, io.Discard)
	if err != nil {
		return nil, err
	}
	return s.openProgram(ctx, kind, name, programs[kind])
}

func (s *Stack) openProgram(ctx context.Context, kind, name, program string) ([]*Server, error) {
	opened, err := call(ctx, s.dir, request{Op: "open", Kind: kind, Name: name, Program: program})
	return s.handles(opened), err
}

// begin makes the folder and starts the supervisor in it.
func begin(detached bool) (*Stack, error) {
	prefix := folderPrefix
	if detached {
		prefix = detachedPrefix
	}
	dir, lock, err := newFolder(prefix)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the supervisor inherits it
	report, reportEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s := &Stack{dir: dir, done: make(chan struct{})}
	files, args := []*os.File{reportEnd, lock}, []string{dir}
	if !detached {
		end, parentPipe, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer end.Close()
		s.parentPipe = parentPipe
		files, args = append(files, end), append(args, "attached")
	}
	if err := role(roleLauncher, files, args...).Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("stack: launcher: %w: %s", err, roleLogs(dir)), os.RemoveAll(dir))
	}
	_ = reportEnd.Close() // now only the supervisor and the reaper hold it open
	if err := s.awaitReport(report); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// awaitReport waits for the supervisor's one line. Its goroutine then waits for the
// pipe's end and closes done: the supervisor and each reaper hold the pipe open, and
// write nothing more.
func (s *Stack) awaitReport(report *os.File) error {
	_ = report.SetReadDeadline(time.Now().Add(10 * time.Second))
	line, err := bufio.NewReader(report).ReadString('\n')
	if err != nil {
		err = fmt.Errorf("stack: the supervisor has not started: it reported %q: %w: %s", line, err, roleLogs(s.dir))
	}
	go func() {
		_ = report.SetReadDeadline(time.Time{})
		_, _ = report.Read(make([]byte, 1))
		_ = report.Close()
		close(s.done)
	}()
	return err
}

// openLog opens the file that receives a role's stderr.
func openLog(dir, role string) *os.File {
	f, err := os.OpenFile(filepath.Join(dir, role+".err"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil
	}
	return f
}

func roleLogs(dir string) string {
	var all strings.Builder
	for _, name := range []string{roleLauncher, roleSupervisor, roleReaper} {
		content, _ := os.ReadFile(filepath.Join(dir, name+".err"))
		all.Write(content)
	}
	return strings.TrimSpace(all.String())
}

// Server is a client's handle of one server of a stack. Each method sends a request
// to the supervisor, the server's parent, and returns when the operation is done.
type Server struct {
	Name  string
	Kind  string
	Addr  string            // host:port
	Dir   string            // its data
	Env   map[string]string // the settings that carry its address
	PID   int               // of its first process
	State string            // as of the last request: Running, Paused or Down
	Death string            // how it died, with its last log lines, if no request stopped or killed it

	dir string
}

// Stop shuts the server down cleanly: PostgreSQL writes its checkpoint, Redis its file.
func (s *Server) Stop(ctx context.Context) error { return s.command(ctx, "stop") }

// Kill sends SIGKILL to all processes of the server, paused or not, and waits for their end.
func (s *Server) Kill(ctx context.Context) error { return s.command(ctx, "kill") }

// Pause sends SIGSTOP to all processes of the server: connections stay open, no reply comes.
func (s *Server) Pause(ctx context.Context) error { return s.command(ctx, "pause") }

// Resume sends SIGCONT to a paused server.
func (s *Server) Resume(ctx context.Context) error { return s.command(ctx, "resume") }

// Start brings the server back after Stop, Kill or its own end, with the same port
// and data, and returns when it has answered a query.
func (s *Server) Start(ctx context.Context) error { return s.command(ctx, "start") }

// Keep lets the supervisor start the server again, with the same port and data, whenever it ends that no request has
// stopped or killed it. Died reports it only if it does not start again.
func (s *Server) Keep(ctx context.Context) error { return s.command(ctx, "keep") }

func (s *Server) command(ctx context.Context, op string) error {
	now, err := call(ctx, s.dir, request{Op: op, Name: s.Name})
	if err == nil && len(now) == 1 {
		s.PID, s.State = now[0].PID, now[0].State
	}
	return err
}

// public returns the instance as it is sent to clients.
func public(i *daemon.Instance) Server {
	now, k := i.Snapshot(), kinds[i.Kind]
	return Server{
		Name: now.Name, Kind: now.Kind, Addr: now.Addr(), Dir: now.Dir, PID: now.First.PID, State: now.State, Death: i.Death(),
		Env: map[string]string{k.variable: i.URL(), k.program.variable(): now.Program},
	}
}

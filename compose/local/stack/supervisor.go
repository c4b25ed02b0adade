// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"shop/locking/servertest/daemon"
)

// supervisor is the parent of all servers of one stack. It has no clean-up code,
// because clean-up must also work when the supervisor is killed: the reaper waits
// until the supervisor exits and does all of it.
type supervisor struct {
	dir  string
	pick func(int) ([]int, error)

	mu      sync.Mutex
	servers []*daemon.Instance
	adopted []adoptee
	private int // private servers named so far
}

// adoptee is a process (or the leader of a process group) that the supervisor did not
// start, but that ends with the stack.
type adoptee struct {
	Process daemon.Process
	Group   bool
}

// supervise is the supervisor's main.
func supervise(dir string, attached bool) error {
	syscall.Umask(0o077)
	if err := allowFiles(); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	for _, fd := range []int{fdReport, fdLock, fdParentPipe} {
		syscall.CloseOnExec(fd)
	}
	// fdLock stays a bare number: the garbage collector would close an unused
	// *os.File, and the next Sweep would end this running stack.
	report := os.NewFile(fdReport, "report")
	if attached {
		parentPipe := os.NewFile(fdParentPipe, "parentPipe")
		go func() { // the owner writes nothing: Read returns when the owner is gone
			_, _ = parentPipe.Read(make([]byte, 1))
			os.Exit(0)
		}()
	}
	s := &supervisor{dir: dir, pick: daemon.FreePorts}
	if err := s.keepReaper(report); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socketOf(dir))
	if err != nil {
		return err
	}
	fmt.Fprintln(report, "listening")
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go serve(conn, s.do)
	}
}

// keepReaper starts the reaper, and another one when it is killed.
func (s *supervisor) keepReaper(report *os.File) error {
	orphaned, alive, err := os.Pipe() // alive closes when this process ends
	if err != nil {
		return err
	}
	begin := func() (*exec.Cmd, error) {
		cmd := role(roleReaper, []*os.File{report, orphaned}, s.dir)
		return cmd, cmd.Start()
	}
	cmd, err := begin()
	if err != nil {
		return err
	}
	go func() {
		defer alive.Close()
		for {
			if err == nil {
				_ = cmd.Wait()
			} else {
				time.Sleep(time.Second)
			}
			cmd, err = begin()
		}
	}()
	return nil
}

// opLimit bounds each request but died.
const opLimit = time.Minute

// do executes one request.
func (s *supervisor) do(ctx context.Context, req request) ([]Server, error) {
	if req.Op == "died" {
		return s.awaitDeath(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, opLimit, fmt.Errorf("%s have passed", opLimit))
	defer cancel()
	switch req.Op {
	case "open":
		return s.open(ctx, req)
	case "list":
		return s.list(), nil
	case "adopt":
		return nil, s.adopt(adoptee{Process: req.Process})
	case "adopt-group":
		return nil, s.adopt(adoptee{Process: req.Process, Group: true})
	case "end":
		os.Exit(0)
	}
	i, err := s.find(req.Name)
	if err != nil {
		return nil, err
	}
	switch req.Op {
	case "start":
		err = i.Start(ctx)
	case "stop":
		err = i.Stop(ctx)
	case "kill":
		err = i.Kill()
	case "pause":
		err = i.Pause()
	case "resume":
		err = i.Resume()
	case "keep":
		i.Keep(func() error { return s.track(nil) })
	default:
		err = fmt.Errorf("unknown operation %q", req.Op)
	}
	return []Server{public(i)}, errors.Join(err, s.track(nil))
}

// portTries bounds the attempts to start a new server when other processes take its ports.
const portTries = 5

// open starts a server and returns its members. The journal lists them before
// their first process exists. If another process has taken a port, all members
// start again with other ports, since they know each other by port.
func (s *supervisor) open(ctx context.Context, req request) ([]Server, error) {
	k, err := kindOf(req.Kind)
	if err == nil {
		err = k.checkFiles()
	}
	if err != nil {
		return nil, err
	}
	name := s.nameOf(req)
	for range portTries {
		members, err := daemon.NewCluster(s.dir, name, req.Program, &k.Kind, s.pick)
		if err != nil {
			return nil, err
		}
		if err = s.track(members); err == nil {
			err = daemon.StartAll(ctx, members)
		}
		if err == nil {
			return publish(members), s.track(nil)
		}
		err = errors.Join(err, s.drop(members))
		if !errors.Is(err, daemon.ErrPortTaken) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w, %d times: stop the processes that take ports between %d and %d", daemon.ErrPortTaken, portTries, daemon.PortMin, daemon.PortMax)
}

func (s *supervisor) nameOf(req request) string {
	if req.Name != "" {
		return req.Name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.private++
	return fmt.Sprintf("%s-private-%d", req.Kind, s.private)
}

// track adds members to the registry, and writes the journal.
func (s *supervisor) track(members []*daemon.Instance) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers = append(s.servers, members...)
	return s.save()
}

// drop ends and removes servers that did not start.
func (s *supervisor) drop(members []*daemon.Instance) error {
	err := daemon.Destroy(members)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers = slices.DeleteFunc(s.servers, func(i *daemon.Instance) bool { return slices.Contains(members, i) })
	return errors.Join(err, s.save())
}

func publish(members []*daemon.Instance) (all []Server) {
	for _, m := range members {
		all = append(all, public(m))
	}
	return all
}

func (s *supervisor) list() []Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return publish(s.servers)
}

func (s *supervisor) find(name string) (*daemon.Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := slices.IndexFunc(s.servers, func(i *daemon.Instance) bool { return i.Name == name })
	if n < 0 {
		return nil, fmt.Errorf("this stack has no server called %q: its address was already set, or it was not requested", name)
	}
	return s.servers[n], nil
}

// awaitDeath waits until a server ends that no request stopped or killed.
func (s *supervisor) awaitDeath(ctx context.Context) ([]Server, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, server := range s.list() {
			if server.Death != "" {
				return []Server{server}, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// adopt adds a process to the registry, if the pid still names the process that the
// client meant.
func (s *supervisor) adopt(a adoptee) error {
	now, err := daemon.Identify(a.Process.PID)
	if err != nil {
		return err
	}
	if now != a.Process {
		return fmt.Errorf("pid %d: %w", a.Process.PID, daemon.ErrReused)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adopted = slices.DeleteFunc(s.adopted, func(a adoptee) bool { return !a.Group && !a.Process.Alive() })
	s.adopted = append(s.adopted, a)
	return s.save()
}

// journal tells the reaper what belongs to the stack. It is written before the reply to
// each request, and by rename, so that it is always complete.
type journal struct {
	Servers []daemon.Record
	Adopted []adoptee
}

func journalOf(dir string) string { return filepath.Join(dir, "journal.json") }

// save is called with mu held.
func (s *supervisor) save() error {
	j := journal{Adopted: s.adopted}
	for _, i := range s.servers {
		j.Servers = append(j.Servers, i.Snapshot())
	}
	content, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return err
	}
	next := journalOf(s.dir) + ".next"
	return errors.Join(os.WriteFile(next, content, 0o600), os.Rename(next, journalOf(s.dir)))
}

// readJournal reads the journal of the stack in dir. It is empty if no server was
// started there.
func readJournal(dir string) journal {
	var j journal
	if content, err := os.ReadFile(journalOf(dir)); err == nil {
		_ = json.Unmarshal(content, &j)
	}
	return j
}

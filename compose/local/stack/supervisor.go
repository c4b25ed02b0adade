package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// supervisor is the parent of all servers of one stack. It ends by ending: no
// clean-up of its own, because it must also work when it is killed. The
// undertaker, which waits for that, does all of it.
type supervisor struct {
	dir  string
	pick func(int) ([]int, error)

	mu      sync.Mutex
	servers []*instance
	adopted []adoptee
	private int // how many private servers were named so far
}

// adoptee is a process that is not ours but is to end with us; or the leader of
// a group of them.
type adoptee struct {
	Process process
	Group   bool
}

// supervise is the supervisor's main.
func supervise(dir string, attached bool) error {
	syscall.Umask(0o077)
	if err := allowFiles(); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	for _, fd := range []int{fdReport, fdLock, fdLifeline} {
		syscall.CloseOnExec(fd)
	}
	// fdLock stays a bare number: as an *os.File that nobody uses it would be
	// closed by the garbage collector, and the next Sweep would bury us alive.
	report := os.NewFile(fdReport, "report")
	if attached {
		lifeline := os.NewFile(fdLifeline, "lifeline")
		go func() { // nobody writes: an end of the read means that the owner is gone
			_, _ = lifeline.Read(make([]byte, 1))
			os.Exit(0)
		}()
	}
	s := &supervisor{dir: dir, pick: freePorts}
	if err := s.keepUndertaker(report); err != nil {
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

// keepUndertaker starts the undertaker, and another whenever one is killed.
func (s *supervisor) keepUndertaker(report *os.File) error {
	orphaned, alive, err := os.Pipe() // alive is never closed but by our end
	if err != nil {
		return err
	}
	begin := func() (*exec.Cmd, error) {
		cmd := role(roleUndertaker, []*os.File{report, orphaned}, s.dir)
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

// opLimit bounds each request, whatever its client allows.
const opLimit = time.Minute

// do carries out one request.
func (s *supervisor) do(ctx context.Context, req request) ([]Server, error) {
	if req.Op == "died" { // takes as long as the servers live
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
		err = i.start(ctx)
	case "stop":
		err = i.halt(ctx)
	case "kill":
		err = i.kill()
	case "pause":
		err = i.pause()
	case "resume":
		err = i.resume()
	default:
		err = fmt.Errorf("unknown operation %q", req.Op)
	}
	return []Server{i.public()}, errors.Join(err, s.track(nil))
}

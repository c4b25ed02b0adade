package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Stack is a set of servers that run, by their supervisor's folder.
type Stack struct {
	dir      string
	lifeline *os.File      // the supervisor ends when this closes; nil: detached or not ours
	done     chan struct{} // closed when supervisor and undertaker are gone; nil: not ours
}

// Done is closed when the stack that this process opened has ended, be it by
// Close or because somebody killed its supervisor.
func (s *Stack) Done() <-chan struct{} { return s.done }

// Attach reaches a stack that runs; dir is what SHOP_STACK says.
func Attach(dir string) (*Stack, error) {
	if dir == "" {
		return nil, errors.New("stack: SHOP_STACK is not set: no local stack runs here (go run ./compose/local exec -- …)")
	}
	s := &Stack{dir: dir}
	_, err := s.Servers(context.Background())
	return s, err
}

// Dir is the stack's folder: what SHOP_STACK carries.
func (s *Stack) Dir() string { return s.dir }

// Servers lists them, private ones included.
func (s *Stack) Servers(ctx context.Context) ([]*Server, error) {
	found, err := call(ctx, s.dir, request{Op: "list"})
	return s.handles(found), err
}

// Server gives the handle of one: "postgres", "redis", "etcd".
func (s *Stack) Server(name string) (*Server, error) {
	all, err := s.Servers(context.Background())
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(all, func(s *Server) bool { return s.Name == name })
	if n < 0 {
		return nil, fmt.Errorf("stack: %s has no server called %q: its address was set from outside, or it was not asked for", s.dir, name)
	}
	return all[n], nil
}

// Private starts one more server of a kind, for whoever wants to break it alone.
// It ends with the stack.
func (s *Stack) Private(ctx context.Context, kind string) (*Server, error) {
	opened, err := s.open(ctx, kind, "")
	if err != nil {
		return nil, err
	}
	return opened[0], nil
}

// Adopt makes a process that we started end with the stack, paused or not.
func (s *Stack) Adopt(pid int) error { return s.adopt("adopt", pid) }

// AdoptGroup does so with the process group that pid leads.
func (s *Stack) AdoptGroup(pid int) error { return s.adopt("adopt-group", pid) }

func (s *Stack) adopt(op string, pid int) error {
	who, err := identify(pid)
	if err != nil {
		return fmt.Errorf("stack: %s: %w", op, err)
	}
	_, err = call(context.Background(), s.dir, request{Op: op, Process: who})
	return err
}

// End stops a stack that anyone started, and returns when nothing is left of it.
func (s *Stack) End() error {
	if _, err := s.Servers(context.Background()); err != nil {
		return err
	}
	_, _ = call(context.Background(), s.dir, request{Op: "end"}) // it ends without an answer
	return poll(closeLimit, func() error {
		if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("stack: %s is still there", s.dir)
		}
		return nil
	})
}

const closeLimit = 20 * time.Second

// Close stops a stack that this process opened attached, and returns when
// nothing is left of it.
func (s *Stack) Close() error {
	if s.lifeline == nil {
		return s.End()
	}
	_ = s.lifeline.Close()
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

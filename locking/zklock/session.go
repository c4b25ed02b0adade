package zklock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// session is a session of ZooKeeper, to which nodes are attached. The client continues it
// on each new connection. When it has expired, the client opens another one by itself.
type session struct {
	store   *Store
	id      int64
	timeout time.Duration   // as ZooKeeper has granted it
	life    context.Context // ends when the session has expired, or with the Store
	end     context.CancelFunc
}

var (
	// errAgain reports that a new attempt may succeed: the session has expired, or the node is gone.
	errAgain    = errors.New("zklock: the session, or the node in the queue, is gone")
	errNoAnswer = errors.New("no answer in time")
)

// identify receives the answer to each handshake, before any answer to a request on that connection.
func (s *Store) identify(id int64, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil && s.session.id == id {
		return
	}
	if old := s.session; old != nil { // expired, and its nodes are deleted
		s.session = nil
		old.end()
		for _, n := range s.leases {
			s.lose(n)
		}
	}
	if id == 0 || s.life.Err() != nil {
		return
	}
	x := &session{store: s, id: id, timeout: timeout}
	x.life, x.end = context.WithCancel(s.life)
	s.session = x
	close(s.opened)
	s.opened = make(chan struct{})
}

// ready returns the session. It waits for one as long as limit.
func (s *Store) ready(ctx context.Context, limit time.Duration) (*session, error) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		x, opened := s.session, s.opened
		s.mu.Unlock()
		if x != nil && s.life.Err() == nil {
			return x, nil
		}
		select {
		case <-opened:
		case <-s.life.Done():
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timeout.C:
			return nil, fmt.Errorf("%w from any server for %v", errNoAnswer, limit)
		}
	}
}

// answers are the errors with which ZooKeeper refuses a request. After any other error the request may
// have taken effect, unless the client had no connection to send it: zk.ErrNoServer.
var answers = []error{
	zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals,
	zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrBadArguments, zk.ErrInvalidPath,
}

// answered reports whether err is an answer of ZooKeeper.
func answered(err error) bool {
	return err == nil || errors.Is(err, errAgain) || slices.ContainsFunc(answers, func(answer error) bool { return errors.Is(err, answer) })
}

// persist repeats a request until ZooKeeper has answered it, the session has expired, or ctx ends.
func (x *session) persist(ctx context.Context, request func() error) error {
	return x.store.persist(ctx, x.life, request)
}

// persist repeats a request until ZooKeeper has answered it, life is over, or ctx ends.
func (s *Store) persist(ctx, life context.Context, request func() error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, s.ttl/12) {
		err := s.call(request)
		switch {
		case s.life.Err() != nil:
			return ErrClosed
		case life.Err() != nil:
			return errAgain
		case answered(err):
			return err
		}
		select {
		case <-time.After(pause):
		case <-life.Done():
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNoAnswer, err)
		}
	}
}

// await runs f in the background, and returns its result, or the error of ctx if that ends first.
func (s *Store) await(ctx context.Context, f func() error) error {
	result := make(chan error, 1)
	s.mu.Lock()
	open := s.background(func() { result <- f() })
	s.mu.Unlock()
	if !open {
		return ErrClosed
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

package zklock

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"
)

// await waits until a node is deleted, or released.
func (n *node) await(ctx context.Context, before string) error {
	w := n.watch(before)
	select {
	case <-w.over:
		if n.passed = w.passed == n; n.passed {
			n.sent = w.sent
		}
		n.first = w.released || w.deleted && n.second
		return w.err
	case <-n.session.life.Done():
		return errAgain
	case <-ctx.Done():
		return left(ctx)
	}
}

// watch is a watch of a node. All attempts of a Store that wait for the node share it: the client
// cannot remove a watch, and a waiter that leaves would leave one more each time. A node of this Store has one that is not
// set in ZooKeeper: the Store knows when it deletes the node.
//
// The fields are guarded by the mutex until over is closed.
type watch struct {
	over     chan struct{} // closed when the node is deleted, or written, or the watch could not be set
	deleted  bool
	released bool  // the node held the key: none is in front of the next one
	err      error // why the watch could not be set

	own    bool      // the node is one of this Store
	held   bool      // by a lease
	next   *node     // the node of this Store that is directly behind; it may have left
	passed *node     // the node to which the key was passed
	sent   time.Time // when the request for that was sent
}

// watch sets a watch, unless there is one. A node that does not exist gets none: it would stay for ever.
func (n *node) watch(path string) *watch {
	s := n.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.watches[path]; w != nil {
		if w.own {
			w.next = n
		}
		return w
	}
	w := &watch{over: make(chan struct{})}
	set := func() {
		var event <-chan zk.Event
		err := n.session.persist(s.life, func() (err error) {
			_, _, event, err = s.conn.GetW(path)
			return err
		})
		switch {
		case err == nil:
			is := (<-event).Type // another one when the session has expired, or the client is closed
			w.deleted, w.released = is == zk.EventNodeDeleted, is == zk.EventNodeDataChanged
		case !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, errAgain):
			w.err = err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, path)
		close(w.over)
	}
	s.watches[path] = w
	if !s.background(set) {
		w.err = ErrClosed
		close(w.over)
	}
	return w
}

// follow makes the node known in this Store. It sets before if the Store has created the node directly before n, and
// not released it: a waiter waits for that one without a list of the queue.
func (n *node) follow() {
	s := n.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if path.Dir(s.last) == n.queue && sequence(s.last)+1 == sequence(n.path) {
		n.before = s.last
	}
	s.last = n.path
	s.watches[n.path] = &watch{own: true, over: make(chan struct{})}
}

// behind reports whether n holds the key, and returns the waiter to which it can be passed; nil: none.
func (n *node) behind() (held bool, next *node) {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	if w := n.store.watches[n.path]; w != nil && w.held {
		return true, w.next
	}
	return false, nil
}

// deleted ends the wait for a node of this Store. The caller holds the mutex.
func (s *Store) deleted(path string, passed *node, sent time.Time) {
	if w := s.watches[path]; w != nil && w.own {
		w.deleted, w.released, w.passed, w.sent = true, w.held, passed, sent
		delete(s.watches, path)
		close(w.over)
	}
}

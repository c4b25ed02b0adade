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
	s := n.store
	s.mu.Lock()
	var over chan struct{}
	var w *watch
	own := s.nodes[before]
	if own != nil {
		own.behind, over = n, own.gone
	} else {
		w = n.watch(before)
		over = w.over
	}
	s.mu.Unlock()
	select {
	case <-over:
	case <-n.session.life.Done():
		return errAgain
	case <-ctx.Done():
		return left(ctx)
	}
	if own != nil {
		n.first = own.released
		return nil
	}
	n.first = w.released || w.deleted && n.second
	return w.err
}

// watch is a watch of a node of another Store. All attempts that wait for the node share it: the client
// cannot remove a watch, and a waiter that leaves would leave one more each time.
type watch struct {
	over     chan struct{} // closed when the node is deleted, or written, or the watch could not be set
	deleted  bool
	released bool  // it was written: it held the key, and none is in front of the next one
	err      error // why the watch could not be set
}

// watch sets a watch, unless there is one. A node that does not exist gets none: it would stay for ever. The caller
// holds the mutex.
func (n *node) watch(path string) *watch {
	s := n.store
	if w := s.watches[path]; w != nil {
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
	n.gone = make(chan struct{})
	s.nodes[n.path] = n
}

// forget ends the wait for a node that is deleted. If it was released, it may have been passed to the next one, by a request
// that was sent at that time.
func (s *Store) forget(n *node, released bool, next *node, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes[n.path] != n { // it is not known yet, or not any more
		return
	}
	if n.released = released; released && next != nil {
		next.passed, next.sent = true, sent
	}
	delete(s.nodes, n.path)
	close(n.gone)
}

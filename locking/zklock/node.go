// SPDX-License-Identifier: MIT

package zklock

import (
	"cmp"
	"context"
	"errors"
	"math"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"shop/locking"
	"shop/locking/driver"
)

// node is an ephemeral sequential node in the queue of a key: OWNER-SEQUENCE.
type node struct {
	*locks
	owner, queue string

	mu       sync.Mutex // of one request of its owner at a time
	session  *session   // in which it was created; nil: it was not
	path     string     // empty: not created, or not known
	lost     bool       // an answer to a request that creates it was lost
	deleting bool       // … or to one that deletes it
	fence    int64
	sent     time.Time // when a request was sent after which the leader had the node
	missing  bool      // the queue does not exist

	queued  atomic.Bool // it waits for another
	granted int64       // its fence, guarded by the mutex of locks; 0: it is not the first
}

// enter creates the node, or finds it, and returns nil when it is the first.
func (n *node) enter(ctx context.Context, wait bool) error {
	x, err := n.ready(ctx)
	if err != nil {
		return err
	}
	if n.session != nil && n.session != x { // expired. A request that had to wait was sent in the next session
		n.path, n.lost, n.fence = "", true, 0
	}
	n.session = x
	if n.lost && n.path == "" {
		if err := n.find(); err != nil {
			return err
		}
	}
	alone := false
	if n.path == "" {
		if !wait {
			if queue, err := n.list(); err != nil || len(queue) > 0 {
				return cmp.Or(classify(err), locking.ErrBusy)
			}
		}
		if alone, err = n.create(); err != nil {
			return err
		}
	} else if n.fence == 0 {
		if err := n.readFence(); err != nil {
			return err
		}
	}
	if sequence(n.path) == math.MaxInt32 {
		return n.leave(ErrFull)
	}
	if !alone {
		if err := n.await(ctx, wait); err != nil {
			return err
		}
	}
	if x.over() {
		return driver.Anew(errSession)
	}
	n.locks.mu.Lock()
	n.granted = n.fence
	n.locks.mu.Unlock()
	return nil
}

// leave removes the node, and returns why as a refusal.
func (n *node) leave(why error) error {
	if err := n.remove(); err != nil && !errors.Is(err, locking.ErrLost) {
		return err
	}
	return driver.Refused(why)
}

// create creates the node. alone: no other was in the queue.
func (n *node) create() (alone bool, err error) {
	// The same transaction writes the queue's node, whose new state is in the answer: the id of the
	// transaction, and the number of nodes. The answer to a creation alone has neither.
	var results []zk.MultiResponse
	for {
		if n.missing {
			if err := n.createQueue(); err != nil {
				return false, classify(err)
			}
		}
		n.sent = time.Now()
		err = n.call(func() (err error) {
			results, err = n.conn.Multi(
				&zk.CreateRequest{Path: n.queue + "/" + n.owner + "-", Acl: n.acl, Flags: zk.FlagEphemeralSequential},
				&zk.SetDataRequest{Path: n.queue, Version: -1})
			return err
		})
		if n.missing = errors.Is(err, zk.ErrNoNode); !n.missing {
			break
		}
	}
	if err != nil {
		err = classify(err)
		n.lost = n.lost || errors.Is(err, errNoAnswer)
		return false, err
	}
	queue := results[1].Stat
	n.path, n.fence, n.lost = results[0].String, queue.Mzxid, false
	return queue.NumChildren == 1, nil
}

// createQueue creates the queue's node. It is a container: ZooKeeper deletes it when it was
// empty for a while, at any moment.
func (n *node) createQueue() error {
	return n.call(func() error {
		_, err := n.conn.CreateContainer(n.queue, nil, zk.FlagContainer, n.acl)
		switch {
		case errors.Is(err, zk.ErrNodeExists):
			return nil
		case errors.Is(err, zk.ErrNoNode): // an operator has deleted the prefix
			return n.makePrefix()
		}
		return err
	})
}

// find sets the path to that of a node which an unanswered request has created. If there is none,
// that request has no effect later either: ZooKeeper closes the old connection of a session, and
// refuses its requests through another member (session moved). Sync makes the member read all
// that the leader has committed.
func (n *node) find() error {
	if err := n.call(func() error { _, err := n.conn.Sync(n.queue); return err }); err != nil {
		return classify(err)
	}
	names, err := n.list()
	for _, name := range names {
		if strings.HasPrefix(name, n.owner+"-") {
			n.path = n.queue + "/" + name
		}
	}
	if err == nil {
		n.lost = false
	}
	return classify(err)
}

// readFence reads the id of the transaction that has created the node. A member that is behind may
// still show the node of a session that has expired.
func (n *node) readFence() error {
	var exists bool
	var stat *zk.Stat
	sent := time.Now()
	err := n.call(func() (err error) { exists, stat, err = n.conn.Exists(n.path); return err })
	if err != nil {
		return classify(err)
	}
	if !exists || stat.EphemeralOwner != n.session.id {
		n.path, n.lost = "", true
		return driver.Again(errSession)
	}
	n.fence, n.sent = stat.Czxid, sent.Add(-n.ttl) // await asks the leader
	return nil
}

// list returns the names in the queue.
func (n *node) list() (names []string, err error) {
	err = n.call(func() (err error) { names, _, err = n.conn.Children(n.queue); return err })
	if n.missing = errors.Is(err, zk.ErrNoNode); n.missing {
		return nil, nil
	}
	return names, err
}

// await waits until the node is the first in its queue, as long as its session lives, whether ZooKeeper answers or not.
func (n *node) await(ctx context.Context, wait bool) error {
	for {
		before, err := n.predecessor()
		switch {
		case err != nil:
		case before == "":
			if time.Until(n.sent.Add(n.trust())) > n.ttl/3 {
				return nil
			}
			if n.sent, err = n.check(n.path); err == nil {
				return nil
			}
			if errors.Is(err, zk.ErrNoNode) {
				err = errGone
			}
		case !wait:
			return n.leave(locking.ErrBusy)
		default:
			n.queued.Store(true)
			err = n.watch(ctx, before)
		}
		switch {
		case errors.Is(err, errGone):
			n.path, n.fence = "", 0
			return driver.Anew(err)
		case n.session.over():
			return driver.Anew(errSession)
		case err != nil && !wait:
			return classify(err)
		case ctx.Err() != nil:
			return locking.ErrBusy
		case err != nil && !errors.Is(classify(err), errNoAnswer):
			return classify(err)
		case err != nil:
			driver.Pause(ctx, n.ttl/24)
		}
	}
}

// errGone is the error of a waiter whose node an operator has deleted.
var errGone = errors.New("the node in the queue is gone")

// predecessor returns the path of the node directly before n; empty: n is the first. The order is
// that of the sequence numbers: the names begin with the owners.
func (n *node) predecessor() (before string, err error) {
	names, err := n.list()
	if err != nil {
		return "", err
	}
	mine, found, last := sequence(n.path), false, int64(-1)
	for _, name := range names {
		switch at := sequence(name); {
		case name == path.Base(n.path):
			found = true
		case 0 <= at && at < mine && at > last:
			before, last = n.queue+"/"+name, at
		}
	}
	if !found {
		return "", errGone
	}
	return before, nil
}

// sequence returns the number at the end of a node's name; -1: there is none.
func sequence(name string) int64 {
	at, err := strconv.ParseInt(name[strings.LastIndexByte(name, '-')+1:], 10, 64)
	if err != nil {
		return -1
	}
	return at
}

// watch waits until a node has changed, or the session is over. All waiters for a node share its watch: the client
// cannot remove one, and a waiter that leaves would leave one more each time. A node that does not exist gets none: it would
// stay for ever.
func (n *node) watch(ctx context.Context, path string) error {
	n.locks.mu.Lock()
	changed := n.watches[path]
	n.locks.mu.Unlock()
	if changed == nil {
		var event <-chan zk.Event
		err := n.call(func() (err error) { _, _, event, err = n.conn.GetW(path); return err })
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		changed = n.share(path, event)
	}
	select {
	case <-changed:
	case <-n.session.life.Done():
	case <-ctx.Done():
	}
	return nil
}

func (n *node) share(path string, event <-chan zk.Event) chan struct{} {
	d, changed := n.locks, make(chan struct{})
	d.mu.Lock()
	d.watches[path] = changed
	d.mu.Unlock()
	d.watching.Add(1)
	d.background(func() {
		defer d.watching.Add(-1)
		select {
		case <-event: // also when the session has expired, or the client is closed
		case <-d.life.Done():
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.watches[path] == changed {
			delete(d.watches, path)
		}
		close(changed)
	})
	return changed
}

// check makes the leader check that the node exists. It returns when the request was sent. A read
// would not do: a member that has lost the leader answers it, while the session expires.
func (n *node) check(name string) (sent time.Time, err error) {
	sent = time.Now()
	return sent, n.call(func() error {
		_, err := n.conn.Multi(&zk.CheckVersionRequest{Path: name, Version: -1})
		return err
	})
}

// remove deletes the node, whatever session is open now. locking.ErrLost: it was gone before.
func (n *node) remove() error {
	if n.path == "" && n.lost {
		if err := n.find(); err != nil {
			return err
		}
	}
	if n.path == "" {
		n.forget(n)
		return nil
	}
	err := n.call(func() error { return n.conn.Delete(n.path, -1) })
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode):
		was := n.deleting || err == nil
		n.path, n.lost = "", false
		n.forget(n)
		if !was {
			return locking.ErrLost
		}
		return nil
	}
	if err = classify(err); errors.Is(err, errNoAnswer) {
		n.deleting = true
	}
	return err
}

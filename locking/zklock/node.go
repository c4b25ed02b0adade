package zklock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"shop/locking"
)

// node is an ephemeral sequential node in the queue of a key, under one session. Its name is
// OWNER-SEQUENCE. One goroutine at a time changes it, until it is granted.
type node struct {
	store   *Store
	session *session
	key     string
	queue   string
	owner   string // new for each node
	path    string // empty: not created, or not known
	missing bool   // the queue does not exist
	lost    bool   // the answer to a request that creates the node was lost
	sent    time.Time
	fence   int64
	before  string // the path of the node directly before; empty: not known
	alone   bool   // no other was in the queue when it was created
	second  bool   // only the node directly before was in front
	first   bool   // none is in front, since that one was released, or was the only one
	passed  bool   // the transaction that deleted that one has checked that this one exists

	// Guarded by the Store's mutex, once other goroutines know the node:

	lease    locking.Lease // once it is granted
	timer    *time.Timer   // frees the key at Until
	behind   *node         // the node of this Store that is directly behind; it may have left
	gone     chan struct{} // closed when the node is deleted
	released bool          // this Store has deleted it, and it held the key
}

// create creates the node. After an unanswered request it looks for the node first: a second one
// would queue behind it.
func (n *node) create(ctx context.Context) error {
	s := n.store
	err := n.session.persist(ctx, func() error {
		if n.lost {
			if err := n.find(); err != nil || n.path != "" {
				return err
			}
		}
		for {
			if n.missing {
				if err := n.createQueue(); err != nil {
					return err
				}
			}
			n.sent = time.Now()
			// The same transaction writes the queue's node, whose new state is in the answer: the id of the
			// transaction, and the number of nodes. The answer to a creation alone has neither.
			results, err := s.conn.Multi(
				&zk.CreateRequest{Path: n.queue + "/" + n.owner + "-", Acl: s.acl, Flags: zk.FlagEphemeralSequential},
				&zk.SetDataRequest{Path: n.queue, Version: -1})
			if n.missing = errors.Is(err, zk.ErrNoNode); n.missing {
				continue
			}
			if err == nil {
				queue := results[1].Stat
				n.path, n.fence, n.alone = results[0].String, queue.Mzxid, queue.NumChildren == 1
			}
			n.lost = !answered(err) && !errors.Is(err, zk.ErrNoServer)
			return err
		}
	})
	if err == nil && sequence(n.path) == math.MaxInt32 {
		return ErrFull
	}
	return err
}

// createQueue creates the queue's node. It is a container: ZooKeeper deletes it when it was
// empty for a while, at any moment.
func (n *node) createQueue() error {
	s := n.store
	_, err := s.conn.CreateContainer(n.queue, nil, zk.FlagContainer, s.acl)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode): // an operator has deleted the prefix
		return s.makePrefix()
	}
	return err
}

// find sets the path to that of a node which an unanswered request has created. If there is none,
// that request has no effect later either: ZooKeeper closes the old connection of a session, and
// refuses its requests through another member (session moved). Sync makes the member read all
// that the leader has committed.
func (n *node) find() error {
	if _, err := n.store.conn.Sync(n.queue); err != nil {
		return err
	}
	names, _, err := n.store.conn.Children(n.queue)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	for _, name := range names {
		if strings.HasPrefix(name, n.owner) {
			n.path = n.queue + "/" + name
		}
	}
	return err
}

// readFence reads the id of the transaction that has created the node. A member that is behind may
// still show the node of a session that has expired.
func (n *node) readFence(ctx context.Context) error {
	return n.session.persist(ctx, func() error {
		exists, stat, err := n.store.conn.Exists(n.path)
		if err != nil {
			return err
		}
		if !exists || stat.EphemeralOwner != n.session.id {
			return errAgain
		}
		n.fence = stat.Czxid
		return nil
	})
}

// list returns the names in the queue.
func (n *node) list(ctx context.Context) (names []string, err error) {
	err = n.session.persist(ctx, func() (err error) {
		names, _, err = n.store.conn.Children(n.queue)
		return err
	})
	if n.missing = errors.Is(err, zk.ErrNoNode); n.missing {
		return nil, nil
	}
	return names, err
}

// predecessor returns the path of the node directly before n; empty: n is the first. The order is
// that of the sequence numbers: the names begin with the owners.
func (n *node) predecessor(ctx context.Context) (before string, err error) {
	switch {
	case n.passed:
		return "", nil
	case n.first:
		return "", n.readFence(ctx) // it may be gone
	}
	if before, n.before = n.before, ""; before != "" {
		return before, nil
	}
	names, err := n.list(ctx)
	if err != nil {
		return "", err
	}
	mine, found, last, front := sequence(n.path), false, int64(-1), 0
	for _, name := range names {
		switch at := sequence(name); {
		case name == path.Base(n.path):
			found = true
		case 0 <= at && at < mine:
			front++
			if at > last {
				before, last = n.queue+"/"+name, at
			}
		}
	}
	n.second = front == 1
	if !found {
		return "", errAgain
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

// confirm makes sure that at least a third of the TTL is left of the trust.
func (n *node) confirm(ctx context.Context) error {
	if time.Until(n.until()) > n.store.ttl/3 {
		return nil
	}
	err := n.session.persist(ctx, func() (err error) {
		n.sent, err = n.check()
		return err
	})
	if isGone(err) {
		return errAgain
	}
	return err
}

// check makes the leader check that the node exists. It returns when the request was sent. A read
// would not do: a member that has lost the leader answers it, while the session expires.
func (n *node) check() (sent time.Time, err error) {
	sent = time.Now()
	_, err = n.store.conn.Multi(n.exists())
	return sent, err
}

// exists is the part of a transaction that fails if the node is gone, or was written: for a waiter of another Store
// that is a release.
func (n *node) exists() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: n.path, Version: 0}
}

// isGone reports whether err is an answer of exists.
func isGone(err error) bool { return errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) }

// until returns until when the node is trusted to exist.
func (n *node) until() time.Time { return n.sent.Add(n.trust()) }

// trust is half the session's timeout: see "Until" in the package's comment.
func (n *node) trust() time.Duration { return min(n.session.timeout, n.store.ttl) / 2 }

// remove deletes the node. It repeats the request until ZooKeeper has done it, even if the session has
// expired: the client sends a request that had to wait in whatever session is open then, so that the
// node may be in the next one. zk.ErrNoNode: it was gone before.
//
// If the node held the key, and a waiter of this Store is directly behind it, the same transaction checks that the
// waiter's node exists. Then the key is passed to the waiter, which sends no request. Otherwise the
// transaction writes the node before it deletes it. A watch ends with the first change: for the waiter of another Store
// a node that is written has released the key, and one that is only deleted may have left the queue.
func (n *node) remove() error {
	s := n.store
	s.mu.Lock()
	held, next := n.lease.Owner != "", (*node)(nil)
	if held {
		next = n.behind
	}
	s.mu.Unlock()
	sent, deleted, unanswered := time.Time{}, false, false
	err := s.persist(context.Background(), s.life, func() error {
		if n.path == "" {
			if err := n.find(); err != nil || n.path == "" {
				return err
			}
		}
		err := zk.ErrNoNode
		if next != nil {
			sent = time.Now()
			_, err = s.conn.Multi(&zk.DeleteRequest{Path: n.path, Version: -1}, next.exists())
		}
		if isGone(err) { // one or the other
			next = nil
			if held {
				_, err = s.conn.Multi(&zk.SetDataRequest{Path: n.path, Version: -1}, &zk.DeleteRequest{Path: n.path, Version: -1})
			} else {
				err = s.conn.Delete(n.path, -1)
			}
		}
		switch deleted = err == nil; {
		case errors.Is(err, zk.ErrNoNode) && unanswered:
			return nil
		case errors.Is(err, zk.ErrNoNode) || deleted:
			return err
		case answered(err):
			return fmt.Errorf("refused: %v", err) // is no answer to persist
		}
		unanswered = true
		return err
	})
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		s.forget(n, held && deleted, next, sent)
	}
	return err
}

// free removes the node in the background. It waits for that as long as ctx, and half the TTL.
func (n *node) free(ctx context.Context) error {
	if n.path == "" && !n.lost {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.store.ttl/2)
	defer cancel()
	return n.store.await(ctx, n.remove)
}

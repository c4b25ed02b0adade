// SPDX-License-Identifier: MIT

package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"shop/locking"
	"shop/locking/driver"
)

// locks is a driver.Driver.
type locks struct {
	*client

	mu      sync.Mutex
	nodes   map[string]*node         // by owner, until Free has removed what it has
	watches map[string]chan struct{} // by the path of a node: closed when it has changed
}

// ErrFull reports that ZooKeeper has used all 2^31 sequence numbers of a key's queue. It starts
// again when the queue was empty for about a minute.
var ErrFull = errors.New("zklock: all sequence numbers of the key are used: they start again when the key was free for a minute")

// Take creates a node in the queue of the key. With wait it returns when that is the first. Without wait it enters only an empty queue.
func (d *locks) Take(ctx context.Context, keys []string, owner string, wait bool) (driver.Grant, error) {
	n := d.nodeOf(owner, keys[0])
	grant, err := await(ctx, d.client, func() (driver.Grant, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if ctx.Err() != nil { // Free may have been here
			return driver.Grant{}, ctx.Err()
		}
		switch err := n.enter(ctx, wait); {
		case err == nil:
		case n.path == "" && !n.lost:
			d.forget(n)
			return driver.Grant{}, err
		case errors.Is(err, locking.ErrBusy), errors.Is(err, locking.ErrClosed), errors.Is(err, errSession):
			return driver.Grant{}, err
		default: // whatever this request was answered, its node may be there
			return driver.Grant{}, fmt.Errorf("%w: %v", errNoAnswer, err)
		}
		return driver.Grant{Fence: locking.Fence(n.fence), Until: n.sent.Add(d.trust())}, nil
	})
	if err != nil && ctx.Err() != nil && n.queued.Load() {
		err = locking.ErrBusy
	}
	return grant, err
}

// Keep makes the leader check that the node exists.
func (d *locks) Keep(ctx context.Context, l locking.Lease) error {
	n := d.held(l)
	if n == nil || n.session.over() {
		return locking.ErrLost
	}
	_, err := await(ctx, d.client, func() (time.Time, error) {
		n.mu.Lock() // a Free beside it removes the node
		name := n.path
		n.mu.Unlock()
		if name == "" {
			return time.Time{}, locking.ErrLost
		}
		for {
			sent, err := n.check(name)
			if !errors.Is(classify(err), errNoAnswer) || ctx.Err() != nil || n.session.over() {
				return sent, err
			}
			if !driver.Pause(ctx, d.ttl/200) { // the connection has ended: the next one may be to another member
				return sent, err
			}
		}
	})
	if errors.Is(err, zk.ErrNoNode) {
		return locking.ErrLost
	}
	return classify(err)
}

// Free deletes the node of an owner.
func (d *locks) Free(ctx context.Context, l locking.Lease) error {
	n := d.held(l)
	if n == nil {
		return locking.ErrLost
	}
	_, err := await(ctx, d.client, func() (struct{}, error) {
		n.mu.Lock() // of a Take that is under way: what it creates is found
		defer n.mu.Unlock()
		if ctx.Err() != nil {
			return struct{}{}, ctx.Err()
		}
		return struct{}{}, n.remove()
	})
	return err
}

func (d *locks) nodeOf(owner, key string) *node {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[owner]
	if n == nil {
		n = &node{locks: d, owner: owner, queue: d.queueOf(key)}
		d.nodes[owner] = n
	}
	return n
}

// held returns the node of a lease, or of an owner (Fence 0). nil: there is none.
func (d *locks) held(l locking.Lease) *node {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[l.Owner]
	if n == nil || l.Fence != 0 && (locking.Fence(n.granted) != l.Fence || n.queue != d.queueOf(l.Keys[0])) {
		return nil
	}
	return n
}

func (d *locks) forget(n *node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.nodes, n.owner)
}

// trust is half the session's timeout: see "Until" in the package's comment.
func (c *client) trust() time.Duration { return c.ttl / 2 }

// answers are the errors with which ZooKeeper refuses a request. After any other error the request may
// have taken effect, unless the client had no connection to send it: zk.ErrNoServer.
var answers = []error{
	zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion, zk.ErrNoChildrenForEphemerals,
	zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrAuthFailed, zk.ErrBadArguments, zk.ErrInvalidPath,
}

var (
	errNoAnswer = errors.New("no answer from ZooKeeper")
	errSession  = errors.New("the session has expired")
)

// classify returns the error of a request as a driver.Driver must.
func classify(err error) error {
	if err == nil || errors.Is(err, locking.ErrClosed) {
		return err
	}
	for _, answer := range answers {
		if errors.Is(err, answer) {
			return driver.Refused(err)
		}
	}
	if errors.Is(err, zk.ErrNoServer) {
		return driver.Again(err)
	}
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}

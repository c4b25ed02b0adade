// SPDX-License-Identifier: MIT

package zklock

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"shop/locking"
	"shop/locking/driver"
)

// client has one connection to ZooKeeper, and one session, which continues on the next connection.
type client struct {
	conn   *zk.Conn
	events <-chan zk.Event // closed when the client has ended
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	hosts  hosts
	prefix string
	acl    []zk.ACL
	ttl    time.Duration

	life     context.Context // ends with Close
	end      context.CancelFunc
	work     sync.WaitGroup // all goroutines
	watching atomic.Int32   // watches that are set

	mu      sync.Mutex
	link    *link         // the last connection
	session *session      // nil: none is open
	opened  chan struct{} // closed and replaced when a session is opened
}

// session is a session of ZooKeeper, to which nodes are attached. When it has expired, the client opens another one by itself.
type session struct {
	id      int64
	timeout time.Duration   // as ZooKeeper has granted it
	life    context.Context // ends when the session has expired, or with the client
	end     context.CancelFunc
}

func (x *session) over() bool { return x.life.Err() != nil }

// identify receives the answer to each handshake, before any answer to a request on that connection.
func (c *client) identify(id int64, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session != nil && c.session.id == id {
		return
	}
	if old := c.session; old != nil { // expired, and its nodes are deleted
		c.session = nil
		old.end()
	}
	if id == 0 || c.life.Err() != nil {
		return
	}
	x := &session{id: id, timeout: timeout}
	x.life, x.end = context.WithCancel(c.life)
	c.session = x
	close(c.opened)
	c.opened = make(chan struct{})
}

// ready returns the session. It waits for one as long as for an answer.
func (c *client) ready(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, c.answerTimeout())
	defer cancel()
	for {
		c.mu.Lock()
		x, opened := c.session, c.opened
		c.mu.Unlock()
		switch {
		case c.life.Err() != nil:
			return nil, locking.ErrClosed
		case x != nil && x.timeout < c.ttl:
			return nil, driver.Refused(fmt.Errorf("%w: %v: ZooKeeper makes it %v, which must be 2 to 20 of its ticks by default", locking.ErrTTL, c.ttl, x.timeout))
		case x != nil:
			return x, nil
		}
		select {
		case <-opened:
		case <-c.life.Done():
		case <-ctx.Done():
			return nil, driver.Again(fmt.Errorf("no session with any server: %w", ctx.Err()))
		}
	}
}

// await runs f in the background, since the client's requests do not end with ctx.
func await[T any](ctx context.Context, c *client, f func() (T, error)) (result T, _ error) {
	type answer struct {
		result T
		err    error
	}
	answers := make(chan answer, 1)
	if !c.background(func() { r, err := f(); answers <- answer{r, err} }) {
		return result, locking.ErrClosed
	}
	select {
	case a := <-answers:
		return a.result, a.err
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

// background runs f in a goroutine that Close waits for. False: the client is closed.
func (c *client) background(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return false
	}
	c.work.Go(f)
	return true
}

// Close ends the session, which frees all keys, and waits for the background work.
func (c *client) Close() {
	c.mu.Lock()
	c.end() // under the mutex, as is every start of background work: after this none starts
	c.mu.Unlock()
	c.conn.Close()
	c.mu.Lock()
	l := c.link // the last: connect makes no other
	c.mu.Unlock()
	if l != nil {
		_ = l.Close() // or the client waits for its next read to time out
	}
	c.work.Wait()
	for range c.events { // until the client has ended
	}
}

// answerTimeout bounds the wait for an answer. After it the connection is closed, and the session
// continues on another one, if possible with another member.
func (c *client) answerTimeout() time.Duration { return c.ttl / 6 }

// call makes a request of the client. If it is not answered in time, the connection is closed. The client
// keeps a request while it has no connection, so the next ones are closed in time too.
func (c *client) call(request func() error) error {
	c.mu.Lock()
	l, over := c.link, false
	var limit *time.Timer
	limit = time.AfterFunc(c.answerTimeout(), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if over {
			return
		}
		go l.Close() // in TLS it may take seconds
		l = c.link
		limit.Reset(c.answerTimeout())
	})
	c.mu.Unlock()
	err := request()
	c.mu.Lock()
	defer c.mu.Unlock()
	over = true
	limit.Stop()
	return err
}

// touch sends a request every twelfth of the TTL. The member reports to the leader that the session
// is alive, and a connection without answers is detected in time.
func (c *client) touch() {
	pace := time.NewTicker(c.ttl / 12)
	defer pace.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-pace.C:
			_ = c.call(func() error {
				_, _, err := c.conn.Exists(c.prefix)
				return err
			})
		}
	}
}

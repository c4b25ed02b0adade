// SPDX-License-Identifier: MIT

package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"time"

	"github.com/go-zookeeper/zk"

	"shop/locking"
	"shop/locking/driver"
)

// Options of a Store. The zero value is usable.
type Options struct {
	// Prefix is the path below which the queues are; empty: "/locks". Stores exclude each
	// other only if they have the same Prefix.
	Prefix string
	// Dial connects to a member, for example with TLS; nil: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Login is the user and the password, "user:password", of ZooKeeper's scheme digest. Only
	// this user can then use the queues that the Store creates. Empty: every client can.
	Login string
	// Logger receives the messages of the client; nil: none.
	Logger zk.Logger
}

// startTimeout bounds the wait of New for a session.
const startTimeout = 10 * time.Second

// New makes a Store whose leases last ttl, and opens its session, so ZooKeeper must be
// available. Each server is a host:port. One Store is enough for a process: it has one connection and one session, whose
// timeout is the TTL. A TTL that ZooKeeper would change, by default to 2 to 20 of its ticks, is locking.ErrTTL.
//
// The requests for a key are granted it in the order of arrival: in this process first, then among the processes. Close ends
// the session, which frees all keys. If ZooKeeper does not answer for a second, they are free after the TTL.
func New(ctx context.Context, servers []string, ttl time.Duration, o Options) (*driver.Store, error) {
	d, err := open(ctx, servers, ttl, o)
	if err != nil {
		return nil, fmt.Errorf("zklock: %w", err)
	}
	return driver.New(d, settings(ttl))
}

// settings are those of a Store.
func settings(ttl time.Duration) driver.Options {
	return driver.Options{
		Name: "zklock", TTL: ttl, TTLMin: time.Millisecond, TTLUnit: time.Millisecond, Trust: ttl / 2,
		Limit:  ttl / 4, // longer than a connection without answers is kept: the request is repeated on the next one
		OneKey: true, Queues: true, Lasting: true,
	}
}

func open(ctx context.Context, servers []string, ttl time.Duration, o Options) (*locks, error) {
	if err := settings(ttl).Check(); err != nil || ttl > math.MaxInt32*time.Millisecond {
		return nil, cmp.Or(err, fmt.Errorf("%w: %v", locking.ErrTTL, ttl))
	}
	c := &client{dial: o.Dial, prefix: cmp.Or(o.Prefix, "/locks"), acl: zk.WorldACL(zk.PermAll), ttl: ttl, opened: make(chan struct{})}
	c.life, c.end = context.WithCancel(context.Background())
	if c.dial == nil {
		c.dial = new(net.Dialer).DialContext
	}
	logger := o.Logger
	if logger == nil {
		logger = silent{}
	}
	var err error
	c.conn, c.events, err = zk.Connect(servers, ttl, zk.WithDialer(c.connect), zk.WithHostProvider(&c.hosts),
		zk.WithLogger(logger), zk.WithLogInfo(o.Logger != nil))
	if err != nil {
		c.end()
		return nil, err
	}
	if err := c.start(ctx, o.Login); err != nil {
		c.Close()
		return nil, err
	}
	c.background(c.touch)
	return &locks{client: c, nodes: map[string]*node{}, watches: map[string]chan struct{}{}}, nil
}

// start waits for the first session, and creates the nodes above the queues.
func (c *client) start(ctx context.Context, login string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	x, err := c.ready(ctx)
	for err != nil {
		if ctx.Err() != nil || errors.Is(err, locking.ErrTTL) {
			return fmt.Errorf("open a session: %w", err)
		}
		x, err = c.ready(ctx)
	}
	if x.timeout != c.ttl {
		return fmt.Errorf("%w: %v: ZooKeeper makes it %v", locking.ErrTTL, c.ttl, x.timeout)
	}
	for {
		_, err = await(ctx, c, func() (struct{}, error) {
			return struct{}{}, c.call(func() error {
				if login != "" {
					c.acl = zk.AuthACL(zk.PermAll)
					if err := c.conn.AddAuth("digest", []byte(login)); err != nil {
						return err
					}
				}
				return c.makePrefix()
			})
		})
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !errors.Is(classify(err), errNoAnswer) {
			return fmt.Errorf("create %s: %w", c.prefix, err)
		}
		driver.Pause(ctx, c.ttl/24)
	}
}

// makePrefix creates the nodes above the queues.
func (c *client) makePrefix() error {
	for i, r := range c.prefix + "/" {
		if r != '/' || i == 0 {
			continue
		}
		if _, err := c.conn.Create(c.prefix[:i], nil, zk.FlagPersistent, c.acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// queueOf returns the path of a key's queue. The name of a node must not be "." or "..",
// and must not have a slash or a control character.
func (c *client) queueOf(key string) string { return c.prefix + "/key:" + url.PathEscape(key) }

// silent is a zk.Logger that discards the messages.
type silent struct{}

func (silent) Printf(string, ...any) {}

package zklock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"shop/locking"
)

var (
	_ locking.Store  = (*Store)(nil)
	_ locking.Waiter = (*Store)(nil)
)

// The errors of a Store, besides those of package locking.
var (
	ErrTTL    = errors.New("zklock: TTL must be whole milliseconds, and a session timeout that ZooKeeper grants (by default 2 to 20 of its ticks)")
	ErrClosed = errors.New("zklock: store is closed")
	// ErrFull reports that ZooKeeper has used all 2^31 sequence numbers of a key's queue. It starts
	// again when the queue was empty for about a minute.
	ErrFull = errors.New("zklock: all sequence numbers of the key are used: they start again when the key was free for a minute")
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

// Store keeps locks in ZooKeeper. It is safe for concurrent use, and one Store is enough for
// a process: it has one connection and one session, whose timeout is the TTL.
type Store struct {
	conn   *zk.Conn
	events <-chan zk.Event // closed when the client has ended
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	hosts  hosts
	prefix string
	acl    []zk.ACL
	ttl    time.Duration

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // all goroutines of the Store

	mu      sync.Mutex
	link    *link             // the last connection
	session *session          // nil: none is open
	opened  chan struct{}     // closed and replaced when a session is opened
	leases  map[string]*node  // by owner
	last    string            // the path of the node that was created last
	nodes   map[string]*node  // those of this Store, by path
	watches map[string]*watch // of nodes of others, by path
}

// startTimeout bounds the wait of New for a session.
const startTimeout = 10 * time.Second

// New makes a Store whose leases last ttl, and opens its session, so ZooKeeper must be
// available. Each server is a host:port. A TTL that ZooKeeper would change is ErrTTL.
func New(ctx context.Context, servers []string, ttl time.Duration, o Options) (*Store, error) {
	if ttl <= 0 || ttl%time.Millisecond != 0 || ttl > math.MaxInt32*time.Millisecond {
		return nil, fmt.Errorf("%w: %v", ErrTTL, ttl)
	}
	s := &Store{
		dial: o.Dial, prefix: o.Prefix, acl: zk.WorldACL(zk.PermAll), ttl: ttl,
		opened: make(chan struct{}), leases: map[string]*node{}, nodes: map[string]*node{}, watches: map[string]*watch{},
	}
	s.life, s.end = context.WithCancel(context.Background())
	if s.prefix == "" {
		s.prefix = "/locks"
	}
	if s.dial == nil {
		s.dial = new(net.Dialer).DialContext
	}
	logger := o.Logger
	if logger == nil {
		logger = silent{}
	}
	var err error
	s.conn, s.events, err = zk.Connect(servers, ttl, zk.WithDialer(s.connect), zk.WithHostProvider(&s.hosts),
		zk.WithLogger(logger), zk.WithLogInfo(o.Logger != nil))
	if err != nil {
		s.end()
		return nil, fmt.Errorf("zklock: %w", err)
	}
	if err := s.open(ctx, o.Login); err != nil {
		s.Close()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.background(s.touch)
	return s, nil
}

// open waits for the first session, and creates the nodes above the queues.
func (s *Store) open(ctx context.Context, login string) error {
	x, err := s.ready(ctx, startTimeout)
	if err != nil {
		return fmt.Errorf("zklock: open a session: %w", err)
	}
	if x.timeout != s.ttl {
		return fmt.Errorf("%w: %v: ZooKeeper makes it %v", ErrTTL, s.ttl, x.timeout)
	}
	err = s.await(ctx, func() error {
		return x.persist(ctx, func() error {
			if login != "" {
				s.acl = zk.AuthACL(zk.PermAll)
				if err := s.conn.AddAuth("digest", []byte(login)); err != nil {
					return err
				}
			}
			return s.makePrefix()
		})
	})
	if err != nil {
		return fmt.Errorf("zklock: create %s: %w", s.prefix, err)
	}
	return nil
}

// makePrefix creates the nodes above the queues.
func (s *Store) makePrefix() error {
	for i, c := range s.prefix + "/" {
		if c != '/' || i == 0 {
			continue
		}
		if _, err := s.conn.Create(s.prefix[:i], nil, zk.FlagPersistent, s.acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// Close ends the session, which frees all keys, and waits for the background work. If
// ZooKeeper does not answer for a second, the keys are free after the TTL.
func (s *Store) Close() {
	s.mu.Lock()
	s.end() // under the mutex, as is every start of background work: after this none starts
	s.mu.Unlock()
	s.conn.Close()
	s.mu.Lock()
	l := s.link // the last: connect makes no other
	s.mu.Unlock()
	if l != nil {
		_ = l.Close() // or the client waits for its next read to time out
	}
	s.work.Wait()
	for range s.events { // until the client has ended
	}
}

// background runs f in a goroutine that Close waits for. False: the Store is closed. The
// caller holds the mutex.
func (s *Store) background(f func()) bool {
	if s.life.Err() != nil {
		return false
	}
	s.work.Go(f)
	return true
}

// queueOf returns the path of a key's queue. The name of a node must not be "." or "..",
// and must not have a slash or a control character.
func (s *Store) queueOf(key string) string { return s.prefix + "/key:" + url.PathEscape(key) }

// describe adds to an error what failed.
func describe(err *error, operation string, keys []string) {
	if *err != nil {
		*err = fmt.Errorf("zklock: %s %q: %w", operation, keys, *err)
	}
}

// silent is a zk.Logger that discards the messages.
type silent struct{}

func (silent) Printf(string, ...any) {}

package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

var (
	_ locking.Store  = (*Store)(nil)
	_ locking.Waiter = (*Store)(nil)
)

// KeysMax is how many keys a lease may have. etcd takes 128 operations in a
// transaction unless --max-txn-ops sets another limit, and to wait takes two for each
// key.
const KeysMax = 128 / 2

var (
	// ErrTTL tells that etcd would give another TTL than the one that was asked for.
	ErrTTL = errors.New("etcdlock: TTL must be whole seconds, and at least one and a half of etcd's election timeout (2s with its defaults)")
	// ErrTooManyKeys tells that a lease of more than KeysMax keys was asked for.
	ErrTooManyKeys = fmt.Errorf("etcdlock: more than %d keys in one lease", KeysMax)
	// ErrClosed is returned by a Store after its Close.
	ErrClosed = errors.New("etcdlock: store is closed")
)

// Config is what a client for locks needs; add TLS, a user, a Logger:
//
//	client, err := clientv3.New(etcdlock.Config("127.0.0.1:2379"))
//
// A connection that died in silence is given up after 15 s: a watch would wait
// on it for ever. (Pings more often than every 10 s are not sent by gRPC, and
// more often than every 5 s not taken by etcd.) The client does not connect yet.
func Config(endpoints ...string) clientv3.Config {
	return clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          2 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
	}
}

// Options of a Store. The zero value is usable.
type Options struct {
	// Prefix begins every name in etcd; empty: "lock". Stores exclude each other
	// only if they have the same one.
	Prefix string
}

// Store keeps locks in etcd. It is safe for use by many goroutines, and one is
// enough for a process: its waiters stand in one queue, and are kept alive by one
// request. The client stays the caller's: Close does not close it.
type Store struct {
	client *clientv3.Client
	prefix string
	epoch  epoch
	ttl    time.Duration
	trust  time.Duration // of the TTL, how much to believe in

	queue locking.Queue[string] // of this process: the first ticket goes to etcd, until it has given the keys back

	life context.Context // ends with Close
	end  context.CancelCauseFunc
	work sync.WaitGroup // all goroutines of the Store

	mu      sync.Mutex
	session *session          // what goes to etcd next goes on it; nil: there is none
	down    error             // why there is none, if it was tried
	tried   chan struct{}     // closed, and replaced, at the end of each try to open a session
	grants  map[string]*grant // by owner
	nonces  []string          // free for the next attempts
}

// New makes a Store whose leases last ttl, and opens its session: etcd has to be
// there. A TTL that etcd would round, or raise to its minimum, is ErrTTL.
func New(ctx context.Context, client *clientv3.Client, ttl time.Duration, o Options) (*Store, error) {
	if ttl < time.Second || ttl%time.Second != 0 {
		return nil, fmt.Errorf("%w: %v", ErrTTL, ttl)
	}
	prefix, err := checkPrefix(o.Prefix)
	if err != nil {
		return nil, err
	}
	s := &Store{
		client: client, prefix: prefix, ttl: ttl, trust: ttl - margin(ttl),
		tried: make(chan struct{}), grants: map[string]*grant{},
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	if s.epoch, err = s.findEpoch(ctx); err != nil {
		return nil, fmt.Errorf("etcdlock: find the epoch: %w", err)
	}
	first, err := s.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("etcdlock: open a session: %w", err)
	}
	s.work.Go(func() { s.run(first) })
	return s, nil
}

// margin is what Until leaves of a TTL for clocks that run at different rates.
func margin(ttl time.Duration) time.Duration { return ttl / 100 }

// Close ends the session, refuses what comes after, and waits for the background
// work, at most as long as for one answer. If a Lease is still held, its keys
// are left to the TTL; else nothing of this Store stays in etcd.
func (s *Store) Close() {
	s.mu.Lock()
	if s.session != nil {
		s.session.kill(ErrClosed)
	}
	s.end(ErrClosed) // under the mutex, like all that starts work: after this, none does
	s.mu.Unlock()
	s.work.Wait()
}

// queueOf is the part that the names of all waiters for a key have in common:
//
//	PREFIX/LENGTH:KEY/
//
// The length comes first, so that no queue's name begins another's, whatever
// bytes a key holds: "a" is 1:a/ and "a/b" is 3:a/b/. No other name goes on with a digit.
func (s *Store) queueOf(key string) string {
	return s.prefix + "/" + strconv.Itoa(len(key)) + ":" + key + "/"
}

// fencingKey is the name of what stops the attempt of a nonce: see attempt.remove.
func (s *Store) fencingKey(nonce string) string { return s.prefix + "/fenced:" + nonce }

// epochKey is the name of the epoch's value.
func epochKey(prefix string) string { return prefix + "/epoch" }

// checkPrefix fills in the prefix, and refuses a colon: the first one in a name
// has to be ours.
func checkPrefix(prefix string) (string, error) {
	if strings.ContainsAny(prefix, ":\x00") {
		return "", fmt.Errorf("etcdlock: prefix %q has a colon, or NUL: a colon marks the length of a key", prefix)
	}
	return cmp.Or(prefix, "lock"), nil
}

// checkKeys puts keys in order, and refuses what etcd would refuse.
func checkKeys(keys []string) ([]string, error) {
	sorted, err := locking.SortedKeys(keys)
	if err == nil && len(sorted) > KeysMax {
		err = fmt.Errorf("%w: %d", ErrTooManyKeys, len(sorted))
	}
	return sorted, err
}

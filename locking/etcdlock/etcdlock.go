package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

var (
	_ locking.Store  = (*Store)(nil)
	_ locking.Waiter = (*Store)(nil)
)

// ErrClosed is returned by a Store after its Close, and after that of its client.
var ErrClosed = errors.New("etcdlock: the store is closed, or its client")

// Store keeps locks in etcd. It is safe for concurrent use, and one Store is enough for
// a process: its waiters share one queue for each key, and one keep-alive. The caller
// owns the client: Close does not close it.
type Store struct {
	client *clientv3.Client
	prefix string
	ttl    time.Duration
	trust  time.Duration // the TTL less a margin

	epoch     epoch
	sameEpoch clientv3.Cmp // the condition that etcd still has its value, in each transaction: it costs no request

	queue locking.Queue[string] // of this process: the first ticket is in etcd, until it has freed the keys

	life context.Context // ends with Close
	end  context.CancelCauseFunc
	work sync.WaitGroup // all goroutines of the Store

	unwatch func() bool // the client: its Close is the end of the Store

	mu      sync.Mutex
	session *session            // for new attempts; nil: none is open
	down    error               // why none is open, if etcd did not answer or refused
	tried   chan struct{}       // closed and replaced after each attempt to open a session
	grants  map[string]*grant   // by owner
	passed  map[string]*attempt // by key: what a release has passed to the first ticket
	nonces  []string            // free for the next attempts
	timer   *time.Timer         // calls expire at the first Until of grants, before, or a hundredth of the TTL later; nil: not set
	rivals  map[string]bool     // the keys that another process had, or waited for: see attempt.enter
}

// Close ends the session, refuses later requests, and waits for the background
// work, at most as long as for one answer. If a Lease is still held, its keys
// expire with the TTL; otherwise this Store leaves nothing in etcd.
func (s *Store) Close() {
	s.unwatch()
	s.mu.Lock()
	if s.session != nil && s.client.Ctx().Err() == nil {
		s.session.kill(ErrClosed)
	}
	s.end(ErrClosed) // under the mutex, as is every start of background work: after this none starts
	s.mu.Unlock()
	s.work.Wait()
}

// abort ends all work when the client is closed: such a client repeats each request until its time-out, and logs each time.
func (s *Store) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(ErrClosed)
}

// KeysMax is how many keys a lease may have. etcd accepts 128 operations in a
// transaction unless --max-txn-ops sets another limit, and Acquire needs two for each
// key.
const KeysMax = 128 / 2

// ErrTooManyKeys reports a request for more than KeysMax keys in one lease.
var ErrTooManyKeys = fmt.Errorf("etcdlock: more than %d keys in one lease", KeysMax)

// queueOf returns the prefix that the names of all waiters for a key share:
//
//	PREFIX/LENGTH:KEY/
//
// The length comes first, so that no queue's name is a prefix of another's, whatever
// bytes a key holds: "a" is 1:a/ and "a/b" is 3:a/b/. Names of other kinds have no
// digit in that position.
func (s *Store) queueOf(key string) string {
	return s.prefix + "/" + strconv.Itoa(len(key)) + ":" + key + "/"
}

// fencingKey is the name of the key that fences the attempt with this nonce: see
// attempt.remove.
func (s *Store) fencingKey(nonce string) string { return s.prefix + "/fenced:" + nonce }

// epochKey is the name of the epoch's value.
func epochKey(prefix string) string { return prefix + "/epoch" }

// checkKeys returns keys in order, or an error if etcd would refuse them.
func checkKeys(keys []string) ([]string, error) {
	sorted, err := locking.SortedKeys(keys)
	if err == nil && len(sorted) > KeysMax {
		err = fmt.Errorf("%w: %d", ErrTooManyKeys, len(sorted))
	}
	return sorted, err
}

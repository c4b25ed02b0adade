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

// KeysMax is how many keys a lease may have. etcd takes 128 operations in a
// transaction unless --max-txn-ops sets another limit, and to wait takes two for each
// key.
const KeysMax = 128 / 2

var (
	// ErrTooManyKeys tells that a lease of more than KeysMax keys was asked for.
	ErrTooManyKeys = fmt.Errorf("etcdlock: more than %d keys in one lease", KeysMax)
	// ErrClosed is returned by a Store after its Close.
	ErrClosed = errors.New("etcdlock: store is closed")
)

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

// checkKeys puts keys in order, and refuses what etcd would refuse.
func checkKeys(keys []string) ([]string, error) {
	sorted, err := locking.SortedKeys(keys)
	if err == nil && len(sorted) > KeysMax {
		err = fmt.Errorf("%w: %d", ErrTooManyKeys, len(sorted))
	}
	return sorted, err
}

package etcdlock

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

var (
	_ locking.Store  = (*Store)(nil)
	_ locking.Waiter = (*Store)(nil)
)

// ErrClosed is returned by a Store after its Close.
var ErrClosed = errors.New("etcdlock: store is closed")

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

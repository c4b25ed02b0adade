package redislock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// sweepsMax limits how many traces are removed at once. When Redis answers
// nobody, the rest is left to the TTL.
const sweepsMax = 64

// background owns the goroutines of a Store: the removal of traces, and requests
// to a silent server, for some of which nobody waits any more.
type background struct {
	life   context.Context // ends with close
	end    context.CancelFunc
	sweeps chan struct{} // a place for each removal under way

	mu     sync.Mutex // no start after close: work would not be waited for
	closed bool
	work   sync.WaitGroup
}

func newBackground() *background {
	life, end := context.WithCancel(context.Background())
	return &background{life: life, end: end, sweeps: make(chan struct{}, sweepsMax)}
}

// start runs f in a goroutine, unless the Store is closed.
func (b *background) start(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.work.Go(f)
	return true
}

func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	b.work.Wait()
}

// forget removes what owner may have taken, and returns at once. It goes on
// until the server has answered, for at most one TTL: then there is nothing
// left to remove. A request that is still on its way to the server when forget
// has its answer can leave a lock behind that nobody holds; the TTL ends that.
func (s *Store) forget(locks []string, owner string) {
	select {
	case s.background.sweeps <- struct{}{}:
	default:
		return
	}
	started := s.background.start(func() {
		s.sweep(locks, owner)
		<-s.background.sweeps
	})
	if !started {
		<-s.background.sweeps
	}
}

// noGrant is the value of no lock: whatever owner has is deleted.
const noGrant = ""

func (s *Store) sweep(locks []string, owner string) {
	ctx, cancel := context.WithTimeout(s.background.life, s.ttl)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, s.patience) {
		_, err := s.ask(ctx, s.scripts.release, locks, noGrant, owner)
		if err == nil || errors.Is(err, ErrClosed) || !sleep(ctx, pause) {
			return
		}
	}
}

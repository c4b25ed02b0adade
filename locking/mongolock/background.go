package mongolock

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/locking"
)

// sweepsMax limits how many traces are removed at once. When MongoDB answers
// nobody, the rest is left to the TTL.
const sweepsMax = 64

// background owns the goroutines of a Store: the removal of traces.
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

// start runs f in a goroutine, unless the Store is closed or there are too many.
func (b *background) start(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	select {
	case b.sweeps <- struct{}{}:
		b.work.Go(func() { f(); <-b.sweeps })
	default:
	}
}

func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	b.work.Wait()
}

// forget removes what owner may have taken, and returns at once. It goes on until
// the server has answered, for at most one TTL: then there is nothing left to
// remove. A request that is still on its way to the server when forget has its
// answer can leave a lock behind that nobody holds; the TTL ends that.
func (s *Store) forget(key, owner string) {
	s.background.start(func() {
		ctx, cancel := context.WithTimeout(s.background.life, s.ttl)
		defer cancel()
		trace := question{update: freed, filter: bson.D{{Key: "_id", Value: key}, {Key: "owner", Value: owner}}}
		for pause := time.Millisecond; ; pause = min(2*pause, s.patience) {
			_, err := s.ask(ctx, trace)
			if !errors.Is(err, locking.ErrOutcomeUnknown) || !sleep(ctx, pause) {
				return
			}
		}
	})
}

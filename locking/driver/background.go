// SPDX-License-Identifier: MIT

package driver

import (
	"context"
	"errors"
	"sync"
	"time"

	"shop/locking"
)

// freesMax limits how many owners are freed in the background at once, and ticketsMax how many where each waiter that leaves is one
// of them. When the server does not answer, all further ones are left to expire, if they do.
const (
	freesMax   = 64
	ticketsMax = 1024
)

const forever time.Duration = 1 << 62

// background is the work of a Store that no caller waits for.
type background struct {
	life context.Context // ends with Close
	end  context.CancelFunc

	mu    sync.Mutex // nothing starts after Close, which would not wait for it
	frees int
	work  sync.WaitGroup
}

// run runs f in a goroutine that close waits for. False: the Store is closed.
func (b *background) run(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed() {
		return false
	}
	b.work.Go(f)
	return true
}

func (b *background) closed() bool { return b.life.Err() != nil }

// close reports whether it was the first. It waits for the work.
func (b *background) close() (first bool) {
	b.mu.Lock()
	first = !b.closed()
	b.end()
	b.mu.Unlock()
	b.work.Wait()
	return first
}

// under returns a ctx that ends with Close too.
func (b *background) under(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.life, func() { cancel(locking.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// free frees what an owner has until the server has answered, for at most one TTL: after that nothing is left, unless it is
// Lasting. A request that arrives later takes the keys for one TTL at most. Then it calls done.
// False: it has not begun.
func (b *background) free(s *Store, l locking.Lease, done func()) (begun bool) {
	b.mu.Lock()
	most := freesMax
	if s.o.Tickets {
		most = ticketsMax
	}
	full := b.frees >= most && s.o.TTL > 0 && !s.o.Lasting
	if !full {
		b.frees++
	}
	b.mu.Unlock()
	if full {
		return false
	}
	ended := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.frees--
	}
	started := b.run(func() {
		defer ended()
		limit := max(s.o.TTL, 2*s.o.Limit)
		if s.o.Lasting {
			limit = forever
		}
		ctx, cancel := context.WithTimeout(b.life, limit)
		defer cancel()
		for rest := time.Millisecond; !b.freed(ctx, s, l); rest = min(2*rest, s.o.Limit) {
			if !Pause(ctx, rest) {
				return
			}
		}
		done()
	})
	if !started {
		ended()
	}
	return started
}

// join counts a caller among the work that close waits for. False: the Store is closed.
func (b *background) join() (leave func(), open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed() {
		return nil, false
	}
	b.work.Add(1)
	return b.work.Done, true
}

func (b *background) freed(ctx context.Context, s *Store, l locking.Lease) bool {
	limited, cancel := context.WithTimeout(ctx, s.o.Limit)
	defer cancel()
	err := s.driver.Free(limited, s.named(l))
	return err == nil || errors.Is(err, locking.ErrLost) || errors.Is(err, locking.ErrClosed)
}

// Pause waits for d. It returns false, at once, when ctx ends first.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

package locking

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Poller is the wait of a store whose server can wake no waiter. In this process the requests for a key
// are granted in the order of arrival, and only the first of them is sent to the server, again after each Pause.
// A release in this process wakes it at once, unless the turn of this process is over: then it pauses, so that other
// processes can take the key. Among processes there is no order. The store calls a Poller in its Acquire and its Release.
// It is safe for concurrent use.
type Poller struct {
	Pause Backoff       // between two requests
	Turn  time.Duration // from the grant after a pause; one release after that grant wakes a request in any case

	queue Queue[string]
	mu    sync.Mutex
	keys  map[string]*polled // those that requests of this process want, or wanted within Turn
}

// equalPauses is how many pauses of a wait have one length, before it doubles. A process that leaves the key to others pauses for the
// first length. A waiter whose pauses have grown comes too late for it, more often than not.
const equalPauses = 16

// polled is a key.
type polled struct {
	requests int
	begun    time.Time     // the turn
	passed   bool          // a grant of this turn followed a release
	free     chan struct{} // has an element if a release has woken the first request, and no grant has followed
}

// Acquire waits for sorted keys with take, which sends one request and returns ErrBusy if another holder has a key. Any
// other error is returned at once. A request for several keys is not woken by their release: it pauses.
//
// If ctx ends first, the error matches ctx.Err(), and ErrBusy too if the request was in the queue.
func (p *Poller) Acquire(ctx context.Context, keys []string, take func() (Lease, error)) (Lease, error) {
	if ctx.Err() != nil {
		return Lease{}, ctx.Err()
	}
	free := p.enter(keys) // before the queue: a release would not be noticed in between
	defer p.leave(keys)
	ticket, _ := p.queue.Join(nil, keys...)
	if !ticket.Wait(ctx) {
		return Lease{}, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
	}
	defer ticket.Leave(keys...)
	// If others were in front, the last of them has just been granted the keys, or has given up.
	for n, waits, woken := 0, ticket.Waited, false; ; waits = true {
		if waits {
			select {
			case <-free:
				woken = true
			case <-time.After(p.Pause.Wait(n / equalPauses)):
				woken = false
				n++
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				if woken {
					p.Released(keys) // wakes the next
				}
				return Lease{}, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
			}
		}
		lease, err := take()
		switch {
		case err == nil:
			p.granted(keys, woken)
			return lease, nil
		case waits && ctx.Err() != nil:
			return Lease{}, fmt.Errorf("%w: %w: %w", ErrBusy, ctx.Err(), err)
		case !errors.Is(err, ErrBusy):
			return Lease{}, err
		}
	}
}

// Len returns how many requests of this process want a key, with the one in front.
func (p *Poller) Len(key string) int { return p.queue.Len(key) }

// enter returns the channel on which a request for one key is woken.
func (p *Poller) enter(keys []string) (free <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		k := p.keys[key]
		if k == nil {
			if p.keys == nil {
				p.keys = map[string]*polled{}
			}
			k = &polled{begun: time.Now(), free: make(chan struct{}, 1)}
			p.keys[key] = k
		}
		k.requests++
		free = k.free
	}
	if len(keys) > 1 {
		return nil
	}
	return free
}

func (p *Poller) leave(keys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		k := p.keys[key]
		if k.requests--; k.requests == 0 { // a request within Turn does not begin a new turn
			time.AfterFunc(p.Turn, func() { p.forget(key, k) })
		}
	}
}

func (p *Poller) forget(key string, k *polled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.requests == 0 && p.keys[key] == k {
		delete(p.keys, key)
	}
}

// granted notes that this process holds keys, in the same turn if the request was woken.
func (p *Poller) granted(keys []string, woken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		k := p.keys[key]
		if k.passed = woken; !woken {
			k.begun = time.Now()
		}
		select {
		case <-k.free: // of a release before the grant
		default:
		}
	}
}

// Released wakes the first request of this process for each of the keys. It is a hint: call it after each request to
// release them, whatever its answer.
func (p *Poller) Released(keys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		if k := p.keys[key]; k != nil && (!k.passed || time.Since(k.begun) < p.Turn) {
			select {
			case k.free <- struct{}{}:
			default:
			}
		}
	}
}

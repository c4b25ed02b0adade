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
// A release in this process passes it the key, unless the turn of this process is over: then it pauses, so that other
// processes can take the key. Among processes there is no order. The store calls a Poller in its Acquire and its Release.
// It is safe for concurrent use.
type Poller struct {
	Pause  Backoff       // between two requests to the server; shorter at first if several requests of this process wait
	Turn   time.Duration // from the grant after a pause; one release after that grant passes the key in any case
	Unused func(Lease)   // releases a lease in the background that was passed to a request which has left; nil: the store passes none

	queue Queue[string]
	mu    sync.Mutex
	keys  map[string]*polled // those that requests of this process want, or wanted within Turn
}

// equalPauses is how many pauses of a wait have one length, before it doubles: a waiter whose pauses have grown comes too
// late for a key that another process leaves to others, more often than not.
const equalPauses = 16

// togetherMax bounds how many requests of a process count as waiting together.
const togetherMax = 4

// polled is a key.
type polled struct {
	requests int
	begun    time.Time  // the turn
	passed   bool       // a grant of this turn followed a release
	free     chan bool  // has an element if no grant has followed a release: true: the first request is woken; false: it leaves the key to others
	leases   chan Lease // has one that was passed to the first request
}

// Acquire waits for sorted keys with take, which sends one request and returns ErrBusy if another holder has a key. Any
// other error is returned at once. A request for several keys is not woken by their release: it pauses.
//
// If ctx ends first, the error matches ctx.Err(), and ErrBusy too if the request was in the queue.
func (p *Poller) Acquire(ctx context.Context, keys []string, take func() (Lease, error)) (Lease, error) {
	if ctx.Err() != nil {
		return Lease{}, ctx.Err()
	}
	free, leases := p.enter(keys) // before the queue: a release would not be noticed in between
	defer p.leave(keys)
	ticket, _ := p.queue.Join(nil, keys...)
	if !ticket.Wait(ctx) {
		return Lease{}, fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
	}
	defer ticket.Leave(keys...)
	// If others were in front, the last of them has just been granted the keys, or has given up.
	pause := p.pause(keys, 0)
	for n, waits, woken := 0, ticket.Waited, false; ; waits = true {
		if waits {
			select {
			case lease := <-leases:
				if time.Now().Before(lease.Until) {
					p.granted(keys, true)
					return lease, nil
				}
				p.Unused(lease)
				continue
			case woken = <-free:
				if !woken {
					pause = p.Pause.Wait(0) / 2 // longer than those of another process in which many wait
					continue
				}
			case <-time.After(pause):
				n++
				woken, pause = false, p.pause(keys, n)
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				if woken {
					p.released(keys) // wakes the next
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

// enter returns the channels on which a request for one key is woken, or passed a lease.
func (p *Poller) enter(keys []string) (free <-chan bool, leases <-chan Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		k := p.keys[key]
		if k == nil {
			if p.keys == nil {
				p.keys = map[string]*polled{}
			}
			k = &polled{begun: time.Now(), free: make(chan bool, 1), leases: make(chan Lease, 1)}
			p.keys[key] = k
		}
		k.requests++
		free, leases = k.free, k.leases
	}
	if len(keys) > 1 {
		return nil, nil
	}
	return free, leases
}

func (p *Poller) leave(keys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		k := p.keys[key]
		if len(p.queue.At(key, 0)) != 1 {
			p.unused(k)
		}
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

// unused releases the lease that no request has taken.
func (p *Poller) unused(k *polled) {
	select {
	case lease := <-k.leases:
		p.Unused(lease)
	default:
	}
}

// Release releases l. If a request of this process waits for its key, and the turn is not over, it calls pass, which in
// one request to the server ends l and makes the lease of that request. Otherwise, or if pass returns ErrLost, it calls free.
// Any other error of pass is returned. The store has then to remove both leases, and the first request asks the server.
func (p *Poller) Release(l Lease, pass func() (Lease, error), free func() error) error {
	if p.next(l.Keys) {
		next, err := pass()
		switch {
		case err == nil:
			p.give(next)
			return nil
		case !errors.Is(err, ErrLost):
			p.released(l.Keys)
			return err
		}
	}
	defer p.released(l.Keys)
	return free()
}

// next reports whether the first request for keys can be passed a lease.
func (p *Poller) next(keys []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(keys) == 1 && p.inTurn(p.keys[keys[0]]) && len(p.queue.At(keys[0], 0)) == 1
}

// give gives l to the first request for its key. If that has left, it is released.
func (p *Poller) give(l Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.keys[l.Keys[0]]; k != nil && len(p.queue.At(l.Keys[0], 0)) == 1 {
		p.unused(k) // it has expired
		k.leases <- l
		return
	}
	p.Unused(l)
}

func (p *Poller) inTurn(k *polled) bool {
	return k != nil && (!k.passed || time.Since(k.begun) < p.Turn)
}

// released wakes the first request of this process for each of the keys, or makes it pause if the turn is over. It is a
// hint, given after each request to release them, whatever its answer.
func (p *Poller) released(keys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		if k := p.keys[key]; k != nil {
			select {
			case k.free <- p.inTurn(k):
			default:
			}
		}
	}
}

// pause is how long the first request waits before its request n to the server. It asks for all of this process that want
// the keys: up to togetherMax times as often as one that waits alone, and for as long.
func (p *Poller) pause(keys []string, n int) time.Duration {
	together := 1
	for _, key := range keys {
		together = max(together, min(p.queue.Len(key), togetherMax))
	}
	first := positive(p.Pause.Base, 10*time.Millisecond) / time.Duration(together)
	return Backoff{Base: first, Max: p.Pause.Max, Rand: p.Pause.Rand}.Wait(n / (equalPauses * together))
}

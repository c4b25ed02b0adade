// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"shop/locking"
	"shop/locking/idempotency"
)

const (
	replicaCount = 2
	waitMean     = 250 * time.Millisecond // of a client before each request
	workMean     = 2 * time.Millisecond   // of a request between its reading and its writing
	cutTime      = time.Second            // of the connections to what grants the locks
	hitsMax      = 2                      // pauses, or cuts; there is one kill
	dropLead     = 25 * time.Millisecond  // from the loss of a lock to the writing: longer than the longest pause of a waiter
	dropTimeout  = time.Second
	killLead     = 650 * time.Millisecond // from the return of the server to the writing: longer than a breaker is open
)

// lane is one strategy in a race, with everything that it uses.
type lane struct {
	settings  Settings
	flow      *flow
	strategy  Strategy
	scene     scene
	replicas  []*replica
	record    *record
	pauseTime time.Duration // of a replica: longer than the TTL
	closers   []func()
	killer    *killer // of the race; nil without the fault Kill

	mu    sync.Mutex
	draws map[point]*rand.Rand
	hits  map[point]bool // those at which a pause, a cut or a kill is still to come
}

// point is a request at a moment. What it draws does not depend on the requests before it, so that the same requests
// meet the fault in both lanes, and in each race with the same seed.
type point struct {
	request int // from 0; of combined also the number of a batch
	at      moment
}

func newLane(s Settings, strategy string) *lane {
	l := &lane{
		settings: s, flow: findFlow(s.Flow), record: newRecord(time.Now()), draws: map[point]*rand.Rand{}, hits: map[point]bool{},
	}
	l.strategy, _ = l.flow.strategy(strategy)
	l.drawHits()
	return l
}

// openLane opens a strategy and its replicas at a site of its own.
func openLane(ctx context.Context, s Settings, strategy string, p site) (_ *lane, err error) {
	l := newLane(s, strategy)
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.scene, err = l.flow.open(ctx, p, l); err != nil {
		return nil, err
	}
	for n := range replicaCount {
		r := newReplica(l, n+1)
		if r.act, err = l.scene.replica(ctx, r); err != nil {
			return nil, err
		}
		l.replicas = append(l.replicas, r)
	}
	return l, nil
}

// drawHits draws the requests that meet a pause or a cut, one of each half of Size, or a kill, one of the first half.
func (l *lane) drawHits() {
	random := rand.New(rand.NewPCG(uint64(l.settings.Seed), 0))
	for n := range hitsMax {
		first, next := n*l.settings.Size/hitsMax, (n+1)*l.settings.Size/hitsMax
		if first < next {
			l.hits[point{first + random.IntN(next-first), l.flow.moments[n%len(l.flow.moments)]}] = true
			if l.settings.Fault == Kill {
				return
			}
		}
	}
}

// onClose adds a function that close calls, the last added first.
func (l *lane) onClose(f func()) { l.closers = append(l.closers, f) }

func (l *lane) close() {
	for _, f := range slices.Backward(l.closers) {
		f()
	}
}

// run lets all clients send their requests, until all have their answers or ctx ends.
func (l *lane) run(ctx context.Context) {
	var clients sync.WaitGroup
	for n := range l.settings.Clients {
		clients.Go(func() { l.client(ctx, n) })
	}
	clients.Wait()
	for _, r := range l.replicas {
		r.wait(ctx) // what is late has to arrive before the stores are read
	}
}

// client is one client: its seed decides when it sends a request.
func (l *lane) client(ctx context.Context, n int) {
	random := rand.New(rand.NewPCG(uint64(l.settings.Seed), uint64(n)+1))
	for i := n; i < l.flow.requests*l.settings.Size; i += l.settings.Clients {
		sleep(ctx, exponential(random, waitMean))
		if ctx.Err() != nil || time.Since(l.record.start) > beginTime {
			return
		}
		key := fmt.Sprintf("race-%d", i)
		l.send(ctx, l.replicas[n%replicaCount], n+1, i, idempotency.Request{Client: owner, Key: key, Fingerprint: sha256.Sum256([]byte(key))})
	}
}

// send sends a request, and again with the same key until there is a final answer.
func (l *lane) send(ctx context.Context, r *replica, client, number int, req idempotency.Request) {
	begin := time.Now()
	for ctx.Err() == nil {
		n := l.record.begin(r.number, client, number)
		reply, err := r.act(context.WithValue(ctx, attemptKey{}, n), req, client)
		if err == nil {
			l.record.add(Event{Attempt: n, Kind: map[int]string{statusDone: "done", statusRefused: "refused"}[reply.Status]})
			l.record.answered(time.Since(begin))
			return
		}
		kind := "failed"
		switch {
		case errors.Is(err, locking.ErrOutcomeUnknown), errors.Is(err, idempotency.ErrInProgress):
			kind = "unknown"
		case errors.Is(err, locking.ErrStale):
			kind = "stale"
		}
		l.record.add(Event{Attempt: n, Kind: kind, Note: err.Error()})
		sleep(ctx, 10*time.Millisecond)
	}
}

// locks reports whether the strategy uses leases of a lock store.
func (l *lane) locks() bool {
	return slices.Contains(l.strategy.Stores, "redis") || slices.Contains(l.strategy.Stores, "etcd")
}

// pass is called when an attempt of a client reaches a moment at which a fault may hit it.
func (l *lane) pass(ctx context.Context, r *replica, attempt int, at moment) {
	if !slices.Contains(l.flow.moments, at) {
		return
	}
	if at == read {
		l.record.add(Event{Attempt: attempt, Kind: "read"})
	}
	work, hit, drop := l.meet(point{l.record.request(attempt), at})
	switch {
	case l.settings.Fault == Pause && hit:
		l.pause(r, attempt)
	case l.settings.Fault == Cut && hit:
		l.record.add(Event{Attempt: attempt, Kind: "cut"})
		for _, each := range l.replicas {
			each.locks.cut(cutTime)
		}
	case l.settings.Fault == Kill && hit:
		if l.killer.kill(ctx, l.record, attempt) {
			work += killLead
		}
	case l.settings.Fault == Drop && drop && r.drop != nil:
		bounded, cancel := context.WithTimeout(ctx, dropTimeout)
		defer cancel()
		if r.drop(bounded) {
			l.record.add(Event{Attempt: attempt, Kind: "dropped"})
			work += dropLead
		}
	}
	sleep(ctx, work)
}

// meet draws how long a request works at a point, and reports which faults it meets there. A request that is sent again
// draws again, and meets no second pause, cut or kill.
func (l *lane) meet(p point) (work time.Duration, hit, drop bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	random := l.draws[p]
	if random == nil {
		moment := 1 + slices.Index(l.flow.moments, p.at)
		random = rand.New(rand.NewPCG(uint64(l.settings.Seed), uint64(moment)<<32|uint64(p.request))) // the clients' have no moment
		l.draws[p] = random
	}
	if p.at == read {
		work = exponential(random, workMean)
	}
	hit = l.hits[p]
	delete(l.hits, p)
	return work, hit, random.IntN(l.flow.dropEvery) == 0
}

// pause stops the replica of an attempt. If what it sends is delivered late, the attempt goes on.
func (l *lane) pause(r *replica, attempt int) {
	if r.late != nil {
		r.late.delay(l.pauseTime, func(refused bool) { l.record.late(attempt, refused) })
	}
	r.pause(l.pauseTime)
	l.record.add(Event{Attempt: attempt, Kind: "paused"})
	resumed := func() { l.record.add(Event{Attempt: attempt, Kind: "resumed"}) }
	if r.late != nil {
		time.AfterFunc(l.pauseTime, resumed)
		return
	}
	r.wait(context.Background()) // a stopped process is not told that its lease is lost
	resumed()
}

func exponential(random *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(random.ExpFloat64() * float64(mean))
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

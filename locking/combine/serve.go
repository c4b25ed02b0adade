// SPDX-License-Identifier: MIT

package combine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"shop/locking"
)

// serve takes lease after lease until no request is left.
func (c *Combiner[Q, A]) serve(name string, q *queue[Q, A]) {
	t := &turns[Q, A]{Combiner: c, queue: q, most: c.config.MaxBatch}
	for !c.finish(name, q) {
		if t.turn() {
			select {
			case <-time.After(c.config.Pause):
			case <-c.life.Done():
			}
		}
	}
}

// finish removes a queue for which no request waits. No request can join it after that.
func (c *Combiner[Q, A]) finish(name string, q *queue[Q, A]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !q.empty() {
		return false
	}
	delete(c.queues, name)
	return true
}

// turns is the work of the goroutine of a queue.
type turns[Q, A any] struct {
	*Combiner[Q, A]
	queue *queue[Q, A]
	late  int // leases in a row that came too late for a batch
	most  int // requests of the next batch: MaxBatch, or fewer after one that took too long
}

// turn takes the lease once, and applies batches under it. over: until MaxTurn was over, or while requests wait, or until
// a batch failed. The clients that were answered last send their next requests at once, and these must not overtake
// another process.
func (t *turns[Q, A]) turn() (over bool) {
	ctx, stop := context.WithCancel(t.life)
	defer stop()
	waited, lock := t.begin(stop)
	granted, began := false, false
	err := locking.Do(ctx, t.config.Store, lock, t.queue.keys, func(ctx context.Context, l locking.Lease) error {
		granted = true
		largest, first := 0, time.Now()
		for locking.Trusted(ctx, t.config.Trust) && (!began || time.Since(first) < t.config.MaxTurn) {
			batch := t.take(ctx, largest/fewPart)
			if len(batch) == 0 {
				break
			}
			began, largest = true, max(largest, len(batch))
			start := time.Now()
			if err := t.apply(ctx, l, batch); err != nil {
				over = true
				return t.givenUp(err)
			}
			t.gather(ctx, min(time.Since(start)/gatherPart, t.config.MaxGather, t.config.MaxTurn-time.Since(first)))
		}
		over = began && ctx.Err() == nil && (time.Since(first) >= t.config.MaxTurn || t.waiting())
		return context.Cause(ctx)
	})
	t.end()
	granted = granted || errors.Is(err, locking.ErrLost) // it was over when it was granted
	switch {
	case began:
		t.late = 0
	case ctx.Err() != nil && t.life.Err() == nil: // all clients had left; those that came since wait for the next lease
	case granted && t.late+1 < t.config.Tries && t.life.Err() == nil: // a new lease first
		t.late++
	case granted && err == nil:
		t.refuse(waited, fmt.Errorf("%w: combine: less than %v was left of %d leases when they were granted: the TTL must be longer", locking.ErrLost, t.config.Trust, t.late+1))
	default:
		t.refuse(waited, err)
	}
	return over
}

// fewPart ends a turn when less than this part of its largest batch waits. Each batch has its commit, and another process
// may have a large one waiting.
const fewPart = 4

// gatherPart bounds the wait of gather by this part of the time that the last batch took.
const gatherPart = 8

// await expects, for the next batch, the requests that wait and one of each client that is about to be answered.
func (t *turns[Q, A]) await(batch int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting := len(t.queue.again) + len(t.queue.waiting)
	t.queue.awaited, t.queue.all = min(batch, t.most-waiting), make(chan struct{})
}

// gather waits until all that are expected wait, but no longer than limit. Clients that send their next request at
// once would otherwise be divided: the first few get a batch of their own, or, if none has come yet, the lease is
// released and taken again.
func (t *turns[Q, A]) gather(ctx context.Context, limit time.Duration) {
	t.mu.Lock()
	wait, all := t.queue.awaited > 0, t.queue.all
	t.mu.Unlock()
	if !wait || limit <= 0 {
		return
	}
	over := time.NewTimer(limit)
	defer over.Stop()
	select {
	case <-all:
	case <-over.C:
	case <-ctx.Done():
	}
}

// bound sets the size of the next batch after one of n requests that took d. One that was smaller than it might have been
// does not show that a larger one would take less than MaxBatchTime.
func (t *turns[Q, A]) bound(n int, d time.Duration) {
	switch limit := t.config.MaxBatchTime; {
	case d > limit:
		t.most = max(1, int(time.Duration(n)*limit/d))
	case d < limit/2 && n >= t.most:
		t.most = min(2*t.most, t.config.MaxBatch)
	}
}

// begin returns how many requests have joined the queue, and how to wait for the lease: with undecided
// requests as long as it takes, since the lease that they had may have to expire first. It calls stop if all have left.
func (t *turns[Q, A]) begin(stop func()) (waited int, lock locking.Options) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue.stop = stop
	if t.queue.empty() { // they left before leave could call this stop
		stop()
	}
	if lock = t.config.Lock; len(t.queue.again) > 0 {
		lock.NoWait, lock.MaxWait = false, 0
	}
	return t.queue.joined, lock
}

func (t *turns[Q, A]) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue.running = false
}

// waiting reports whether a request waits.
func (t *turns[Q, A]) waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.queue.empty()
}

// take takes the next batch out of the queue: undecided requests first, and not together with others. It takes no
// batch if fewer than least requests wait, or if ctx has ended: leave, under the same mutex, may have ended it for a
// request that was the only one.
func (t *turns[Q, A]) take(ctx context.Context, least int) (batch []*request[Q, A]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queue
	switch {
	case len(q.again)+len(q.waiting) < least, ctx.Err() != nil:
	case len(q.again) == 0:
		batch, q.waiting = t.pick(q.waiting, t.most)
	case q.again[0].alone:
		batch, q.again = t.pick(q.again, 1)
	default:
		batch, q.again = t.pick(q.again, t.most)
	}
	q.running = q.running || len(batch) > 0
	return batch
}

// pick returns the first requests of a list, at most most with different keys, and the rest of the list.
func (t *turns[Q, A]) pick(list []*request[Q, A], most int) (batch, rest []*request[Q, A]) {
	first := map[string]*request[Q, A]{} // by key
	for n, r := range list {
		switch same := first[r.key]; {
		case r.key != "" && same != nil:
			same.same, r.copy = append(same.same, r), true
		case len(batch) == most || r.alone && most > 1:
			return batch, list[n:]
		default:
			batch = append(batch, r)
			first[r.key] = r
		}
		r.runs = true
	}
	return batch, nil
}

// apply applies a batch, and answers its requests, or keeps them to be tried again. After an error the
// lease must not be used any more.
func (t *turns[Q, A]) apply(ctx context.Context, l locking.Lease, batch []*request[Q, A]) error {
	start := time.Now()
	results, err := t.call(ctx, l, batch)
	t.bound(len(batch), time.Since(start))
	t.await(len(batch))
	if why := context.Cause(ctx); err != nil && why != nil && !errors.Is(err, why) {
		err = fmt.Errorf("%w; %w", err, why) // a driver tells only that ctx has ended
	}
	var again []*request[Q, A]
	for i, r := range batch {
		r.tries++
		switch {
		case err == nil && results[i].Err != nil:
			r.fail(results[i].Err)
		case err == nil:
			r.answer(results[i])
		case r.tries < t.config.Tries && undecided(err):
			again = append(again, r.undecided(err, r.tries == t.config.Tries-1)...)
		default:
			r.fail(err)
		}
	}
	for _, r := range t.requeue(again) {
		r.answer(Result[A]{Err: r.left()})
	}
	return err
}

// requeue queues undecided requests before those that wait. It returns those whose clients have left while they ran: a
// client does not wait for another lease.
func (t *turns[Q, A]) requeue(list []*request[Q, A]) (gone []*request[Q, A]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var again []*request[Q, A]
	for _, r := range list {
		if r.gone != nil {
			gone = append(gone, r)
			continue
		}
		r.runs = false
		again = append(again, r)
	}
	t.queue.again = append(again, t.queue.again...)
	return gone
}

// undecided reports whether a request may have another result under a later lease.
func undecided(err error) bool {
	if errors.Is(err, ErrResults) {
		return false
	}
	return errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrLost) || errors.Is(err, locking.ErrStale)
}

// undecided returns the request, and those that were merged with it, for another try. Each request of a batch that panics,
// or has only its last try left, is tried alone.
func (r *request[Q, A]) undecided(err error, last bool) []*request[Q, A] {
	if !errors.Is(r.last, locking.ErrOutcomeUnknown) { // else it may have been done, whatever comes later
		r.last = err
	}
	r.alone = r.alone || last || errors.Is(err, ErrPanic)
	all := append([]*request[Q, A]{r}, r.same...)
	for _, same := range r.same {
		same.tries, same.alone, same.last, same.copy = r.tries, r.alone, r.last, false
	}
	r.same = nil
	return all
}

// call calls Apply in a goroutine of its own, which Apply may end by runtime.Goexit. A panic may come after
// a commit. It is logged here: if the next try succeeds, no client receives it.
func (t *turns[Q, A]) call(ctx context.Context, l locking.Lease, batch []*request[Q, A]) (results []Result[A], err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = ErrPanic // until Apply returns
		defer func() {
			if p := recover(); p != nil {
				t.config.Log.Error("combine: Apply panicked", "keys", t.queue.keys, "panic", p, "stack", string(debug.Stack()))
				results, err = nil, fmt.Errorf("%w: %v", ErrPanic, p)
			}
		}()
		results, err = t.halved(ctx, l, batch)
	}()
	<-done
	return results, err
}

// errLittleTrust is the error of a half that did not begin.
var errLittleTrust = fmt.Errorf("%w: combine: less than Config.Trust was left of the lease", locking.ErrLost)

// halved applies a batch, and each half of it if it failed because of one of its requests. An error of the first half
// ends it: the second has no effect. After that an error of the second is the result of each of its requests; but if
// it is undecided, so is the batch, and nothing else runs under the lease. If the first half has not begun, for lack of trust,
// the batch is tried again; a second half that has not begun is not undecided.
func (t *turns[Q, A]) halved(ctx context.Context, l locking.Lease, batch []*request[Q, A]) ([]Result[A], error) {
	list := make([]Q, len(batch))
	for i, r := range batch {
		list[i] = r.of
	}
	results, err := t.config.Apply(batchCtx{ctx, len(batch), batch[0].ctx}, l, list)
	var one *ofOne
	is := errors.As(err, &one)
	switch {
	case err == nil && len(results) != len(batch):
		return nil, fmt.Errorf("%w: got %d for %d", ErrResults, len(results), len(batch))
	case !is:
		return results, err
	case len(batch) == 1:
		return []Result[A]{{Err: one.error}}, nil
	}
	first, second := batch[:len(batch)/2], batch[len(batch)/2:]
	if results, err = t.half(ctx, l, first); err != nil {
		return nil, err
	}
	rest, err := t.half(ctx, l, second)
	switch {
	case err == nil:
		return append(results, rest...), nil
	case undecided(err) && !errors.Is(err, errLittleTrust):
		return nil, fmt.Errorf("%w: a part was done, then: %w", locking.ErrOutcomeUnknown, err)
	}
	return append(results, slices.Repeat([]Result[A]{{Err: err}}, len(second))...), nil
}

func (t *turns[Q, A]) half(ctx context.Context, l locking.Lease, batch []*request[Q, A]) ([]Result[A], error) {
	if !locking.Trusted(ctx, t.config.Trust) {
		return nil, errLittleTrust
	}
	return t.halved(ctx, l, batch)
}

// refuse answers the requests that got no lease: the first n that joined the queue. For those that are
// undecided that was one more try.
func (t *turns[Q, A]) refuse(n int, err error) {
	closed := t.life.Err() != nil
	if err = fmt.Errorf("%w: %w", ErrNoLease, err); closed {
		err = ErrClosed
	}
	var refused []*request[Q, A]
	t.mu.Lock()
	undecided, waiting := t.queue.again, t.queue.waiting
	t.queue.again, t.queue.waiting = nil, nil
	for _, r := range undecided {
		if r.tries++; r.tries < t.config.Tries && !closed {
			t.queue.again = append(t.queue.again, r)
		} else {
			refused = append(refused, r)
		}
	}
	for _, r := range waiting {
		if closed || r.ticket < n {
			refused = append(refused, r)
		} else {
			t.queue.waiting = append(t.queue.waiting, r)
		}
	}
	for _, r := range refused {
		r.runs = true
	}
	t.mu.Unlock()
	for _, r := range refused {
		r.fail(err)
	}
}

// fail answers a request that has no result. One whose outcome is unknown keeps that.
func (r *request[Q, A]) fail(err error) {
	if r.last != nil && !errors.Is(err, locking.ErrOutcomeUnknown) && errors.Is(r.last, locking.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w; then %w", r.last, err)
	}
	r.answer(Result[A]{Err: err})
}

func (r *request[Q, A]) answer(result Result[A]) {
	r.done <- result
	for _, same := range r.same {
		same.done <- result
	}
}

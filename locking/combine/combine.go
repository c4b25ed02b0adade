// SPDX-License-Identifier: MIT

package combine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"shop/locking"
)

// Config of a Combiner. Store and Apply are required.
type Config[Q, A any] struct {
	Store locking.Store
	Lock  locking.Options // of the lease; NoWait and MaxWait do not apply while a request is undecided

	// Apply applies a batch in its order, and returns a result for each request. ctx ends with the lease; that of a
	// batch of one has the values of the request's ctx too. An error means that no request had an effect, unless it matches
	// locking.ErrOutcomeUnknown. OfOne marks the error that one request of the batch caused. A request may be applied again,
	// under a greater fence: Apply must recognize it.
	Apply func(ctx context.Context, l locking.Lease, batch []Q) ([]Result[A], error)

	// Guarded says that Apply locks the rows that it reads, or compares the fence. Then a write that is still under way cannot
	// harm the next holder: after an unknown outcome the lease is released at once. Without it, the lease expires.
	Guarded bool

	// Key returns the idempotency key of a request, with all that tells it from another request
	// under the same key. Equal ones are the same request. nil or "": each request is one of its own.
	Key func(Q) string
	// Merged returns the answer to a request that was merged with an equal one. It gets the answer to that
	// one. nil: the same.
	Merged func(A) A

	MaxQueue int // requests that wait for a set of keys; 0: 4096
	MaxBatch int // requests of a batch, equal ones counted once; 0: 128
	// MaxBatchTime is how long Apply should take: after a batch that took longer, the next is smaller, until no request waits.
	// 0: 500 ms. Let it be well below the time limits of a transaction that has one row locked while it decides the next request.
	MaxBatchTime time.Duration
	MaxTurn      time.Duration // for which a lease is kept while requests wait; 0: 50 ms
	// MaxGather is how long a batch waits for the next requests of the clients that were answered, but no longer than an
	// eighth of the time that the last batch took; 0: 2 ms. The lease is held meanwhile.
	MaxGather time.Duration

	Pause time.Duration // after a turn while requests wait, in which a woken process can take the lease; 0: 2 ms
	Trust time.Duration // the least that must be left of a lease when a batch begins; 0: 1 s
	Tries int           // of a request whose outcome is unknown; 0: 5

	Log *slog.Logger // of panics of Apply, with their stacks; nil: slog.Default()
}

// Result is the result of one request.
type Result[A any] struct {
	Answer A
	Err    error
}

// OfOne marks the error of a batch that had no effect because of one of its requests, for an Apply that cannot tell
// which. The Combiner applies each half of the batch. For a batch of one request, err is the result.
func OfOne(err error) error { return &ofOne{err} }

type ofOne struct{ error }

func (e *ofOne) Unwrap() error { return e.error }

// The errors of a Combiner, besides those of package locking and of Apply.
var (
	ErrFull = locking.Like(locking.ErrBusy, errors.New("combine: too many requests wait for the keys"))
	// ErrClosed matches locking.ErrBusy: the request had no effect, and another process may serve it.
	ErrClosed = locking.Like(locking.ErrBusy, errors.New("combine: closed"))
	// ErrNoLease reports that the lease was not granted, or not for long enough. The Store's error is wrapped with it.
	ErrNoLease = errors.New("combine: no lease")
	// ErrPanic reports that Apply panicked in each try. The outcome is unknown.
	ErrPanic = fmt.Errorf("%w: combine: Apply panicked", locking.ErrOutcomeUnknown)
	// ErrResults reports a bug in Apply, which is not called again. What it did is unknown.
	ErrResults = locking.Like(locking.ErrOutcomeUnknown, errors.New("combine: Apply must return one result for each request of the batch, in its order"))
)

// Combiner is safe for concurrent use. It has one goroutine for each set of keys for which requests wait. Apply
// must not call it.
type Combiner[Q, A any] struct {
	config Config[Q, A]
	life   context.Context // ends with Close
	end    context.CancelCauseFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	queues map[string]*queue[Q, A] // by keys; none is empty and without a goroutine
}

// queue holds the requests for a set of keys. The Combiner's mutex guards all but keys.
type queue[Q, A any] struct {
	keys    []string
	again   []*request[Q, A] // undecided, and tried again before those that wait
	waiting []*request[Q, A]
	joined  int    // requests so far
	running bool   // a batch has begun under the lease
	stop    func() // ends the wait for the lease
	awaited int    // requests until all is closed
	all     chan struct{}
}

func (q *queue[Q, A]) empty() bool { return len(q.again)+len(q.waiting) == 0 }

// request is one call of Do. While it is in a queue the Combiner's mutex guards it, and while it runs only
// the goroutine of its queue uses it, except for gone.
type request[Q, A any] struct {
	of     Q
	ctx    context.Context // of its client: only the values are used
	key    string
	ticket int // how many requests joined the queue before
	tries  int
	runs   bool             // in a batch: its ctx is ignored
	alone  bool             // the next try is a batch of its own
	copy   bool             // in the list same of another
	last   error            // why it is tried again; an unknown outcome stays
	gone   error            // why its client has left; the mutex guards it
	same   []*request[Q, A] // of the same batch, with the same key
	done   chan Result[A]
}

// New makes a Combiner.
func New[Q, A any](config Config[Q, A]) (*Combiner[Q, A], error) {
	for name, number := range map[string]int64{
		"Pause": int64(config.Pause), "MaxGather": int64(config.MaxGather), "MaxQueue": int64(config.MaxQueue), "MaxBatch": int64(config.MaxBatch), "MaxBatchTime": int64(config.MaxBatchTime), "MaxTurn": int64(config.MaxTurn),
		"Trust": int64(config.Trust), "Tries": int64(config.Tries),
	} {
		if number < 0 {
			return nil, fmt.Errorf("combine: Config.%s is negative", name)
		}
	}
	if config.Store == nil || config.Apply == nil {
		return nil, errors.New("combine: Config.Store and Config.Apply are required")
	}
	setDefault(&config.MaxQueue, 4096)
	setDefault(&config.MaxBatch, 128)
	setDefault(&config.MaxBatchTime, 500*time.Millisecond)
	setDefault(&config.MaxTurn, 50*time.Millisecond)
	setDefault(&config.MaxGather, 2*time.Millisecond)
	setDefault(&config.Pause, 2*time.Millisecond)
	setDefault(&config.Trust, time.Second)
	setDefault(&config.Tries, 5)
	if hold := cmp.Or(max(0, config.Lock.MaxHold), locking.DefaultMaxHold); config.MaxTurn >= hold {
		return nil, fmt.Errorf("combine: Config.MaxTurn (%v) must be below Config.Lock.MaxHold (%v)", config.MaxTurn, hold)
	}
	config.Log = cmp.Or(config.Log, slog.Default())
	c := &Combiner[Q, A]{config: config, queues: map[string]*queue[Q, A]{}}
	c.life, c.end = context.WithCancelCause(context.Background())
	return c, nil
}

func setDefault[N ~int | ~int64](n *N, value N) {
	if *n == 0 {
		*n = value
	}
}

// Do applies q under a lease of the keys, together with other requests for the same keys, and returns its
// own result.
//
// If ctx ends while q is queued, q has no effect, and the error matches ctx.Err() and locking.ErrBusy. While
// q is applied, Do waits for its result. If q would have to be tried again, and ctx ends before that, the error matches
// that of the last try. An error matches locking.ErrOutcomeUnknown if, and only if, q may have had an effect. A ctx under
// which one of the keys is held (locking.Nested) is refused.
func (c *Combiner[Q, A]) Do(ctx context.Context, q Q, keys ...string) (A, error) {
	var none A
	keys, err := locking.SortedKeys(keys)
	if err == nil {
		err = cmp.Or(ctx.Err(), locking.Nested(ctx, c.config.Store, keys...))
	}
	if err != nil {
		return none, err
	}
	r := &request[Q, A]{of: q, ctx: ctx, done: make(chan Result[A], 1)}
	if c.config.Key != nil {
		r.key = c.config.Key(q)
	}
	in, err := c.join(r, keys)
	if err != nil {
		return none, err
	}
	select {
	case result := <-r.done:
		return c.read(r, result)
	case <-ctx.Done():
	}
	if c.leave(r, in, ctx.Err()) {
		return none, r.left()
	}
	return c.read(r, <-r.done)
}

func (c *Combiner[Q, A]) read(r *request[Q, A], result Result[A]) (A, error) {
	if r.copy && result.Err == nil && c.config.Merged != nil {
		return c.config.Merged(result.Answer), nil
	}
	return result.Answer, result.Err
}

// Queued returns how many requests wait, for all sets of keys; none if c is nil.
func (c *Combiner[Q, A]) Queued() (n int) {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range c.queues {
		n += len(q.again) + len(q.waiting)
	}
	return n
}

// Close takes no more requests, and returns when all are answered: those of a batch that runs by its
// outcome, the others by ErrClosed. It ends the ctx of the batch.
func (c *Combiner[Q, A]) Close() {
	c.mu.Lock()
	c.end(ErrClosed)
	c.mu.Unlock()
	c.work.Wait()
}

// join puts a request into its queue, and starts the queue's goroutine if there is none.
func (c *Combiner[Q, A]) join(r *request[Q, A], keys []string) (*queue[Q, A], error) {
	name := strings.Join(keys, "\x00") // no key has a NUL
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return nil, ErrClosed
	}
	q := c.queues[name]
	switch {
	case q == nil:
		q = &queue[Q, A]{keys: keys}
		c.queues[name] = q
		c.work.Go(func() { c.serve(name, q) })
	case len(q.waiting) >= c.config.MaxQueue:
		return nil, ErrFull
	}
	r.ticket = q.joined
	q.joined++
	q.waiting = append(q.waiting, r)
	if q.awaited--; q.awaited == 0 {
		close(q.all)
	}
	return q, nil
}

// leave takes a request, whose ctx has ended with why, out of its queue. False: it runs, and is answered after that,
// or it is answered.
func (c *Combiner[Q, A]) leave(r *request[Q, A], q *queue[Q, A], why error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.gone = why
	if r.runs {
		return false
	}
	is := func(other *request[Q, A]) bool { return other == r }
	q.again, q.waiting = slices.DeleteFunc(q.again, is), slices.DeleteFunc(q.waiting, is)
	if q.empty() && !q.running && q.stop != nil {
		q.stop() // no request waits for the lease
	}
	return true
}

// left returns the error of a request whose client has left before it was decided.
func (r *request[Q, A]) left() error {
	if r.last != nil {
		return fmt.Errorf("%w; %w", r.last, r.gone)
	}
	return fmt.Errorf("%w: %w", locking.ErrBusy, r.gone)
}

// errGivenUp ends the lease of a batch with an unknown outcome.
var errGivenUp = errors.New("combine: the outcome of a batch is unknown")

// givenUp returns the error of Apply. locking.Do does not release a lease after an unknown outcome, unless Apply is guarded,
// or has ended without an error.
func (c *Combiner[Q, A]) givenUp(err error) error {
	if (c.config.Guarded || errors.Is(err, ErrResults)) && errors.Is(err, locking.ErrOutcomeUnknown) {
		return errGivenUp
	}
	return err
}

// batchCtx is the ctx of a batch: that of the lease. The ctx of a batch of one has the values of its request's too, such
// as its trace.
type batchCtx struct {
	context.Context
	requests int
	first    context.Context
}

type requestsKey struct{}

func (c batchCtx) Value(key any) any {
	if key == (requestsKey{}) {
		return c.requests
	}
	value := c.Context.Value(key)
	if value == nil && c.requests == 1 {
		value = c.first.Value(key)
	}
	return value
}

// Requests returns the number of requests in the batch for which Apply was called with ctx, or with a ctx derived from it.
// Requests merged by Config.Key count once. It returns 0 if ctx is not that of a batch.
func Requests(ctx context.Context) int {
	n, _ := ctx.Value(requestsKey{}).(int)
	return n
}

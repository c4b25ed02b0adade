// SPDX-License-Identifier: MIT

package combine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

var (
	schedules = flag.Uint64("combine.schedules", 1000, "how many schedules TestSchedules runs")
	firstSeed = flag.Uint64("combine.seed", 0, "the seed of the first")
)

// TestSchedules lets two processes with three clients each send requests for two keys, or for both at once, in an order of
// steps that a seed decides. Each step parks; when all goroutines wait, the controller releases one. Commits are lost,
// late, ambiguous, or panic; one request fails a batch; leases are stolen; clients leave. Half of the worlds are guarded:
// their leases are released after an unknown outcome. Then it checks what every client was told.
func TestSchedules(t *testing.T) {
	total := seen{}
	for seed := *firstSeed; seed < *firstSeed+*schedules && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(seed)
			w.run(t)
			if wrong := w.check(); len(wrong) > 0 {
				t.Errorf("seed %d: %q", seed, wrong)
			}
			total.add(w.seen)
		})
		if t.Failed() { // once more, with all steps
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(seed)
				w.told = func(format string, args ...any) { t.Logf("%4d "+format, append([]any{w.clock}, args...)...) }
				w.run(t)
				t.Logf("again: %q; %v", w.check(), w.journal)
			})
		}
	}
	t.Logf("%+v", total)
	if *schedules < 1000 || t.Failed() {
		return
	}
	for what, n := range map[string]int{
		"steps": total.steps, "batches of several": total.batches, "ambiguous commits": total.ambiguous, "panics": total.panics,
		"stolen leases": total.stolen, "clients that left the queue": total.left, "merged requests": total.merged,
		"stale fences": total.stale, "replays": total.replays, "unknown outcomes": total.unknown, "late commits": total.late,
		"batches of several that one request failed": total.halved, "batches of both keys": total.both,
	} {
		if n < int(*schedules)/100 {
			t.Errorf("%d %s: too few to show anything", n, what)
		}
	}
}

// seen counts what happened, so that a test of nothing is noticed.
type seen struct {
	steps, batches, ambiguous, panics, stolen, left, merged, stale, replays, unknown, late, halved, both int
}

func (s *seen) add(o seen) {
	s.steps += o.steps
	s.batches += o.batches
	s.ambiguous += o.ambiguous
	s.panics += o.panics
	s.stolen += o.stolen
	s.left += o.left
	s.merged += o.merged
	s.stale += o.stale
	s.replays += o.replays
	s.unknown += o.unknown
	s.late += o.late
	s.halved += o.halved
	s.both += o.both
}

const ttl = 3 * time.Second

// world is the lock service, the database, and the controller.
type world struct {
	random *rand.Rand
	clock  int // steps so far

	guarded bool           // a late commit finds the newer fence: Config.Guarded
	flights sync.WaitGroup // late commits

	mu     sync.Mutex
	parked []chan struct{}
	told   func(format string, args ...any) // of each step; nil: nothing
	seen   seen

	locks   map[string]locking.Lease // by key
	fence   locking.Fence
	newest  map[string]locking.Fence // by key: the greatest that has committed
	journal map[string][]string      // by key: the requests that were applied, in order
	applied map[string]int           // how often Apply got a request
	tainted map[locking.Fence]bool   // a write under it may still be under way
	wrong   []string
	calls   []*call
}

// call is one Do.
type call struct {
	process, client int
	keys            []string
	request         string
	called, told    int // by the clock
	left            bool
	answer          int
	err             error
}

func newWorld(seed uint64) *world {
	return &world{
		guarded: seed%2 == 0,
		random:  rand.New(rand.NewPCG(seed, 0)), locks: map[string]locking.Lease{}, newest: map[string]locking.Fence{},
		journal: map[string][]string{}, applied: map[string]int{}, tainted: map[locking.Fence]bool{},
	}
}

// step parks the goroutine until the controller chooses it.
func (w *world) step(format string, args ...any) {
	here := make(chan struct{})
	w.mu.Lock()
	w.parked = append(w.parked, here)
	w.mu.Unlock()
	<-here
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	if w.told != nil {
		w.told(format, args...)
	}
}

// draw returns true in one of n cases.
func (w *world) draw(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n) == 0
}

func (w *world) run(t *testing.T) {
	var processes []*Combiner[string, int]
	for p := range 2 {
		c, err := New(Config[string, int]{
			Store: &process{w, p}, Lock: locking.Options{MaxWait: 10 * time.Second, Backoff: locking.Backoff{Base: time.Second, Max: time.Second}},
			Apply: func(ctx context.Context, l locking.Lease, batch []string) ([]Result[int], error) {
				return w.apply(ctx, p, l, batch)
			},
			Key: func(q string) string { return q }, MaxBatch: 3, Tries: 4, Guarded: w.guarded, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		processes = append(processes, c)
	}
	var clients sync.WaitGroup
	for p, c := range processes {
		for n := range 3 {
			for i := range 2 {
				request := fmt.Sprintf("p%d-c%d-%d", p, n, i)
				if w.draw(8) {
					request = fmt.Sprintf("p%d-shared-%d", p, i)
				}
				o := &call{process: p, client: n, keys: [][]string{{"x"}, {"x"}, {"x"}, {"y"}, {"x", "y"}}[w.random.IntN(5)], request: request}
				o.left = w.draw(6)
				w.calls = append(w.calls, o)
				clients.Go(func() { w.call(c, o) })
			}
		}
	}
	clients.Go(func() {
		w.step("thief")
		w.steal()
	})
	over := make(chan struct{})
	go func() {
		clients.Wait()
		for _, c := range processes {
			c.Close()
		}
		w.flights.Wait()
		close(over)
	}()
	w.control(over)
}

// control releases one parked goroutine after the other. When none is parked, time passes. It gives up when a
// client is never told anything.
func (w *world) control(over chan struct{}) {
	for began := time.Now(); time.Since(began) < 5*time.Minute && w.seen.steps < 10_000; {
		synctest.Wait()
		select {
		case <-over:
			return
		default:
		}
		w.mu.Lock()
		n := len(w.parked)
		if n > 0 {
			w.seen.steps++
			i := w.random.IntN(n)
			close(w.parked[i])
			w.parked = slices.Delete(w.parked, i, i+1)
		}
		w.mu.Unlock()
		if n == 0 {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func (w *world) call(c *Combiner[string, int], o *call) {
	w.step("call %s of %v", o.request, o.keys)
	o.called = w.now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if o.left {
		var leaving sync.WaitGroup
		leaving.Go(func() {
			w.step("%s leaves", o.request)
			cancel()
		})
		defer leaving.Wait()
	}
	o.answer, o.err = c.Do(ctx, o.request, o.keys...)
	o.told = w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told != nil {
		w.told("%s is told %d, %v", o.request, o.answer, o.err)
	}
	if errors.Is(o.err, context.Canceled) {
		w.seen.left++
	}
	if errors.Is(o.err, locking.ErrOutcomeUnknown) {
		w.seen.unknown++
	}
}

func (w *world) now() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

// apply is a transaction with a guard.
func (w *world) apply(_ context.Context, p int, l locking.Lease, batch []string) (results []Result[int], err error) {
	w.step("process %d begins %v with fence %d", p, batch, l.Fence)
	w.step("process %d commits %v with fence %d", p, batch, l.Fence)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range batch {
		w.applied[q]++
	}
	if len(batch) > 1 {
		w.seen.batches++
		w.seen.both += len(l.Keys) - 1
	}
	if w.tainted[l.Fence] {
		w.wrong = append(w.wrong, fmt.Sprintf("%v ran under fence %d, after a commit without an answer", batch, l.Fence))
	}
	fate := w.random.IntN(20)
	switch {
	case fate == 0:
		return nil, errors.New("deadlock detected")
	case fate == 1: // COMMIT never arrived
		w.seen.ambiguous++
		w.tainted[l.Fence] = true
		return nil, locking.ErrOutcomeUnknown
	case fate == 5: // COMMIT has not arrived yet
		w.seen.ambiguous++
		w.tainted[l.Fence] = true
		w.flights.Go(func() {
			w.step("the commit of %v with fence %d arrives late", batch, l.Fence)
			w.mu.Lock()
			defer w.mu.Unlock()
			if _, fresh := w.write(l, batch); fresh {
				w.seen.late++
			}
		})
		return nil, locking.ErrOutcomeUnknown
	case fate == 6: // by one request of the batch
		if len(batch) > 1 {
			w.seen.halved++
		}
		return nil, OfOne(errors.New("duplicate key"))
	}
	results, fresh := w.write(l, batch)
	switch {
	case !fresh:
		w.seen.stale++
		return nil, locking.ErrStale
	case fate == 2 || fate == 3: // the answer to COMMIT never arrived
		w.seen.ambiguous++
		w.tainted[l.Fence] = true
		return nil, locking.ErrOutcomeUnknown
	case fate == 4:
		w.seen.panics++
		w.tainted[l.Fence] = true
		panic("after the commit")
	}
	return results, nil
}

// write is a COMMIT that has arrived: all of the batch, or nothing if a newer fence has come before. It returns the place of
// each request in the journal of its first key.
func (w *world) write(l locking.Lease, batch []string) (results []Result[int], fresh bool) {
	for _, key := range l.Keys {
		if l.Fence < w.newest[key] {
			return nil, false
		}
	}
	for _, key := range l.Keys {
		w.newest[key] = l.Fence
		for _, q := range batch {
			if slices.Contains(w.journal[key], q) {
				w.seen.replays++
			} else {
				w.journal[key] = append(w.journal[key], q)
			}
		}
	}
	for _, q := range batch {
		results = append(results, Result[int]{Answer: slices.Index(w.journal[l.Keys[0]], q)})
	}
	return results, true
}

// steal takes all locks away from their holders, as a failover may.
func (w *world) steal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.stolen += len(w.locks)
	clear(w.locks)
}

// process is the lock service as one process sees it.
type process struct {
	*world
	number int
}

func (s *process) TryAcquire(_ context.Context, keys ...string) (locking.Lease, error) {
	s.step("process %d tries %v", s.number, keys)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if held, is := s.locks[key]; is && time.Now().Before(held.Until) {
			return locking.Lease{}, locking.ErrBusy
		}
	}
	s.fence++
	l := locking.Lease{Keys: keys, Owner: fmt.Sprint(s.fence), Fence: s.fence, Until: time.Now().Add(ttl)}
	for _, key := range keys {
		s.locks[key] = l
	}
	return l, nil
}

func (s *process) Renew(_ context.Context, l locking.Lease) (locking.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.holds(l) {
		return l, locking.ErrLost
	}
	l.Until = time.Now().Add(ttl)
	for _, key := range l.Keys {
		s.locks[key] = l
	}
	return l, nil
}

func (s *process) Release(_ context.Context, l locking.Lease) error {
	s.step("process %d releases %v", s.number, l.Keys)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.holds(l) {
		return locking.ErrLost
	}
	for _, key := range l.Keys {
		delete(s.locks, key)
	}
	return nil
}

// holds reports whether no lock of l was taken by another. All locks are stolen at once.
func (s *process) holds(l locking.Lease) bool {
	return !slices.ContainsFunc(l.Keys, func(key string) bool { return s.locks[key].Owner != l.Owner })
}

// check compares what the clients were told with what happened.
func (w *world) check() []string {
	wrong := w.wrong
	no := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for key, list := range w.journal {
		if len(list) != len(slices.Compact(slices.Sorted(slices.Values(list)))) {
			no("a request of %s was applied twice: %v", key, list)
		}
	}
	told := map[string]int{}
	for _, o := range w.calls {
		at := slices.Index(w.journal[o.keys[0]], o.request)
		switch {
		case o.told == 0:
			no("%s was told nothing", o.request)
		case o.err == nil && o.answer != at:
			no("%s was told %d, and is %d", o.request, o.answer, at)
		case o.err != nil && at >= 0 && !errors.Is(o.err, locking.ErrOutcomeUnknown) && !w.elsewhere(o):
			no("%s was told %v, and was applied", o.request, o.err)
		}
		if o.err == nil {
			told[fmt.Sprint(o.keys, o.request)]++
		}
	}
	for _, n := range told {
		if n > 1 {
			w.seen.merged++
		}
	}
	for _, a := range w.calls {
		for _, b := range w.calls {
			if a == b || a.err != nil || b.err != nil || a.request == b.request || !w.reversed(a, b) {
				continue
			}
			if a.told < b.called && !w.shared(b) { // a repeated request has the answer of the first
				no("%s was called after %s was told, and is before it", b.request, a.request)
			}
			once := w.applied[a.request] == 1 && w.applied[b.request] == 1
			if a.process == b.process && slices.Equal(a.keys, b.keys) && once && a.called < b.called && !w.shared(a) && !w.shared(b) {
				no("%s came before %s in process %d, and was applied after it", a.request, b.request, a.process)
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// reversed reports whether b is before a in the journal of a key of both.
func (w *world) reversed(a, b *call) bool {
	return slices.ContainsFunc(a.keys, func(key string) bool {
		return slices.Contains(b.keys, key) && slices.Index(w.journal[key], b.request) < slices.Index(w.journal[key], a.request)
	})
}

// shared reports whether another call has the same request.
func (w *world) shared(o *call) bool {
	return slices.ContainsFunc(w.calls, func(other *call) bool { return other != o && other.request == o.request })
}

// elsewhere reports whether another call of the same request may have had the effect.
func (w *world) elsewhere(o *call) bool { return w.shared(o) }

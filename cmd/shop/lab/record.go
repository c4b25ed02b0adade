// SPDX-License-Identifier: MIT

package lab

import (
	"maps"
	"slices"
	"sync"
	"time"

	"shop/locking"
)

// Event is one moment of an attempt to have a request done. Its Kind is one of:
//
//	asked      a client sends it
//	acquired   it holds the lock, with this fence if the lock has one
//	read       it has read what it will write: under a row lock, if the strategy takes one
//	called     it has called the bonus service
//	committed  its COMMIT was acknowledged, or arrived after the sender had given up
//	released   the lock was released
//	lost       the lease was lost
//	left       the lock was not released, because it was lost
//	paused     its replica stops (fault Pause)
//	resumed    … and goes on
//	dropped    its lock was deleted in the lock store (fault Drop)
//	cut        all connections to what grants the locks were cut (fault Cut)
//	killed     it has the server of the locks killed (fault Kill)
//	gone       it held a lock when the server was killed, and the server came back without it
//	down       the server of the locks was killed, by this lane or another: of no attempt
//	back       … and is back, with its data or without it, as Note says: of no attempt
//	stale      PostgreSQL refused its fence, in its answer or of a message that arrived late
//	done       its answer: it had an effect
//	refused    its answer: it has none, finally, as "out of stock"
//	failed     its answer: an error, in Note, after which nothing is written; the client sends the key again
//	unknown    its answer: an error, in Note, after which it may be written; the client sends the key again
type Event struct {
	At      float64       `json:"t"` // milliseconds since the start
	Attempt int           `json:"n"` // from 1; of combined also its batches; 0 of no attempt
	Kind    string        `json:"kind"`
	Replica int           `json:"replica,omitempty"`
	Client  int           `json:"client,omitempty"`
	Fence   locking.Fence `json:"fence,omitempty"`
	Note    string        `json:"note,omitempty"`
}

// Sample is the state of a lane at one moment.
type Sample struct {
	At        float64 `json:"t"`
	Figures   Figures `json:"figures"`
	Answered  int     `json:"answered"`   // requests with a final answer
	PerSecond float64 `json:"per_second"` // … since the start
	P50       float64 `json:"p50"`        // milliseconds from the first attempt of a request to its final answer
	P99       float64 `json:"p99"`
	Wait50    float64 `json:"wait50"` // milliseconds until a lock was granted, or the turn in a queue came
	Wait99    float64 `json:"wait99"`
	Busy      int     `json:"busy"`    // requests for a lock that found another holder
	Lost      int     `json:"lost"`    // leases
	Retried   int     `json:"retried"` // transactions that the database or a version check refused
	Alone     int     `json:"alone"`   // requests that went on with the row lock alone
	Stale     int     `json:"stale"`   // writes that were refused for their fence
	Faults    int     `json:"faults"`  // faults that hit a request
}

// eventsMax bounds the memory of a lane.
const eventsMax = 20_000

// record collects what happens in a lane.
type record struct {
	start time.Time

	mu        sync.Mutex
	events    []Event
	attempts  []attempt // the first is number 1
	batches   int
	current   map[int]int    // client → its last attempt
	owners    map[string]int // owner of a lease → its attempt
	holding   map[int]bool   // attempts that hold a lease, as far as they know
	latencies []float64
	waits     []float64
	sample    Sample // the counters
}

type attempt struct {
	replica int
	request int // from 0, or the number of a batch
	asked   time.Time
}

func newRecord(start time.Time) *record {
	return &record{start: start, owners: map[string]int{}, holding: map[int]bool{}, current: map[int]int{}}
}

// begin numbers an attempt of a client to have a request done.
func (r *record) begin(replica, client, request int) (number int) {
	r.mu.Lock()
	r.attempts = append(r.attempts, attempt{replica, request, time.Now()})
	number = len(r.attempts)
	r.current[client] = number
	r.mu.Unlock()
	r.add(Event{Attempt: number, Kind: "asked", Client: client})
	return number
}

// beginBatch numbers an attempt for the requests that wait in a replica.
func (r *record) beginBatch(replica int) (number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts = append(r.attempts, attempt{replica, r.batches, time.Now()})
	r.batches++
	return len(r.attempts)
}

// request returns the request of an attempt, or the number of a batch.
func (r *record) request(attempt int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if attempt == 0 { // a batch before the first that took a lock
		return 0
	}
	return r.attempts[attempt-1].request
}

// of returns the last attempt of a client, which sends one request at a time.
func (r *record) of(client int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current[client]
}

func (r *record) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.At = milliseconds(time.Since(r.start))
	if e.Attempt > 0 {
		e.Replica = r.attempts[e.Attempt-1].replica
	}
	switch e.Kind {
	case "lost":
		r.sample.Lost++
	case "stale":
		r.sample.Stale++
	case "paused", "dropped", "cut", "killed":
		r.sample.Faults++
	}
	if len(r.events) < eventsMax {
		r.events = append(r.events, e)
	}
}

// late notes what became of a message that arrived after its sender had given up.
func (r *record) late(attempt int, refused bool) {
	if refused {
		r.add(Event{Attempt: attempt, Kind: "stale", Note: "arrived late, and PostgreSQL refused its fence"})
	} else {
		r.add(Event{Attempt: attempt, Kind: "committed", Note: "arrived late"})
	}
}

// owns notes which attempt has a lease: an Observer is not told.
func (r *record) owns(owner string, attempt int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owners[owner] = attempt
}

// observe is the locking.Observer of a lane.
func (r *record) observe(e locking.Event) {
	r.mu.Lock()
	attempt := r.owners[e.Owner]
	switch e.Kind {
	case locking.Busy:
		r.sample.Busy++
	case locking.Acquired:
		r.waits = append(r.waits, milliseconds(e.Wait))
		r.holding[attempt] = true
	case locking.Released, locking.Lost, locking.Left:
		delete(r.holding, attempt)
	}
	r.mu.Unlock()
	switch e.Kind {
	case locking.Acquired, locking.Released, locking.Lost, locking.Left:
		event := Event{Attempt: attempt, Kind: string(e.Kind), Fence: e.Fence}
		if e.Err != nil {
			event.Note = e.Err.Error()
		}
		r.add(event)
	}
}

// holders returns the attempts that hold a lease, as far as they know.
func (r *record) holders() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.holding))
}

// back notes that the server of the locks is back, and which attempts have lost their locks.
func (r *record) back(kept bool, holders []int) {
	if kept {
		r.add(Event{Kind: "back", Note: "with its data"})
		return
	}
	r.add(Event{Kind: "back", Note: "without its data"})
	for _, attempt := range holders {
		r.add(Event{Attempt: attempt, Kind: "gone"})
	}
}

// waited notes that an attempt has its turn in a queue that has no Observer.
func (r *record) waited(attempt int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = append(r.waits, milliseconds(time.Since(r.attempts[attempt-1].asked)))
}

// counts returns the Count of a lesson.
func counts[K ~string](r *record) func(kind K, strategy string) {
	return func(kind K, _ string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch kind {
		case "retried", "guard_tripped":
			r.sample.Retried++
		case "conflict":
			r.sample.Busy++
		case "degraded", "bypassed":
			r.sample.Alone++
		}
	}
}

// answered notes the final answer to a request.
func (r *record) answered(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sample.Answered++
	r.latencies = append(r.latencies, milliseconds(took))
}

// now returns the counters and the events since the one numbered from.
func (r *record) now(from int) (Sample, []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sample
	s.At = milliseconds(time.Since(r.start))
	s.PerSecond = round(float64(s.Answered) / max(s.At, 1) * 1000)
	s.P50, s.P99 = quantiles(r.latencies)
	s.Wait50, s.Wait99 = quantiles(r.waits)
	return s, slices.Clone(r.events[from:])
}

// quantiles returns the median and the 99th percentile.
func quantiles(list []float64) (p50, p99 float64) {
	if len(list) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2], sorted[len(sorted)*99/100]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func round(x float64) float64 { return float64(int(x*10+0.5)) / 10 }

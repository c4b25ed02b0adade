package lab

import (
	"slices"
	"sync"
	"time"

	"shop/inventory"
	"shop/locking"
)

// Event is one moment of a purchase. Its Kind is one of:
//
//	asked      a buyer sends it
//	acquired   it holds the lock, with this fence
//	read       it has read the stock: under the row lock, if the strategy takes one
//	committed  its COMMIT was acknowledged
//	released   the lock was released
//	lost       the lease was lost
//	left       the lock was not released, because it was lost
//	paused     its replica stops (fault Pause)
//	resumed    … and goes on
//	dropped    the key of its lock was deleted in Redis (fault Drop)
//	sold       its answer: an order
//	refused    its answer: out of stock
//	failed     its answer: an error, in Note, after which nothing is written; the buyer sends the key again
//	unknown    its answer: an error, in Note, after which it may be written; the buyer sends the key again
type Event struct {
	At       float64       `json:"t"` // milliseconds since the start
	Purchase int           `json:"n"` // attempts to buy, from 1; of combined also its batches
	Kind     string        `json:"kind"`
	Replica  int           `json:"replica,omitempty"`
	Buyer    int           `json:"buyer,omitempty"`
	Fence    locking.Fence `json:"fence,omitempty"`
	Note     string        `json:"note,omitempty"`
}

// Sample is the state of a lane at one moment.
type Sample struct {
	At        float64 `json:"t"`
	Stock     `json:"stock"`
	Answered  int     `json:"answered"`   // purchases with a final answer
	PerSecond float64 `json:"per_second"` // … since the start
	P50       float64 `json:"p50"`        // milliseconds from the first attempt of a purchase to its final answer
	P99       float64 `json:"p99"`
	Wait50    float64 `json:"wait50"` // milliseconds until a lock was granted
	Wait99    float64 `json:"wait99"`
	Busy      int     `json:"busy"`    // requests for the lock that found another holder
	Lost      int     `json:"lost"`    // leases
	Retried   int     `json:"retried"` // transactions that PostgreSQL or a version check refused
	Alone     int     `json:"alone"`   // purchases that went on with the row lock alone
	Faults    int     `json:"faults"`  // faults that hit a holder
}

// eventsMax bounds the memory of a lane.
const eventsMax = 20_000

// record collects what happens in a lane.
type record struct {
	start time.Time

	mu        sync.Mutex
	events    []Event
	purchases int
	owners    map[string]int // owner of a lease → its purchase
	replica   map[int]int    // purchase → its replica
	latencies []float64
	waits     []float64
	sample    Sample // the counters
}

func newRecord(start time.Time) *record {
	return &record{start: start, owners: map[string]int{}, replica: map[int]int{}}
}

// begin numbers a purchase.
func (r *record) begin(kind string, replica, buyer int) (purchase int) {
	r.mu.Lock()
	r.purchases++
	purchase = r.purchases
	r.replica[purchase] = replica
	r.mu.Unlock()
	if kind != "" {
		r.add(Event{Purchase: purchase, Kind: kind, Buyer: buyer})
	}
	return purchase
}

func (r *record) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.At, e.Replica = milliseconds(time.Since(r.start)), r.replica[e.Purchase]
	if e.Kind == "lost" {
		r.sample.Lost++
	}
	if e.Kind == "paused" || e.Kind == "dropped" {
		r.sample.Faults++
	}
	if len(r.events) < eventsMax {
		r.events = append(r.events, e)
	}
}

// owns notes which purchase has a lease: an Observer is not told.
func (r *record) owns(owner string, purchase int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owners[owner] = purchase
}

// observe is the locking.Observer of a lane.
func (r *record) observe(e locking.Event) {
	r.mu.Lock()
	purchase := r.owners[e.Owner]
	switch e.Kind {
	case locking.Busy:
		r.sample.Busy++
	case locking.Acquired:
		r.waits = append(r.waits, milliseconds(e.Wait))
	}
	r.mu.Unlock()
	switch e.Kind {
	case locking.Acquired, locking.Released, locking.Lost, locking.Left:
		event := Event{Purchase: purchase, Kind: string(e.Kind), Fence: e.Fence}
		if e.Err != nil {
			event.Note = e.Err.Error()
		}
		r.add(event)
	}
}

// count is the inventory.Config.Count of a lane.
func (r *record) count(kind inventory.EventKind, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch kind {
	case inventory.Retried, inventory.GuardTripped:
		r.sample.Retried++
	case inventory.Degraded, inventory.Bypassed:
		r.sample.Alone++
	}
}

// answered notes the final answer to a purchase.
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

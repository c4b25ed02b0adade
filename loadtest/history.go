package loadtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Attempt is one request that was sent, or one that never got that far.
type Attempt struct {
	Key     string        `json:"key"`
	Replica int           `json:"replica"`
	Start   time.Duration `json:"start"` // since the start of the history, monotonic
	End     time.Duration `json:"end"`
	Status  int           `json:"status"` // 0: no answer
	Outcome Outcome       `json:"outcome"`
	Problem string        `json:"problem,omitempty"`
	Sends   int           `json:"sends"` // requests written for it: never more than 1, see Recorder
	Body    []byte        `json:"-"`     // of an answer to a read: each shows its own moment
}

// Record is all that is known of one intent.
type Record struct {
	Intent
	Planned  time.Duration // when the plan has its first request, on the clock of the attempts
	Outcome  Outcome       // of the key: final as soon as one attempt was
	Made     uuid.UUID     // the id in the answer
	Attempts []Attempt
	Diverged bool   // two final answers of this key differ: I-ONCE is broken
	Body     []byte // of the answer that decided it
	retried  bool
}

// History is what clients saw. It knows nothing of what the servers did.
type History struct {
	Epoch time.Time

	mu      sync.Mutex
	records map[string]*Record
	order   []*Record // as they were first seen
}

// NewHistory starts the clock.
func NewHistory() *History {
	return &History{Epoch: time.Now(), records: map[string]*Record{}}
}

// Now is the time of the history's clock.
func (h *History) Now() time.Duration { return time.Since(h.Epoch) }

// Intend makes an intent known that is to be sent now.
func (h *History) Intend(i Intent) *Record { return h.IntendAt(h.Now(), i) }

// IntendAt makes an intent known, before it is sent, with the time for which it is planned.
func (h *History) IntendAt(planned time.Duration, i Intent) *Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.intend(planned, i)
}

// IntendAll makes the intents of a schedule known that begins as soon as they are, and says when.
func (h *History) IntendAll(schedule []ScheduledRequest) (begin time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := len(h.order)
	for i, request := range schedule {
		if i == 0 || schedule[i-1].Intent != request.Intent { // the intent of a duplicate is known already
			h.intend(request.At, *request.Intent)
		}
	}
	begin = h.Now()
	for _, r := range h.order[known:] {
		r.Planned += begin
	}
	return begin
}

func (h *History) intend(planned time.Duration, i Intent) *Record {
	r := &Record{Intent: i, Planned: planned, Outcome: Open}
	h.records[i.Key] = r
	h.order = append(h.order, r)
	return r
}

// Add records an attempt that ended, with the body of its answer. It returns the
// record to retry if the key is not decided, and this is the first attempt that says
// so; or a copy of it, if it was this attempt that decided the key.
func (h *History) Add(a Attempt, body []byte) (retry, decided *Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.records[a.Key]
	if r == nil {
		return nil, nil // not one of ours: a warm-up
	}
	was := r.Outcome
	if r.Reads {
		a.Body = body
	}
	r.Attempts = append(r.Attempts, a)
	r.learn(a, body)
	switch {
	case r.Outcome.Final() && !was.Final():
		now := *r
		return nil, &now
	case r.Outcome.Final() || r.retried || r.abandoned():
		return nil, nil
	}
	r.retried = true
	return r, nil
}

// learn puts together what one more answer says with what is known already.
func (r *Record) learn(a Attempt, body []byte) {
	switch {
	case !a.Outcome.Final():
		if r.Outcome == Open && a.Outcome == Unknown {
			r.Outcome = Unknown
		}
		return
	case !r.Outcome.Final():
		r.Outcome, r.Body = a.Outcome, body
	case r.Reads:
		return // each answer stands for its own moment
	case r.Outcome != a.Outcome:
		r.Diverged = true // bought and refused: keep that it was bought
		if a.Outcome == OK {
			r.Outcome, r.Body = OK, body
		}
	case stored(a) && !bytes.Equal(r.Body, body):
		r.Diverged = true
	}
	if r.Outcome == OK {
		var answer struct{ ID uuid.UUID }
		_ = json.Unmarshal(r.Body, &answer) // no id: I-ACK finds nothing with it
		r.Made = answer.ID
	}
}

// abandoned tells whether a client has given up on a key of which each attempt is known to
// have done nothing.
func (r *Record) abandoned() bool { return r.GivesUp && r.Outcome == Open && len(r.Attempts) > 0 }

// kept are the refusals that a service stores with the key.
var kept = map[string]bool{
	"out-of-stock": true, "already-cancelled": true,
	"insufficient-funds": true, "expired": true, "already-settled": true,
}

// stored tells whether an answer must be repeated byte for byte.
func stored(a Attempt) bool {
	return a.Outcome == OK || kept[a.Problem]
}

// Record is a copy of what is known of a key; nothing, if it was never intended.
func (h *History) Record(key string) Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.records[key]; r != nil {
		return r.copy()
	}
	return Record{}
}

// tally counts the records so far, without a copy of them.
func (h *History) tally() (t tallied) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.order {
		t.add(r)
	}
	return t
}

// Records is a copy of all records so far, in the order of their first attempt.
func (h *History) Records() []Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	records := make([]Record, len(h.order))
	for i, r := range h.order {
		records[i] = r.copy()
	}
	return records
}

func (r *Record) copy() Record {
	c := *r
	c.Attempts = slices.Clone(r.Attempts)
	return c
}

// Last is the latest attempt; of no outcome if there was none.
func (r Record) Last() (last Attempt) {
	if n := len(r.Attempts); n > 0 {
		last = r.Attempts[n-1]
	}
	return last
}

// Ended describes how the latest attempt ended.
func (r Record) Ended() string {
	last := r.Last()
	if last.Outcome == "" {
		return "never sent"
	}
	return fmt.Sprintf("%s (%d %s)", last.Outcome, last.Status, last.Problem)
}

// Sent tells whether any attempt got as far as a connection.
func (r Record) Sent() bool {
	return slices.ContainsFunc(r.Attempts, func(a Attempt) bool { return a.Sends > 0 })
}

// deciding is the attempt that decided the key, if one did.
func (r Record) deciding() (a Attempt) {
	for _, a := range r.Attempts {
		if a.Outcome == r.Outcome && a.Outcome.Final() {
			return a
		}
	}
	return a
}

// Times are when a request may have had its effect, by the history's clock: not before its
// first attempt began, and not after the answer that decided its key (0 if none did). A read is of
// the attempt that decided it.
func (r Record) Times() (begun, answered time.Duration) {
	decided := r.deciding()
	if r.Reads {
		return decided.Start, decided.End
	}
	for i, a := range r.Attempts { // in the order in which they ended
		if i == 0 || a.Start < begun {
			begun = a.Start
		}
	}
	return begun, decided.End
}

// Problem is that of the answer that decided the key; "" if none did.
func (r Record) Problem() string { return r.deciding().Problem }

// Refused tells whether a key was decided by this refusal.
func (r Record) Refused(problem string) bool {
	return r.Outcome == Rejected && r.Problem() == problem
}

// Answer is the body of a success, as JSON whatever it was.
func (r Record) Answer() json.RawMessage {
	if r.Outcome != OK || !json.Valid(r.Body) {
		return json.RawMessage("{}")
	}
	return r.Body
}

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
}

// Record is all that is known of one intent.
type Record struct {
	Intent
	Outcome  Outcome   // of the key: final as soon as one attempt was
	Made     uuid.UUID // the id in the answer
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

// Intend makes an intent known, before it is sent.
func (h *History) Intend(i Intent) *Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &Record{Intent: i, Outcome: Open}
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
	r.Attempts = append(r.Attempts, a)
	r.learn(a, body)
	switch {
	case r.Outcome.Final() && !was.Final():
		now := *r
		return nil, &now
	case r.Outcome.Final() || r.retried:
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

// kept are the refusals that a service stores with the key.
var kept = map[string]bool{
	"out-of-stock": true, "already-cancelled": true,
	"insufficient-funds": true, "expired": true, "already-settled": true,
}

// stored tells whether an answer must be repeated byte for byte.
func stored(a Attempt) bool {
	return a.Outcome == OK || kept[a.Problem]
}

// Decided tells whether the key has a final outcome.
func (h *History) Decided(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.records[key].Outcome.Final()
}

func (h *History) outcome(r *Record) Outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	return r.Outcome
}

// answered tells whether the latest attempt for a key got a final answer.
func (h *History) answered(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	attempts := h.records[key].Attempts
	return len(attempts) > 0 && attempts[len(attempts)-1].Outcome.Final()
}

// Last describes how the latest attempt for a key ended.
func (h *History) Last(key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	attempts := h.records[key].Attempts
	if len(attempts) == 0 {
		return "never sent"
	}
	a := attempts[len(attempts)-1]
	return fmt.Sprintf("%s (%d %s)", a.Outcome, a.Status, a.Problem)
}

// Problem is that of the latest attempt for a key; "" if there was none.
func (h *History) Problem(key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	attempts := h.records[key].Attempts
	if len(attempts) == 0 {
		return ""
	}
	return attempts[len(attempts)-1].Problem
}

// Tally is how many keys there are, and how many of them are bought and refused.
func (h *History) Tally() (keys, ok, rejected int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.order {
		switch r.Outcome {
		case OK:
			ok++
		case Rejected:
			rejected++
		}
	}
	return len(h.order), ok, rejected
}

// Records is a copy of all records so far, in the order of their first attempt.
func (h *History) Records() []Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	records := make([]Record, len(h.order))
	for i, r := range h.order {
		records[i] = *r
		records[i].Attempts = slices.Clone(r.Attempts)
	}
	return records
}

// Sent tells whether any attempt got as far as a connection.
func (r Record) Sent() bool {
	for _, a := range r.Attempts {
		if a.Sends > 0 {
			return true
		}
	}
	return false
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

// SPDX-License-Identifier: MIT

package traffic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Attempt is one request, also one that was never sent because there was no connection.
type Attempt struct {
	Key       string        `json:"key"`
	Replica   int           `json:"replica"`
	Start     time.Duration `json:"start"` // since the start of the history, monotonic
	End       time.Duration `json:"end"`
	Status    int           `json:"status"` // 0: no answer
	Outcome   Outcome       `json:"outcome"`
	Problem   string        `json:"problem,omitempty"`
	Sends     int           `json:"sends"`               // requests written to a connection: at most 1, see Recorder
	Error     string        `json:"error,omitempty"`     // why there is no answer
	Stored    bool          `json:"-"`                   // the service stores this refusal with the key
	Duplicate bool          `json:"duplicate,omitempty"` // the answer says that an earlier request with the key had the effect
	Body      []byte        `json:"-"`                   // of the answer to a read: each answer shows the state of its own moment
}

// Record is everything that is known of one intent.
type Record struct {
	Intent
	Planned   time.Duration // the planned time of its first request, on the clock of the attempts
	Outcome   Outcome       // of the key: final as soon as one attempt has a final outcome
	Made      uuid.UUID     // the id in the answer
	Attempts  []Attempt
	Diverged  bool   // two final answers to this key differ: I-ONCE is broken
	Body      []byte // of the answer that decided it
	Differs   string // if Diverged: the first two answers that differ
	Reworded  string // two successes that History.Same takes for one, although their bytes differ
	retried   bool
	duplicate bool // only Duplicates have decided it so far: Body is that of one
}

// History is what the clients saw. It holds nothing that only the servers know.
type History struct {
	Epoch time.Time
	// Same reports whether a final answer agrees with the one that decided its key. nil: it must be the same byte
	// for byte.
	Same func(r Record, a Attempt, body []byte) bool

	mu      sync.Mutex
	records map[string]*Record
	order   []*Record // as they were first seen
}

// NewHistory returns an empty history, whose clock starts now.
func NewHistory() *History {
	return &History{Epoch: time.Now(), records: map[string]*Record{}}
}

// Now returns the time on the history's clock.
func (h *History) Now() time.Duration { return time.Since(h.Epoch) }

// Intend registers an intent that is planned for now.
func (h *History) Intend(i Intent) *Record { return h.IntendAt(h.Now(), i) }

// IntendAt registers an intent before it is sent, with its planned time.
func (h *History) IntendAt(planned time.Duration, i Intent) *Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.intend(planned, i)
}

// IntendAll registers the intents of a schedule, which begins when all are registered. It returns that time.
func (h *History) IntendAll(schedule []ScheduledRequest) (begin time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := len(h.order)
	for i, request := range schedule {
		if i == 0 || schedule[i-1].Intent != request.Intent { // a duplicate has the same intent
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

// Add records an attempt that has ended, with the body of its answer. It returns the record as retry, once
// for each key, if the key has to be retried, and a copy of it as decided if this attempt decided the key.
func (h *History) Add(a Attempt, body []byte) (retry, decided *Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.records[a.Key]
	if r == nil {
		return nil, nil // a key that was never registered: a warm-up
	}
	was := r.Outcome
	if r.Reads {
		a.Body = body
	}
	r.Attempts = append(r.Attempts, a)
	h.learn(r, a, body)
	switch {
	case r.Outcome.Final() && !was.Final():
		now := *r
		return nil, &now
	case r.Outcome.Final() || r.retried || r.Abandoned():
		return nil, nil
	}
	r.retried = true
	return r, nil
}

// learn merges one more answer into what is known of the key.
func (h *History) learn(r *Record, a Attempt, body []byte) {
	was := *r
	switch {
	case !a.Outcome.Final():
		if r.Outcome == Open && a.Outcome == Unknown {
			r.Outcome = Unknown
		}
		return
	case !r.Outcome.Final():
		r.Outcome, r.Body = a.Outcome, body
	case r.Reads:
		return // answers to a read may differ
	case r.Outcome != a.Outcome:
		r.Diverged = true // succeeded and refused: the success is kept
		if a.Outcome == OK {
			r.Outcome, r.Body = OK, body
		}
	case a.Duplicate:
		return // it says no more than is known
	case r.duplicate:
		r.Body = body // the answer of the request that had the effect
	case (a.Outcome == OK || a.Stored) && !h.same(*r, a, body):
		r.Diverged = true
	case a.Outcome == OK && !bytes.Equal(was.Body, body):
		r.Reworded = fmt.Sprintf("%s, and %s", Brief(was.Body), Brief(body))
	}
	r.duplicate = r.Outcome == OK && a.Duplicate
	if r.Diverged && r.Differs == "" {
		first := was.Deciding()
		r.Differs = fmt.Sprintf("%d %s, and %d %s", first.Status, Brief(was.Body), a.Status, Brief(body))
	}
	if r.Outcome == OK {
		var answer struct{ ID uuid.UUID }
		_ = json.Unmarshal(r.Body, &answer) // without an id, the check of I-ACK fails
		r.Made = answer.ID
	}
}

func (h *History) same(r Record, a Attempt, body []byte) bool {
	if h.Same != nil {
		return h.Same(r, a, body)
	}
	return bytes.Equal(r.Body, body)
}

// briefly bounds the answers in Record.Differs.
const briefly = 200

// Brief is the beginning of an answer, as text.
func Brief(body []byte) string {
	if len(body) > briefly {
		return strings.ToValidUTF8(string(body[:briefly]), "") + "…"
	}
	return strings.ToValidUTF8(string(body), "\uFFFD")
}

// Abandoned reports whether the client does not retry the key, although it is undecided: all its attempts
// are known to have done nothing.
func (r *Record) Abandoned() bool { return r.GivesUp && r.Outcome == Open && len(r.Attempts) > 0 }

// Record returns a copy of the record of a key; the zero Record if the key is not registered.
func (h *History) Record(key string) Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.records[key]; r != nil {
		return r.copy()
	}
	return Record{}
}

// Each calls see with each record so far, in the order of registration, and copies none: see must not keep it, nor use the
// history.
func (h *History) Each(see func(*Record)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.order {
		see(r)
	}
}

// Records returns a copy of all records so far, in the order of registration.
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

// Last returns the attempt that ended last; the zero Attempt if there is none.
func (r Record) Last() (last Attempt) {
	if n := len(r.Attempts); n > 0 {
		last = r.Attempts[n-1]
	}
	return last
}

// Ended describes the result of the last attempt.
func (r Record) Ended() string {
	last := r.Last()
	if last.Outcome == "" {
		return "never sent"
	}
	if last.Status == 0 {
		return fmt.Sprintf("%s (no answer: %s)", last.Outcome, last.Error)
	}
	return fmt.Sprintf("%s (%d %s)", last.Outcome, last.Status, last.Problem)
}

// Sent reports whether any attempt was written to a connection.
func (r Record) Sent() bool {
	return slices.ContainsFunc(r.Attempts, func(a Attempt) bool { return a.Sends > 0 })
}

// Deciding returns the attempt that decided the key, a Duplicate only if there is no other; the zero Attempt if
// none did.
func (r Record) Deciding() (decided Attempt) {
	for _, a := range r.Attempts {
		if a.Outcome != r.Outcome || !a.Outcome.Final() {
			continue
		}
		if !a.Duplicate {
			return a
		}
		if !decided.Duplicate {
			decided = a
		}
	}
	return decided
}

// Times returns the span in which a request can have had its effect, by the history's clock: from the
// start of its first attempt to the answer that decided its key (0 if none did). The span of a read is
// that of the attempt that decided it.
func (r Record) Times() (begun, answered time.Duration) {
	decided := r.Deciding()
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

// Status returns the status of the answer that decided the key, else that of the last answer; 0 if there
// is none.
func (r Record) Status() int { return cmp.Or(r.Deciding().Status, r.Last().Status) }

// Problem returns the problem of the answer that decided the key; "" if none did.
func (r Record) Problem() string { return r.Deciding().Problem }

// Refused reports whether this refusal decided the key.
func (r Record) Refused(problem string) bool {
	return r.Outcome == Rejected && r.Problem() == problem
}

// Answer returns the body of a success; {} if there was no success, or its body is not JSON.
func (r Record) Answer() json.RawMessage {
	if r.Outcome != OK || !json.Valid(r.Body) {
		return json.RawMessage("{}")
	}
	return r.Body
}

package loadtest

import (
	"time"

	"github.com/google/uuid"
)

// Intent is one thing a client wants, under one idempotency key. It is sent as
// often as it takes to learn what became of it.
type Intent struct {
	Client int // who sends it: its place among the credentials
	Key    string
	Action Action
	Method string
	Path   string
	Body   []byte
	Lines  []Stock // what a purchase asks for, or a cancellation gives back
	Move   *Move   // what a transfer is about
}

// Action is what a request asks for.
type Action string

// The actions. Buy and Cancel are inventory's, the others transfer's.
const (
	Buy      Action = "buy"
	Cancel   Action = "cancel"
	Pay      Action = "pay"
	Reserve  Action = "reserve"
	PostHold Action = "post"
	VoidHold Action = "void"
)

// begins tells whether it is something new, and does not only end what was begun.
func (a Action) begins() bool { return a == Buy || a == Pay || a == Reserve }

// contends lists what it has to be alone with: products, accounts.
func (i Intent) contends() []string {
	if m := i.Move; m != nil {
		return []string{m.From.String(), m.To.String()}
	}
	var names []string
	for _, l := range i.Lines {
		names = append(names, l.SKU)
	}
	return names
}

// Move is what a transfer is about.
type Move struct {
	From, To uuid.UUID
	Amount   int64     // to be moved or held; of a post: to be posted, 0 for all
	Hold     *Hold     // nil: it moves at once
	Of       uuid.UUID // the hold that is posted or voided
}

// Hold is one that is posted and voided at the same moment, on two replicas.
type Hold struct {
	For    time.Duration
	Settle time.Duration // when that comes, from its end on: mostly before it
	Part   bool          // half of it is posted
	Left   bool          // neither: the sweeper has to end it
	Post   int           // replica that is asked to
	Void   int
}

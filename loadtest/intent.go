package loadtest

import (
	"cmp"
	"time"

	"github.com/google/uuid"
)

// Intent is one thing a client wants, under one idempotency key. It is sent as
// often as it takes to learn what became of it.
type Intent struct {
	Client int    // who sends it: its place among the credentials
	Key    string // names it in the history
	Wire   string // the idempotency key that it is sent under, if that is another one: two may share it
	Action Action
	Method string
	Path   string
	Body   []byte
	Lines  []Stock // what a purchase asks for, or a cancellation gives back
	Move   *Move   // what a transfer is about, or something at a wallet
}

// Action is what a request asks for.
type Action string

// The actions. Buy and Cancel are inventory's, Credit and Debit wallet's, Pay is
// wallet's and transfer's, the others are transfer's.
const (
	Buy      Action = "buy"
	Cancel   Action = "cancel"
	Pay      Action = "pay"
	Reserve  Action = "reserve"
	PostHold Action = "post"
	VoidHold Action = "void"
	Credit   Action = "credit"
	Debit    Action = "debit"
)

// begins tells whether it is something new, and does not only end what was begun.
func (a Action) begins() bool {
	return a == Buy || a == Pay || a == Reserve || a == Credit || a == Debit
}

// wire is the idempotency key that it is sent under.
func (i Intent) wire() string { return cmp.Or(i.Wire, i.Key) }

// contends lists what it has to be alone with: products, accounts, wallets.
func (i Intent) contends() []string {
	if m := i.Move; m != nil {
		return m.ends()
	}
	var names []string
	for _, l := range i.Lines {
		names = append(names, l.SKU)
	}
	return names
}

// Move is what a transfer is about. A credit comes from nowhere, a debit goes there.
type Move struct {
	From, To uuid.UUID
	Amount   int64     // to be moved or held; of a post: to be posted, 0 for all
	Hold     *Hold     // nil: it moves at once
	Of       uuid.UUID // the hold that is posted or voided
}

// ends are the accounts, or wallets, that it has to do with.
func (m *Move) ends() (names []string) {
	for _, id := range []uuid.UUID{m.From, m.To} {
		if id != uuid.Nil {
			names = append(names, id.String())
		}
	}
	return names
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

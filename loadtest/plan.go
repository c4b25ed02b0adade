package loadtest

import (
	"time"

	"github.com/google/uuid"
)

// Load is what a plan is made from. The same Load gives the same plan, so that
// two strategies are asked exactly the same at the same moments.
type Load struct {
	Rate     int // intents per second
	Duration time.Duration
	Seed     int64
	Replicas int
}

// at is the moment of the i-th of n. (Duration times i, in integers, overflows
// within a day.)
func (l Load) at(i, n int) time.Duration {
	return time.Duration(float64(i) / float64(n) * float64(l.Duration))
}

// Shot is one request of a plan.
type Shot struct {
	At      time.Duration
	Replica int
	Intent  *Intent
}

// Plan is everything that will be sent, by whom, and what is there before.
type Plan struct {
	Clients  int       // how many send it
	Stock    []Stock   // on the shelf
	Accounts []Account // opened
	Intents  []*Intent
	Shots    []Shot // in order of At; one intent in twinEvery has two at the same moment
}

// Account is opened before the first shot.
type Account struct {
	ID       uuid.UUID
	Client   int // whose it is
	Opening  int64
	Currency string
}

// twinEvery: one intent in so many is sent twice at the same moment.
const twinEvery = 10

// Move is what a transfer is about.
type Move struct {
	From, To uuid.UUID
	Amount   int64
	Settle   *Settle   // how a hold is to end
	Hold     uuid.UUID // the one that is posted or voided
}

// Settle is when a hold is posted and voided, at the same moment on two replicas.
type Settle struct {
	At      time.Duration // from the end of the hold on: mostly before it
	Amount  int64         // to be posted; 0: all of it
	Replica int           // that is asked to post; the next one is asked to void
}

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
	Wallets  []Purse   // opened
	Intents  []*Intent
	Shots    []Shot // in order of At; one intent in twinEvery has two at the same moment
}

// Account is opened before the first shot.
type Account struct {
	ID       uuid.UUID
	Client   int // whose it is
	Opening  int64
	Currency string
	Ample    bool // suffices for all that it is asked for: it must never be refused
}

// Purse is a wallet that is opened before the first shot.
type Purse struct {
	ID       uuid.UUID
	Client   int // whose it is
	Opening  int64
	Currency string
	Ample    bool // suffices for all that it is asked for: it must never be refused
}

// twinEvery: one intent in so many is sent twice at the same moment.
const twinEvery = 10

package wallet

import (
	"context"
	"slices"
)

// runFunc runs a job with a strategy.
type runFunc func(*Service, context.Context, *job) (Reply, error)

// method is a Strategy with its code. One file each.
type method struct {
	Strategy
	queued bool // writers of one wallet wait for their turn in this process
	run    runFunc
}

var store = []string{"mongo"}

var methods []method

func init() { // the methods lead back to Service.With, which looks here
	methods = []method{
		{Strategy{"naive", false, store, "no transaction: reads, asks, and writes what it computed: of two credits at once, one is lost"}, false, (*Service).naive},
		{Strategy{"txn", false, store, "WithTransaction, read first: the balances are right, but a conflict comes at the end, and the bonus service is asked again"}, false, (*Service).txn},
		{Strategy{"constant-lock", false, store, "a lock that writes what is there already: a write that changes nothing locks nothing"}, false, (*Service).constantLock},
		{Strategy{"lock-late", false, store, "asks the bonus service, then locks: the loser of a conflict has asked already"}, false, (*Service).lockLate},
		{Strategy{"inc", true, store, "asks before the transaction, then one conditional $inc: safe where the bonus service is idempotent"}, true, (*Service).inc},
		{Strategy{"lockid", true, store, "a lockId that is new in each attempt comes first: the loser of a conflict has done nothing yet; a fair queue in front"}, true, (*Service).lockID},
	}
}

// Strategies lists the ways to run an operation, in the order of the story.
func Strategies() []Strategy {
	list := make([]Strategy, len(methods))
	for i, m := range methods {
		list[i] = m.Strategy
		list[i].Stores = slices.Clone(m.Stores)
	}
	return list
}

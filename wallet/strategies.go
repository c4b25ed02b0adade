// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"slices"
)

// runFunc runs an operation with a strategy.
type runFunc func(*Service, context.Context, *operation) (Reply, error)

// method is a Strategy with its code. One file each.
type method struct {
	Strategy
	queued bool // writers of one wallet wait in a queue of this process
	run    runFunc
}

var store = []string{"mongo"}

var methods []method

func init() { // an initializer would be a cycle: the methods refer to Service.With, which reads this table
	methods = []method{
		{Strategy{"naive", false, store, "no transaction: reads, calls the bonus service, and writes what it computed: of two concurrent credits, one is lost"}, false, (*Service).naive},
		{Strategy{"txn", false, store, "WithTransaction, read first: the balances are right, but a conflict comes at the end, and the bonus service is called again"}, false, (*Service).txn},
		{Strategy{"constant-lock", false, store, "a lock that writes a constant: a write that changes nothing locks nothing"}, false, (*Service).constantLock},
		{Strategy{"lock-late", false, store, "calls the bonus service, then locks: the loser of a conflict has called already"}, false, (*Service).lockLate},
		{Strategy{"inc", true, store, "calls the bonus service before the transaction, then one conditional $inc: safe if the bonus service is idempotent"}, true, (*Service).inc},
		{Strategy{"lockid", true, store, "first writes a lockId that is new in each attempt: the loser of a conflict has done nothing yet; a fair queue in front"}, true, (*Service).lockID},
		{Strategy{nameCombined, true, store, "lockid for all credits and debits of a wallet that wait in this process: one lock, one transaction, and the calls of the bonus service side by side"}, true, (*Service).combined},
	}
}

// Strategies returns all strategies, in the order of the lesson.
func Strategies() []Strategy {
	list := make([]Strategy, len(methods))
	for i, m := range methods {
		list[i] = m.Strategy
		list[i].Stores = slices.Clone(m.Stores)
	}
	return list
}

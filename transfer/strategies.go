// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"slices"

	"shop/locking"
)

// Strategy describes one way to move money.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string // "postgres", "etcd"
	Why    string   // one sentence
}

// runFunc runs an operation under a strategy's locks.
type runFunc func(*Service, context.Context, *operation) (Reply, error)

// method is a Strategy with its code. One file each.
type method struct {
	Strategy
	fenced bool
	run    runFunc
}

var (
	postgres = []string{"postgres"}
	both     = []string{"etcd", "postgres"}
)

var methods []method

func init() { // an initializer would be a cycle: the methods refer to Service.With, which reads this table
	methods = []method{
		{Strategy{"naive", false, postgres, "reads, checks, and writes what it computed: of two concurrent transfers, one is lost"}, false, (*Service).naive},
		{Strategy{"etcd-unfenced", false, both, "an etcd lock around read, work and write, outside of a transaction: right until a holder is late"}, true, (*Service).etcdUnfenced},
		{Strategy{"etcd-fence-only", true, both, "as etcd-unfenced, but the write compares its fence: this one predicate refuses a late holder; safe only beside strategies that carry a fence, not beside row or serializable"}, true, (*Service).etcdFenceOnly},
		{Strategy{"lease-id-fence", false, both, "a lock per transfer, and the id of its etcd lease as the fence, which is compared without a row lock"}, false, (*Service).leaseIDFence},
		{Strategy{keyless, false, both, "a lock and a fencing token per transfer, instead of an idempotency key: a repeated request gets a newer token, and pays again"}, false, (*Service).tokenPerTransfer},
		{Strategy{"row", true, postgres, "SELECT … FOR UPDATE of both accounts, in id order"}, false, (*Service).row},
		{Strategy{"serializable", true, postgres, "SERIALIZABLE: PostgreSQL aborts transactions that could not have run one at a time, and they are run again"}, false, (*Service).serializable},
		{Strategy{"etcd-fenced", true, both, "an etcd lock on both accounts to queue outside PostgreSQL; a guard to be right: fence check, row lock and read in one statement"}, true, (*Service).etcdFenced},
		{Strategy{nameCombined, true, both, "etcd-fenced for all transfers that wait in this process for the same accounts: one lease, one guard of each row, one transaction"}, true, (*Service).combined},
	}
}

func (m method) usesEtcd() bool { return slices.Contains(m.Stores, "etcd") }

// locks returns the lock store that the method uses.
func (m method) locks(s *Service) locking.Store {
	if m.Name == "lease-id-fence" {
		return s.cfg.LeaseIDs
	}
	return s.cfg.Locks
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

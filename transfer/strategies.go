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

func init() { // the methods lead back to Service.With, which looks here
	methods = []method{
		{Strategy{"naive", false, postgres, "reads, checks, and writes what it computed: of two transfers at once, one is lost"}, false, (*Service).naive},
		{Strategy{"etcd-unfenced", false, both, "an etcd lock around read, work and write, outside of a transaction: right until a holder is late"}, true, (*Service).etcdUnfenced},
		{Strategy{"etcd-fence-only", true, both, "the same, and the write names its fence: one predicate more, and a late holder is refused; safe beside strategies that bring a fence only, not beside row or serializable"}, true, (*Service).etcdFenceOnly},
		{Strategy{"lease-id-fence", false, both, "a lock per transfer, the id of its etcd lease for a fence, compared before the rows are locked"}, false, (*Service).leaseIDFence},
		{Strategy{"row", true, postgres, "SELECT … FOR UPDATE of both accounts, in id order"}, false, (*Service).row},
		{Strategy{"serializable", true, postgres, "SERIALIZABLE: PostgreSQL aborts what could not have run one after the other, and it is run again"}, false, (*Service).serializable},
		{Strategy{"etcd-fenced", true, both, "an etcd lock on both accounts to queue outside PostgreSQL; a guard that is fence check, row lock and read in one to be right"}, true, (*Service).etcdFenced},
	}
}

func (m method) usesEtcd() bool { return slices.Contains(m.Stores, "etcd") }

// locks is the store that the method asks.
func (m method) locks(s *Service) locking.Store {
	if m.Name == "lease-id-fence" {
		return s.cfg.LeaseIDs
	}
	return s.cfg.Locks
}

// Strategies lists the ways to move money, in the order of the story.
func Strategies() []Strategy {
	list := make([]Strategy, len(methods))
	for i, m := range methods {
		list[i] = m.Strategy
		list[i].Stores = slices.Clone(m.Stores)
	}
	return list
}

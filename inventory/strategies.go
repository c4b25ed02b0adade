// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// Strategy describes one way to take stock.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string // "postgres", "redis"
	Why    string   // one sentence
}

// method is a Strategy with its code. One file each.
type method struct {
	Strategy
	buy    func(*Service, context.Context, *purchase) (Reply, error)
	cancel func(*Service, context.Context, Request, uuid.UUID) (Reply, error) // nil: the row locks suffice beside it
	batch  bool                                                               // of purchases of one product, which looks up their keys
}

var (
	postgres = []string{"postgres"}
	both     = []string{"redis", "postgres"}
)

var methods = []method{
	{Strategy{"naive", false, postgres, "reads, checks, and writes the computed value: two buyers of the last unit both get it"}, (*Service).naive, nil, false},
	{Strategy{"redis-only", false, both, "naive under a Redis lock: right until the lock is lost, which PostgreSQL does not notice"}, (*Service).redisOnly, (*Service).redisOnlyCancel, false},
	{Strategy{"redis+row", true, both, "a Redis lock to queue outside PostgreSQL, SELECT … FOR UPDATE to be right"}, (*Service).redisRow, nil, false},
	{Strategy{"combined", true, both, "a Redis lock taken once for all requests that wait for a product in this process, and one transaction for their purchases"}, (*Service).combined, nil, true},
	{Strategy{"row", true, postgres, "SELECT … FOR UPDATE: the second buyer waits, and reads what the first committed"}, (*Service).row, nil, false},
	{Strategy{"atomic", true, postgres, "UPDATE … WHERE stock >= quantity: check and write are one statement"}, (*Service).atomic, nil, false},
	{Strategy{"optimistic", true, postgres, "UPDATE … WHERE version = the version read: if it changed, the purchase runs again"}, (*Service).optimistic, nil, false},
	{Strategy{"serializable", true, postgres, "SERIALIZABLE: PostgreSQL aborts purchases that no serial order explains, and they run again"}, (*Service).serializable, nil, false},
	{Strategy{"advisory", true, postgres, "pg_advisory_xact_lock on a hash of the sku: buyers queue, no row is locked while they wait"}, (*Service).advisory, nil, false},
	{Strategy{"advisory-try", true, postgres, "advisory with pg_try_advisory_xact_lock: a waiting buyer returns its connection and tries again"}, (*Service).advisoryTry, nil, false},
	{Strategy{"slots", true, postgres, "FOR UPDATE SKIP LOCKED: the stock is divided into rows, and a buyer skips those that others have locked"}, (*Service).slots, nil, false},
}

const nameCombined = "combined" // for the products of Config.Hot

// find finds a strategy, and checks that Config has its stores.
func (s *Service) find(name string) (method, error) {
	n := slices.IndexFunc(methods, func(m method) bool { return m.Name == name })
	switch {
	case n < 0:
		return method{}, fmt.Errorf("%w: no strategy %q", ErrInvalid, name)
	case s.cfg.Locks == nil && slices.Contains(methods[n].Stores, "redis"):
		return method{}, fmt.Errorf("inventory: strategy %q needs Config.Locks", name)
	}
	return methods[n], nil
}

// Strategies lists all strategies, the unsafe ones first.
func Strategies() []Strategy {
	list := make([]Strategy, len(methods))
	for i, m := range methods {
		list[i] = m.Strategy
		list[i].Stores = slices.Clone(m.Stores)
	}
	return list
}

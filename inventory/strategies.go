package inventory

import (
	"context"
	"fmt"
	"slices"
)

// Strategy describes one way to take stock.
type Strategy struct {
	Name   string
	Safe   bool
	Stores []string // "postgres", "redis"
	Why    string   // one sentence
}

type buyFunc func(*Service, context.Context, *purchase) (Reply, error)

// method is a Strategy with its code. One file each.
type method struct {
	Strategy
	buy buyFunc
}

var (
	postgres = []string{"postgres"}
	both     = []string{"redis", "postgres"}
)

var methods = []method{
	{Strategy{"naive", false, postgres, "reads, checks, and writes what it computed: two buyers of the last piece both get it"}, (*Service).naive},
	{Strategy{"redis-only", false, both, "the same under a Redis lock: right until the lock is lost, which PostgreSQL does not notice"}, (*Service).redisOnly},
	{Strategy{"redis+row", true, both, "a Redis lock to queue outside PostgreSQL, SELECT … FOR UPDATE to be right"}, (*Service).redisRow},
	{Strategy{"row", true, postgres, "SELECT … FOR UPDATE: the second buyer waits, and reads what the first committed"}, (*Service).row},
	{Strategy{"atomic", true, postgres, "UPDATE … WHERE stock >= quantity: check and write are one statement"}, (*Service).atomic},
	{Strategy{"optimistic", true, postgres, "UPDATE … WHERE version = the one that was read: the second buyer starts again"}, (*Service).optimistic},
	{Strategy{"serializable", true, postgres, "SERIALIZABLE: PostgreSQL aborts what could not have come one after the other, and it runs again"}, (*Service).serializable},
	{Strategy{"advisory", true, postgres, "pg_advisory_xact_lock on a hash of the sku: buyers queue, no row is locked while they wait"}, (*Service).advisory},
	{Strategy{"advisory-try", true, postgres, "pg_try_advisory_xact_lock: the same, but a buyer gives its connection back and asks again"}, (*Service).advisoryTry},
}

// method finds a strategy, and checks that what it needs is there.
func (s *Service) method(name string) (buyFunc, error) {
	for _, m := range methods {
		if m.Name != name {
			continue
		}
		if s.cfg.Locks == nil && slices.Contains(m.Stores, "redis") {
			return nil, fmt.Errorf("inventory: strategy %q needs Config.Locks", name)
		}
		return m.buy, nil
	}
	return nil, fmt.Errorf("%w: no strategy %q", ErrInvalid, name)
}

// Strategies lists the ways to take stock, from the most naive to the least.
func Strategies() []Strategy {
	list := make([]Strategy, len(methods))
	for i, m := range methods {
		list[i] = m.Strategy
		list[i].Stores = slices.Clone(m.Stores)
	}
	return list
}

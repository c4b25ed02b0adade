package inventory

import (
	"context"
	"slices"
)

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
	{Strategy{"row", true, postgres, "SELECT … FOR UPDATE: the second reads what the first committed"}, (*Service).row},
}

func (m method) usesRedis() bool { return slices.Contains(m.Stores, "redis") }

// Strategies lists the ways to take stock, from the most naive to the least.
func Strategies() []Strategy {
	list := make([]Strategy, len(methods))
	for i, m := range methods {
		list[i] = m.Strategy
		list[i].Stores = slices.Clone(m.Stores)
	}
	return list
}

// SPDX-License-Identifier: MIT

package money

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"shop/loadtest/linear"
)

// Partitions splits a history into one partition for each group of accounts, whose parts are the
// single accounts. joined puts accounts that pay each other into one group. view returns the steps
// of the history that concern some accounts, which start with their opening balances.
func Partitions(h linear.Header, joined func(Groups), view func(opening map[string]int64, members ...string) linear.Partition) ([]linear.Partition, error) {
	var given []Account
	if err := json.Unmarshal(h.Given, &given); err != nil {
		return nil, fmt.Errorf("accounts of the plan: %w", err)
	}
	opening, groups := map[string]int64{}, Groups{}
	for _, a := range given {
		opening[a.ID.String()] = a.Opening
		groups.Find(a.ID.String())
	}
	joined(groups)
	var partitions []linear.Partition
	for _, members := range groups.All() {
		p := view(opening, members...)
		if len(members) > 1 {
			for _, one := range members {
				p.Parts = append(p.Parts, view(opening, one))
			}
		}
		if len(p.Steps) > 0 {
			partitions = append(partitions, p)
		}
	}
	return partitions, nil
}

// Groups is a union-find forest of the accounts that pay each other: the parent of each account
// is another account of its group, or itself.
type Groups map[string]string

// Find returns the representative of an account's group. A new account is a group of its own.
func (g Groups) Find(id string) string {
	if g[id] == "" {
		g[id] = id
	}
	for g[id] != id {
		g[id] = g[g[id]]
		id = g[id]
	}
	return id
}

// Join merges the groups of two accounts.
func (g Groups) Join(a, b string) { g[g.Find(a)] = g.Find(b) }

// All returns the groups, each sorted by id.
func (g Groups) All() (all [][]string) {
	members := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(g)) {
		first := g.Find(id)
		members[first] = append(members[first], id)
	}
	for _, group := range members {
		all = append(all, group)
	}
	slices.SortFunc(all, slices.Compare)
	return all
}

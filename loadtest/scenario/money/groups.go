package money

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"shop/loadtest/linear"
)

// Partitions are those of a history: one for each group of accounts, whose parts are the single
// accounts. joined makes those that pay each other one group; view is the history as some
// accounts see it, which had so much in the beginning.
func Partitions(h linear.Header, joined func(Groups), view func(opening map[string]int64, members ...string) linear.Partition) ([]linear.Partition, error) {
	var given []Account
	if err := json.Unmarshal(h.Given, &given); err != nil {
		return nil, fmt.Errorf("the accounts that were there: %w", err)
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

// Groups are accounts that pay each other, by id: each has another account of its group, or
// itself.
type Groups map[string]string

// Find is the account that stands for the group of one, which is alone at first.
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

// Join makes two accounts, and their groups, one group.
func (g Groups) Join(a, b string) { g[g.Find(a)] = g.Find(b) }

// All are the groups, each in the order of its ids.
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

package money

import (
	"maps"
	"slices"
)

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

// SPDX-License-Identifier: MIT

package money

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"shop/loadtest/linear"
)

// Books is the state of the models of money.
type Books struct {
	Accounts []Balance
	Deals    []byte // the states of transfers, named by the flow
}

// Balance is the state of an account.
type Balance struct {
	Amount, Held int64
	Unsure       bool // an unknown amount was added
}

// Available is what can be spent.
func (b Balance) Available() int64 { return b.Amount - b.Held }

// Covers reports whether an amount can be spent.
func (b Balance) Covers(amount int64) bool { return b.Unsure || b.Available() >= amount }

// Equal and String make it a linear.State.
func (b Books) Equal(other linear.State) bool {
	o := other.(Books)
	return slices.Equal(b.Accounts, o.Accounts) && bytes.Equal(b.Deals, o.Deals)
}

func (b Books) String() string {
	var text []string
	for _, a := range b.Accounts {
		text = append(text, fmt.Sprintf("%d (%d held)", a.Amount, a.Held))
	}
	return strings.Join(text, ", ")
}

// View is a history restricted to some accounts: all of a group, or one.
type View struct {
	linear.Partition
	Opened Books
	places map[string]int // in Books.Accounts
}

// Partitions splits a history into one partition for each group of accounts, whose parts are the
// single accounts. joined puts accounts that pay each other into one group. fill adds the steps
// that concern the accounts of a view, which begin with their opening balances. called is what the flow calls an account.
func Partitions(h linear.Header, called string, joined func(Groups), fill func(*View)) ([]linear.Partition, error) {
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
	view := func(members ...string) linear.Partition {
		v := &View{places: map[string]int{}}
		if v.Object = called + " " + members[0]; len(members) > 1 {
			v.Object = fmt.Sprintf("the %d %ss from %s on", len(members), called, members[0])
		}
		for i, id := range members {
			v.places[id] = i
			v.Opened.Accounts = append(v.Opened.Accounts, Balance{Amount: opening[id]})
		}
		fill(v)
		v.Start = v.Opened
		return v.Partition
	}
	var partitions []linear.Partition
	for _, members := range groups.All() {
		p := view(members...)
		if len(members) > 1 {
			for _, one := range members {
				p.Parts = append(p.Parts, view(one))
			}
		}
		if len(p.Steps) > 0 {
			partitions = append(partitions, p)
		}
	}
	return partitions, nil
}

// At returns the place of an account, if it is in the view.
func (v *View) At(id string) (int, bool) {
	i, has := v.places[id]
	return i, has
}

// Does adds a step with an effect: change updates a copy of the state, and reports whether the step
// is legal.
func (v *View) Does(s linear.Step, change func(*Books) bool) {
	v.Steps = append(v.Steps, s.Does(func(s linear.State) (linear.State, bool) {
		was := s.(Books)
		b := Books{slices.Clone(was.Accounts), slices.Clone(was.Deals)}
		ok := change(&b)
		return b, ok
	}))
}

// Checks adds a step that changes nothing.
func (v *View) Checks(s linear.Step, holds func(Books) bool) {
	v.Steps = append(v.Steps, s.Checks(func(s linear.State) bool { return holds(s.(Books)) }))
}

// Never adds a step that is never legal.
func (v *View) Never(s linear.Step) { v.Steps = append(v.Steps, s.Never()) }

// Pay adds a payment, or its refusal. from or to may be no account. gets is what the payee gets; nil: at least the amount.
// also is done with the payer's part.
func (v *View) Pay(o *linear.Operation, from, to string, amount int64, gets *int64, also func(*Books)) {
	payer, pays := v.At(from)
	payee, paid := v.At(to)
	step := linear.NewStep(o, fmt.Sprintf("%s: %s %d", o.Key, o.Action, amount))
	switch fate := o.Fate(); {
	case !pays && !paid, fate == linear.Refused && !pays: // it concerns other accounts, or says nothing about the payee
	case fate == linear.Contradiction:
		v.Never(step)
	case fate == linear.Refused:
		v.Refuse(o, payer, amount)
	default:
		v.Does(step, func(b *Books) bool {
			enough := true
			if pays {
				enough = b.Accounts[payer].Covers(amount)
				b.Accounts[payer].Amount -= amount
				also(b)
			}
			if paid && gets != nil {
				b.Accounts[payee].Amount += *gets
			} else if paid {
				b.Accounts[payee].Amount += amount
				b.Accounts[payee].Unsure = true
			}
			return enough
		})
	}
}

// Refuse adds a refusal for lack of funds, which states the available amount.
func (v *View) Refuse(o *linear.Operation, from int, amount int64) {
	var why struct{ Available *int64 }
	o.ReadAnswer(&why)
	step := linear.NewStep(o, fmt.Sprintf("%s: %d refused", o.Key, amount))
	if why.Available != nil {
		step.Text += fmt.Sprintf(", %d available", *why.Available)
	}
	v.Checks(step, func(b Books) bool {
		a := b.Accounts[from]
		return a.Unsure || a.Available() < amount && (why.Available == nil || *why.Available == a.Available())
	})
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

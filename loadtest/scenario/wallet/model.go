// SPDX-License-Identifier: MIT

package wallet

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"shop/loadtest"
	"shop/loadtest/linear"
	"shop/loadtest/scenario/money"
)

// A partition is a group of wallets that pay each other: a connected component, computed from
// the requests. Its parts are the single wallets.

// walletState is the state of one wallet.
type walletState struct {
	balance int64
	unsure  bool // a credit with an unknown bonus may have happened
}

func (p walletState) add(n int64) walletState { return walletState{p.balance + n, p.unsure} }

// walletStates is the state of the model. A step works on a copy.
type walletStates []walletState

// Equal and String make them a linear.State.
func (p walletStates) Equal(other linear.State) bool { return slices.Equal(p, other.(walletStates)) }

func (p walletStates) String() string {
	balances := make([]int64, len(p))
	for i := range p {
		balances[i] = p[i].balance
	}
	return fmt.Sprint(balances)
}

// change is the effect of an operation on wallets.
type change struct {
	of       *linear.Operation
	from, to string // "": a credit has no payer, a debit no payee
	amount   int64
	bonus    *int64 // nil: unknown
}

// model holds the changes and the reads of a history.
type model struct {
	changes []change
	reads   []*linear.Operation
	late    bool // a read may show an earlier state
}

// staleUnder lists the faults under which a deposed primary does not know for a while that it is
// deposed. It answers reads from an earlier state (SERVER-89619), but no majority acknowledges
// its writes. A nemesis injects these faults too.
var staleUnder = []loadtest.Fault{StepDown, PrimaryPause, PrimaryKill, loadtest.Nemesis}

// staleMost bounds the age of the state that a deposed primary shows: no fault stops one for longer.
const staleMost = int64(30 * time.Second)

// linearize returns the partitions of a history.
func linearize(h linear.History) ([]linear.Partition, error) {
	m := model{late: slices.Contains(staleUnder, loadtest.Fault(h.Header.Fault))}
	for i := range h.Operations {
		m.sort(&h.Operations[i])
	}
	return money.Partitions(h.Header, func(groups money.Groups) {
		for _, c := range m.changes {
			if c.from != "" && c.to != "" {
				groups.Join(c.from, c.to)
			}
		}
	}, m.view)
}

// sort adds an operation to the changes or the reads, if it has an effect or an answer to check.
func (m *model) sort(o *linear.Operation) {
	if _, is := o.PathIs(http.MethodGet, "/v1/wallets/*"); is && o.Fate() == linear.Done {
		m.reads = append(m.reads, o)
	}
	if o.Fate() == linear.Nothing || o.Fate() == linear.Refused && o.Problem != money.Short {
		return // not valid, whatever the balance
	}
	var asked struct {
		Amount int64
		To     uuid.UUID
	}
	o.Asked(&asked)
	none := int64(0)
	if id, is := o.PathIs(http.MethodPost, "/v1/wallets/*/credits"); is {
		var answer struct{ Bonus *int64 }
		o.ReadAnswer(&answer)
		m.changes = append(m.changes, change{o, "", id[0], asked.Amount, answer.Bonus})
	}
	if id, is := o.PathIs(http.MethodPost, "/v1/wallets/*/debits"); is {
		m.changes = append(m.changes, change{o, id[0], "", asked.Amount, &none})
	}
	if id, is := o.PathIs(http.MethodPost, "/v1/wallets/*/payments"); is {
		m.changes = append(m.changes, change{o, id[0], asked.To.String(), asked.Amount, &none})
	}
}

// view restricts the history to some wallets.
func (m model) view(opening map[string]int64, members ...string) linear.Partition {
	p := linear.Partition{Object: "wallet " + members[0]}
	if len(members) > 1 {
		p.Object = fmt.Sprintf("the %d wallets from %s on", len(members), members[0])
	}
	var start walletStates
	places := map[string]int{}
	for i, id := range members {
		places[id] = i
		start = append(start, walletState{balance: opening[id]})
	}
	p.Start = start
	for _, c := range m.changes {
		from, pays := places[c.from]
		to, gets := places[c.to]
		if step, says := c.step(from, to, pays, gets); says {
			p.Steps = append(p.Steps, step)
		}
	}
	for _, o := range m.reads {
		var shown struct {
			ID      string
			Balance int64
		}
		if at, has := places[pathID(o)]; has && o.ReadAnswer(&shown) {
			step := linear.NewStep(o, fmt.Sprintf("%s: balance %d", o.Key, shown.Balance))
			if m.late {
				step.Call = max(0, step.Call-staleMost)
			}
			p.Steps = append(p.Steps, step.Checks(func(s linear.State) bool {
				w := s.(walletStates)[at]
				return w.unsure || w.balance == shown.Balance
			}))
		}
	}
	return p
}

func pathID(o *linear.Operation) string {
	id, _ := o.PathIs(http.MethodGet, "/v1/wallets/*")
	return id[0]
}

// step returns the change for a view that contains the payer, the payee, or both; says is false if
// the change concerns neither.
func (c change) step(from, to int, pays, gets bool) (step linear.Step, says bool) {
	step = linear.NewStep(c.of, fmt.Sprintf("%s: %s %d", c.of.Key, c.of.Action, c.amount))
	switch fate := c.of.Fate(); {
	case !pays && !gets, fate == linear.Refused && !pays:
		return step, false
	case fate == linear.Contradiction:
		return step.Never(), true
	case fate == linear.Refused:
		var why struct{ Available *int64 }
		c.of.ReadAnswer(&why)
		step.Text += " refused"
		return step.Checks(func(s linear.State) bool {
			w := s.(walletStates)[from]
			return w.unsure || w.balance < c.amount && (why.Available == nil || *why.Available == w.balance)
		}), true
	}
	return step.Does(func(s linear.State) (linear.State, bool) {
		p, enough := slices.Clone(s.(walletStates)), true
		if pays {
			enough = p[from].unsure || p[from].balance >= c.amount
			p[from] = p[from].add(-c.amount)
		}
		if gets {
			if p[to] = p[to].add(c.amount); c.bonus != nil {
				p[to] = p[to].add(*c.bonus)
			} else {
				p[to].unsure = true
			}
		}
		return p, enough
	}), true
}

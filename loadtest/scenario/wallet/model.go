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

// change is the effect of an operation on wallets.
type change struct {
	of       *linear.Operation
	from, to string // "": a credit has no payer, a debit no payee
	amount   int64
	gets     *int64 // nil: a credit's bonus is unknown
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
	return money.Partitions(h.Header, "wallet", func(groups money.Groups) {
		for _, c := range m.changes {
			if c.from != "" && c.to != "" {
				groups.Join(c.from, c.to)
			}
		}
	}, m.view)
}

// sort adds an operation to the changes or the reads, if it has an effect or an answer to check.
func (m *model) sort(o *linear.Operation) {
	switch fate := o.Fate(); {
	case o.Method == http.MethodGet:
		if _, is := o.PathIs(http.MethodGet, "/v1/wallets/*"); is && fate == linear.Done {
			m.reads = append(m.reads, o)
		}
		return
	case fate == linear.Nothing, fate == linear.Refused && o.Problem != money.Short:
		return // not valid, whatever the balance
	}
	var asked struct {
		Amount int64
		To     uuid.UUID
	}
	o.Asked(&asked)
	c := change{of: o, amount: asked.Amount, gets: &asked.Amount}
	if id, is := o.PathIs(http.MethodPost, "/v1/wallets/*/credits"); is {
		var answer struct{ Bonus *int64 }
		if o.ReadAnswer(&answer); answer.Bonus != nil {
			*answer.Bonus += asked.Amount
		}
		c.to, c.gets = id[0], answer.Bonus
	}
	if id, is := o.PathIs(http.MethodPost, "/v1/wallets/*/debits"); is {
		c.from = id[0]
	}
	if id, is := o.PathIs(http.MethodPost, "/v1/wallets/*/payments"); is {
		c.from, c.to = id[0], asked.To.String()
	}
	m.changes = append(m.changes, c)
}

// view adds the steps that concern some wallets.
func (m model) view(v *money.View) {
	for _, c := range m.changes {
		v.Pay(c.of, c.from, c.to, c.amount, c.gets, func(*money.Books) {})
	}
	for _, o := range m.reads {
		var shown struct{ Balance int64 }
		id, _ := o.PathIs(http.MethodGet, "/v1/wallets/*")
		if at, has := v.At(id[0]); has && o.ReadAnswer(&shown) {
			step := linear.NewStep(o, fmt.Sprintf("%s: balance %d", o.Key, shown.Balance))
			if m.late {
				step.Call = max(0, step.Call-staleMost)
			}
			v.Checks(step, func(b money.Books) bool {
				w := b.Accounts[at]
				return w.Unsure || w.Amount == shown.Balance
			})
		}
	}
}

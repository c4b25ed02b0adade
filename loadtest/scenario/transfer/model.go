// SPDX-License-Identifier: MIT

package transfer

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/linear"
	"shop/loadtest/scenario/money"
)

// A partition is a group of accounts that pay each other: a connected component, computed
// from the requests. Its state is the balance and held amount of each account, and the state
// of each hold. Its parts are the single accounts.

// books is the state of the model. A step works on a copy.
type books struct {
	accounts []account
	deals    []byte // the state of each transfer that is a hold, or that a request names
}

type account struct{ balance, held int64 }

func (a account) available() int64 { return a.balance - a.held }

// The states of a transfer.
const (
	absent   = '-'
	reserved = 'r'
	posted   = 'p'
	voided   = 'v'
	expired  = 'x'
)

// Equal and String make it a linear.State.
func (b books) Equal(other linear.State) bool {
	o := other.(books)
	return slices.Equal(b.accounts, o.accounts) && bytes.Equal(b.deals, o.deals)
}

func (b books) String() string {
	var text []string
	for _, a := range b.accounts {
		text = append(text, fmt.Sprintf("%d (%d held)", a.balance, a.held))
	}
	return strings.Join(text, ", ")
}

// deal is a requested transfer.
type deal struct {
	of       *linear.Operation
	id       string // from its answer
	from, to string
	amount   int64
	lasts    time.Duration // of a hold
	tracked  bool          // has a place in books.deals: it is a hold, or a request names it
}

func (d *deal) isHold() bool { return d.lasts > 0 }

// model holds the operations of a history, and its transfers.
type model struct {
	linear.History
	deals []*deal
	byID  map[string]*deal
}

// linearize returns the partitions of a history.
func linearize(h linear.History) ([]linear.Partition, error) {
	m := model{History: h, byID: map[string]*deal{}}
	m.findDeals()
	return money.Partitions(h.Header, func(groups money.Groups) {
		for _, d := range m.deals {
			groups.Join(d.from, d.to)
		}
	}, m.view)
}

// findDeals finds the transfers that were made, may have been made, or were refused for lack of funds.
func (m *model) findDeals() {
	about := map[string]bool{} // the transfers that requests name
	for i := range m.Operations {
		if parts := strings.Split(m.Operations[i].Path, "/"); len(parts) > 3 && parts[2] == "transfers" {
			about[parts[3]] = true
		}
	}
	for i := range m.Operations {
		o := &m.Operations[i]
		if _, is := o.PathIs(http.MethodPost, "/v1/transfers"); !is {
			continue
		}
		var asked struct {
			From, To  uuid.UUID
			Amount    int64
			ExpiresIn string `json:"expires_in"`
		}
		if !o.Asked(&asked) || o.Fate() == linear.Nothing || o.Fate() == linear.Refused && o.Problem != money.Short {
			continue // malformed or forbidden on purpose
		}
		d := &deal{of: o, from: asked.From.String(), to: asked.To.String(), amount: asked.Amount}
		d.lasts, _ = time.ParseDuration(asked.ExpiresIn)
		m.deals = append(m.deals, d)
		if fate := o.Fate(); fate != linear.Done && fate != linear.Maybe {
			continue
		}
		var made struct{ ID string }
		if d.of.ReadAnswer(&made) && made.ID != "" {
			d.id, m.byID[made.ID] = made.ID, d
		}
		d.tracked = d.isHold() || about[d.id]
	}
}

// view is a history restricted to some accounts: all of a group, or one.
type view struct {
	*model
	steps  *[]linear.Step
	places map[string]int // in books.accounts
	tracks map[*deal]int  // in books.deals, if the payer is in the view
}

// at returns the place of an account, if it is in the view.
func (v view) at(id string) (int, bool) {
	i, has := v.places[id]
	return i, has
}

func (m *model) view(opening map[string]int64, members ...string) linear.Partition {
	p := linear.Partition{Object: "account " + members[0]}
	if len(members) > 1 {
		p.Object = fmt.Sprintf("the %d accounts from %s on", len(members), members[0])
	}
	v := view{m, &p.Steps, map[string]int{}, map[*deal]int{}}
	start := books{}
	for i, id := range members {
		v.places[id] = i
		start.accounts = append(start.accounts, account{balance: opening[id]})
	}
	for _, d := range m.deals {
		if _, has := v.at(d.from); has && d.tracked {
			v.tracks[d] = len(start.deals)
			start.deals = append(start.deals, absent)
		}
	}
	p.Start = start
	for _, d := range m.deals {
		v.begin(d)
	}
	v.ends()
	for i := range m.Operations {
		v.read(&m.Operations[i])
	}
	return p
}

// add adds a step with an effect: change updates a copy of the state, and reports whether the step
// is legal.
func (v view) add(s linear.Step, change func(*books) bool) {
	*v.steps = append(*v.steps, s.Does(func(s linear.State) (linear.State, bool) {
		was := s.(books)
		b := books{slices.Clone(was.accounts), slices.Clone(was.deals)}
		return b, change(&b)
	}))
}

// check adds a step that changes nothing.
func (v view) check(s linear.Step, holds func(books) bool) {
	*v.steps = append(*v.steps, s.Checks(func(s linear.State) bool { return holds(s.(books)) }))
}

// begin adds a transfer, a hold, or its refusal.
func (v view) begin(d *deal) {
	from, pays := v.at(d.from)
	to, gets := v.at(d.to)
	step := linear.NewStep(d.of, fmt.Sprintf("%s: %s %d", d.of.Key, d.of.Action, d.amount))
	amount, hold := d.amount, d.isHold()
	place, tracked := v.tracks[d]
	switch fate := d.of.Fate(); {
	case !pays && (!gets || hold):
		// The step concerns other accounts.
	case fate == linear.Contradiction:
		*v.steps = append(*v.steps, step.Never())
	case fate == linear.Refused && pays:
		v.short(d, step, from)
	case fate == linear.Refused:
		// A refusal says nothing about the payee.
	case hold:
		v.add(step, func(b *books) bool {
			enough := b.accounts[from].available() >= amount
			b.accounts[from].held += amount
			b.deals[place] = reserved
			return enough
		})
	default:
		v.add(step, func(b *books) bool {
			enough := true
			if pays {
				enough = b.accounts[from].available() >= amount
				b.accounts[from].balance -= amount
				if tracked {
					b.deals[place] = posted
				}
			}
			if gets {
				b.accounts[to].balance += amount
			}
			return enough
		})
	}
}

// short adds a refusal for lack of funds, which states the available amount.
func (v view) short(d *deal, step linear.Step, from int) {
	var why struct{ Available *int64 }
	d.of.ReadAnswer(&why)
	amount := d.amount
	step.Text = fmt.Sprintf("%s: %d refused", d.of.Key, amount)
	if why.Available != nil {
		step.Text += fmt.Sprintf(", %d available", *why.Available)
	}
	v.check(step, func(b books) bool {
		available := b.accounts[from].available()
		return available < amount && (why.Available == nil || *why.Available == available)
	})
}

// read adds a read of an account or a transfer.
func (v view) read(o *linear.Operation) {
	if o.Method != http.MethodGet || o.Fate() != linear.Done {
		return // without an answer, or of another client's object
	}
	if id, is := o.PathIs(http.MethodGet, "/v1/accounts/*"); is {
		var shown struct{ Balance, Held, Available int64 }
		if at, has := v.at(id[0]); has && o.ReadAnswer(&shown) {
			step := linear.NewStep(o, fmt.Sprintf("%s: balance %d, %d held, %d available", o.Key, shown.Balance, shown.Held, shown.Available))
			v.check(step, func(b books) bool {
				a := b.accounts[at]
				// The money of a hold that is over is available already, and held until its end is recorded.
				return a.balance == shown.Balance && a.held == shown.Held && a.available() <= shown.Available && shown.Available <= a.balance
			})
		}
	}
	if id, is := o.PathIs(http.MethodGet, "/v1/transfers/*"); is {
		var shown struct{ State string }
		if place, tracked := v.tracks[v.byID[id[0]]]; tracked && o.ReadAnswer(&shown) {
			what := map[string]byte{"reserved": reserved, "posted": posted, "voided": voided, "expired": expired}[shown.State]
			v.check(linear.NewStep(o, o.Key+": shown as "+shown.State), func(b books) bool { return b.deals[place] == what })
		}
	}
}

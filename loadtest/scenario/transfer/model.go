// SPDX-License-Identifier: MIT

package transfer

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/linear"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
)

// A partition is a group of accounts that pay each other: a connected component, computed
// from the requests. Its state is the balance and held amount of each account, and the state
// of each hold. Its parts are the single accounts.

// The states of a transfer.
const (
	absent   = '-'
	reserved = 'r'
	posted   = 'p'
	voided   = 'v'
	expired  = 'x'
)

// deal is a requested transfer.
type deal struct {
	of       *linear.Operation
	id       string // from its answer
	from, to string
	amount   int64
	lasts    time.Duration // of a hold
	tracked  bool          // has a place in Books.Deals: it is a hold, or a request names it
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
	return money.Partitions(h.Header, "account", func(groups money.Groups) {
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

// view is a history restricted to some accounts.
type view struct {
	*model
	*money.View
	tracks map[*deal]int // in Books.Deals, if the payer is in the view
}

// view adds the steps that concern some accounts.
func (m *model) view(accounts *money.View) {
	v := view{m, accounts, map[*deal]int{}}
	for _, d := range m.deals {
		if _, has := v.At(d.from); has && d.tracked {
			v.tracks[d] = len(v.Opened.Deals)
			v.Opened.Deals = append(v.Opened.Deals, absent)
		}
	}
	for _, d := range m.deals {
		v.begin(d)
	}
	v.ends()
	for i := range m.Operations {
		v.read(&m.Operations[i])
	}
}

// begin adds a transfer, a hold, or its refusal.
func (v view) begin(d *deal) {
	place, tracked := v.tracks[d]
	if !d.isHold() {
		v.Pay(d.of, d.from, d.to, d.amount, &d.amount, func(b *money.Books) {
			if tracked {
				b.Deals[place] = posted
			}
		})
		return
	}
	from, pays := v.At(d.from)
	step := linear.NewStep(d.of, fmt.Sprintf("%s: %s %d", d.of.Key, d.of.Action, d.amount))
	switch fate := d.of.Fate(); {
	case !pays:
	case fate == linear.Contradiction:
		v.Never(step)
	case fate == linear.Refused:
		v.Refuse(d.of, from, d.amount)
	default:
		v.Does(step, func(b *money.Books) bool {
			enough := b.Accounts[from].Covers(d.amount)
			b.Accounts[from].Held += d.amount
			b.Deals[place] = reserved
			return enough
		})
	}
}

// Expire is an operation of the service itself: it ends an expired hold.
const Expire traffic.Action = "expire"

// clockSlack is by how much a hold may last shorter or longer than requested: the
// database's clock is not the history's, and may be slewed.
const clockSlack = int64(5 * time.Millisecond)

// ends adds the ends of holds: by a post, by a void, or by the service when they expire.
func (v view) ends() {
	ended := map[*deal]bool{}
	for i := range v.Operations {
		o := &v.Operations[i]
		for _, action := range []string{"post", "void"} {
			id, is := o.PathIs(http.MethodPost, "/v1/transfers/*/"+action)
			if !is {
				continue
			}
			d := v.byID[id[0]]
			if d != nil {
				v.settle(o, d, action == "post")
				ended[d] = ended[d] || o.Outcome == linear.OK
			} else {
				v.unheardOf(o)
			}
		}
		if o.Client == linear.Service && o.Action == string(Expire) {
			var of struct{ ID string }
			if o.ReadAnswer(&of); v.byID[of.ID] != nil {
				v.expire(o, v.byID[of.ID])
			}
		}
	}
	for _, d := range v.deals {
		if fate := d.of.Fate(); d.isHold() && !v.Header.Audited && !ended[d] && (fate == linear.Done || fate == linear.Maybe) {
			v.expire(&linear.Operation{Client: linear.Service, Key: "expire-" + d.of.Key, Outcome: "unknown"}, d)
		}
	}
}

// unheardOf adds a step that is never legal: an answer about a transfer whose creation no answer reported.
func (v view) unheardOf(o *linear.Operation) {
	if fate := o.Fate(); fate != linear.Done && fate != linear.Contradiction || len(o.Objects) == 0 {
		return
	}
	if _, has := v.At(o.Objects[0]); has {
		v.Never(linear.NewStep(o, o.Key+": of a transfer that no answer returned"))
	}
}

// settle adds a post or a void, or its refusal.
func (v view) settle(o *linear.Operation, d *deal, posts bool) {
	_, pays := v.At(d.from)
	_, gets := v.At(d.to)
	text := fmt.Sprintf("%s: void %d", o.Key, d.amount)
	settled := int64(0)
	if posts {
		var asked struct{ Amount int64 }
		o.Asked(&asked)
		if settled = d.amount; asked.Amount > 0 {
			settled = asked.Amount
		}
		text = fmt.Sprintf("%s: post %d of %d", o.Key, settled, d.amount)
	}
	step := linear.NewStep(o, text)
	fate := o.Fate()
	switch {
	case !pays && !(gets && posts):
		return // concerns other accounts
	case fate == linear.Contradiction, fate == linear.Done && v.late(o, d):
		v.Never(step)
	case fate == linear.Done, fate == linear.Maybe:
		what := byte(voided)
		if posts {
			what = posted
		}
		v.end(step, d, what, settled)
	case fate == linear.Refused && pays && o.Problem == "expired":
		v.was(o, d, expired)
	case fate == linear.Refused && pays && o.Problem == "already-settled":
		v.was(o, d, posted, voided)
	}
}

// late reports whether a hold was settled by a request that was sent after the hold's time.
func (v view) late(o *linear.Operation, d *deal) bool {
	end := d.of.End()
	return d.isHold() && end != linear.Forever && o.Call > end+int64(d.lasts)+clockSlack
}

// was adds a refusal that is legal only if the hold was already in one of these states.
func (v view) was(o *linear.Operation, d *deal, states ...byte) {
	place := v.tracks[d]
	v.Checks(linear.NewStep(o, o.Key+": "+o.Problem), func(b money.Books) bool { return slices.Contains(states, b.Deals[place]) })
}

// expire adds the end of a hold by the service, not before the hold's time.
func (v view) expire(o *linear.Operation, d *deal) {
	if _, pays := v.At(d.from); !pays {
		return
	}
	step := linear.NewStep(o, fmt.Sprintf("%s: release %d", o.Key, d.amount))
	step.Call = max(0, d.of.Call+int64(d.lasts)-clockSlack)
	v.end(step, d, expired, 0)
}

// end adds the end of a reserved hold, which moves the settled amount.
func (v view) end(step linear.Step, d *deal, what byte, settled int64) {
	from, pays := v.At(d.from)
	to, gets := v.At(d.to)
	place := v.tracks[d]
	amount := d.amount
	v.Does(step, func(b *money.Books) bool {
		ended := pays && b.Deals[place] != reserved
		if pays {
			b.Accounts[from].Held -= amount
			b.Accounts[from].Amount -= settled
			b.Deals[place] = what
		}
		if gets {
			b.Accounts[to].Amount += settled
		}
		return !ended
	})
}

// read adds a read of an account or a transfer.
func (v view) read(o *linear.Operation) {
	if o.Method != http.MethodGet || o.Fate() != linear.Done {
		return // without an answer, or of another client's object
	}
	if id, is := o.PathIs(http.MethodGet, "/v1/accounts/*"); is {
		var shown struct{ Balance, Held, Available int64 }
		if at, has := v.At(id[0]); has && o.ReadAnswer(&shown) {
			step := linear.NewStep(o, fmt.Sprintf("%s: balance %d, %d held, %d available", o.Key, shown.Balance, shown.Held, shown.Available))
			v.Checks(step, func(b money.Books) bool {
				a := b.Accounts[at]
				// The money of a hold that is over is available already, and held until its end is recorded.
				return a.Amount == shown.Balance && a.Held == shown.Held && a.Available() <= shown.Available && shown.Available <= a.Amount
			})
		}
	}
	if id, is := o.PathIs(http.MethodGet, "/v1/transfers/*"); is {
		var shown struct{ State string }
		if place, tracked := v.tracks[v.byID[id[0]]]; tracked && o.ReadAnswer(&shown) {
			what := map[string]byte{"reserved": reserved, "posted": posted, "voided": voided, "expired": expired}[shown.State]
			v.Checks(linear.NewStep(o, o.Key+": shown as "+shown.State), func(b money.Books) bool { return b.Deals[place] == what })
		}
	}
}

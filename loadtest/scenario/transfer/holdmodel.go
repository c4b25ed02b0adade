// SPDX-License-Identifier: MIT

package transfer

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"shop/loadtest/linear"
	"shop/loadtest/traffic"
)

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
	if _, has := v.at(o.Objects[0]); has {
		*v.steps = append(*v.steps, linear.NewStep(o, o.Key+": of a transfer that no answer returned").Never())
	}
}

// settle adds a post or a void, or its refusal.
func (v view) settle(o *linear.Operation, d *deal, posts bool) {
	_, pays := v.at(d.from)
	_, gets := v.at(d.to)
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
		*v.steps = append(*v.steps, step.Never())
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
	v.check(linear.NewStep(o, o.Key+": "+o.Problem), func(b books) bool { return slices.Contains(states, b.deals[place]) })
}

// expire adds the end of a hold by the service, not before the hold's time.
func (v view) expire(o *linear.Operation, d *deal) {
	if _, pays := v.at(d.from); !pays {
		return
	}
	step := linear.NewStep(o, fmt.Sprintf("%s: release %d", o.Key, d.amount))
	step.Call = max(0, d.of.Call+int64(d.lasts)-clockSlack)
	v.end(step, d, expired, 0)
}

// end adds the end of a reserved hold, which moves the settled amount.
func (v view) end(step linear.Step, d *deal, what byte, settled int64) {
	from, pays := v.at(d.from)
	to, gets := v.at(d.to)
	place := v.tracks[d]
	amount := d.amount
	v.add(step, func(b *books) bool {
		ended := pays && b.deals[place] != reserved
		if pays {
			b.accounts[from].held -= amount
			b.accounts[from].balance -= settled
			b.deals[place] = what
		}
		if gets {
			b.accounts[to].balance += settled
		}
		return !ended
	})
}

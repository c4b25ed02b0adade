// SPDX-License-Identifier: MIT

package nemesis

import (
	"math/rand/v2"
	"slices"
	"time"

	"shop/loadtest/fault"
)

// Part is a fault that can be repeated, for a short time each, at one target.
type Part struct {
	Kind     string        // what is done
	Name     string        // … and to which target
	Replica  int           // the replica with the fault, from 1; 0: none
	Store    string        // the store with the fault; "": none
	Outage   bool          // the store is unavailable as a whole, or elects a leader
	Starts   bool          // a replica is started at the end, which needs every store
	Alone    bool          // no other fault at the same time
	Shortest time.Duration // bounds of the duration
	Longest  time.Duration
	Fault    fault.Fault // injected for that duration; undoing it may take longer
}

// Together reports whether two parts may be injected at once into a service of this many replicas.
func Together(a, b Part, replicas int) bool {
	switch {
	case a.Alone || b.Alone:
		return false
	case a.Replica > 0 && b.Replica > 0 && (a.Replica == b.Replica || minority(replicas) < 2):
		return false
	case a.Store != "" && a.Store == b.Store:
		return false
	}
	return !(a.Outage && (b.Outage || b.Starts) || a.Starts && b.Outage)
}

// minority returns how many replicas may have a fault at a time.
func minority(replicas int) int { return (replicas - 1) / 2 }

// Schedule is a sequence of rounds that do not overlap.
type Schedule []Round

// Round is one fault, or two at once.
type Round struct {
	At    time.Duration
	Steps []Step
}

// Step is a part in a round.
type Step struct {
	Part  Part
	After time.Duration // since the start of the round
	For   time.Duration
}

// length returns the time until the last fault of the round ends.
func (r Round) length() (end time.Duration) {
	for _, s := range r.Steps {
		end = max(end, s.After+s.For)
	}
	return end
}

// The gaps between rounds, and how often there are two faults at once.
const (
	gapLeast  = 500 * time.Millisecond
	gapMost   = 2 * time.Second
	calmEvery = 3 // a calm follows every third round
	twoOf     = 5 // of this many rounds …
	twoAtOnce = 2 // … this many have two faults on average, if two fit together
)

// Plan is what a schedule is drawn from.
type Plan struct {
	Seed     int64
	Over     time.Duration
	Replicas int
	Parts    []Part
	Calm     time.Duration // long enough to judge liveness
}

// Draw draws a schedule. Every kind of part takes its turn, in an order that is drawn again for each
// turn, so that none is left out. The target of each part is drawn. Kinds that fit together with
// many others come more often.
func (p Plan) Draw() (s Schedule) {
	d := draw{Plan: p, random: rand.New(rand.NewPCG(uint64(p.Seed), 4))}
	for at := time.Duration(0); ; at += d.gap(len(s)) {
		round, ok := d.round(at)
		if !ok {
			return s
		}
		s = append(s, round)
		at += round.length()
	}
}

type draw struct {
	Plan
	random *rand.Rand
	bag    []string // kinds that were not drawn since the bag was filled
}

func (d *draw) round(at time.Duration) (r Round, ok bool) {
	first, ok := d.take(func(p Part) bool { return at+p.Shortest <= d.Over })
	if !ok {
		return r, false
	}
	r = Round{At: at, Steps: []Step{{Part: first, For: d.between(first.Shortest, min(first.Longest, d.Over-at))}}}
	if d.random.IntN(twoOf) >= twoAtOnce {
		return r, true
	}
	after := d.between(0, r.Steps[0].For/2)
	second, ok := d.take(func(p Part) bool { return at+after+p.Shortest <= d.Over && Together(first, p, d.Replicas) })
	if ok {
		r.Steps = append(r.Steps, Step{Part: second, After: after, For: d.between(second.Shortest, min(second.Longest, d.Over-at-after))})
	}
	return r, true
}

// take takes the first kind with a fitting part out of the bag, and draws one of the fitting parts
// of that kind. If no kind fits, it refills the bag once.
func (d *draw) take(fits func(Part) bool) (Part, bool) {
	for range 2 {
		for n, kind := range d.bag {
			if parts := d.parts(func(p Part) bool { return p.Kind == kind && fits(p) }); len(parts) > 0 {
				d.bag = slices.Delete(d.bag, n, n+1)
				return parts[d.random.IntN(len(parts))], true
			}
		}
		d.fill()
	}
	return Part{}, false
}

// parts returns the parts that fit, without those of replicas if no minority may fail.
func (d *draw) parts(fits func(Part) bool) (parts []Part) {
	for _, p := range d.Parts {
		if (p.Replica == 0 || minority(d.Replicas) > 0) && fits(p) {
			parts = append(parts, p)
		}
	}
	return parts
}

// fill appends each missing kind to the bag, in random order.
func (d *draw) fill() {
	for _, n := range d.random.Perm(len(d.Parts)) {
		if kind := d.Parts[n].Kind; !slices.Contains(d.bag, kind) {
			d.bag = append(d.bag, kind)
		}
	}
}

func (d *draw) gap(rounds int) time.Duration {
	gap := d.between(gapLeast, gapMost)
	if rounds%calmEvery == 0 {
		gap += d.Calm
	}
	return gap
}

// between draws a time in whole milliseconds from least to most, both included.
func (d *draw) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.random.Int64N(max(0, (most-least).Milliseconds())+1))*time.Millisecond
}

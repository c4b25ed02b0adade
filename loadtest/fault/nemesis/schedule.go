package nemesis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"shop/loadtest/fault"
)

// Part is a fault that can be done again and again, for a short while, at one target.
type Part struct {
	Name     string        // what is done, and to which target
	Replica  int           // that has the fault, from 1; 0: none has
	Store    string        // likewise; "": none has
	Outage   bool          // the store is away as a whole, or elects a leader
	Starts   bool          // a replica is started at the end, which needs every store
	Shortest time.Duration // how long it lasts
	Longest  time.Duration
	Fault    fault.Fault // injected over that time; its undoing may take longer
}

// Together tells whether two parts may be done at once to a service of so many replicas.
func Together(a, b Part, replicas int) bool {
	switch {
	case a.Replica > 0 && b.Replica > 0 && (a.Replica == b.Replica || minority(replicas) < 2):
		return false
	case a.Store != "" && a.Store == b.Store:
		return false
	}
	return !(a.Outage && (b.Outage || b.Starts) || a.Starts && b.Outage)
}

// minority is how many replicas may have a fault at a time.
func minority(replicas int) int { return (replicas - 1) / 2 }

// Schedule is what is done when. Its rounds do not overlap.
type Schedule []Round

// Round is one fault, or two at once.
type Round struct {
	At    time.Duration
	Steps []Step
}

// Step is a part in a round.
type Step struct {
	Part  Part
	After time.Duration // from the begin of the round
	For   time.Duration
}

// length is until the last of its faults has lasted as long as it should.
func (r Round) length() (end time.Duration) {
	for _, s := range r.Steps {
		end = max(end, s.After+s.For)
	}
	return end
}

// String has a line for each fault.
func (s Schedule) String() string {
	var text strings.Builder
	for _, round := range s {
		for n, step := range round.Steps {
			at := "and at"
			if n == 0 {
				at = "at"
			}
			fmt.Fprintf(&text, "%s %v for %v: %s\n", at, round.At+step.After, step.For, step.Part.Name)
		}
	}
	return text.String()
}

// The gaps between rounds, and how often there are two faults at once.
const (
	gapLeast  = 500 * time.Millisecond
	gapMost   = 2 * time.Second
	calmEvery = 3 // the gap behind so many rounds is a calm
	twoOf     = 5 // of so many rounds …
	twoAtOnce = 2 // … so many have two faults, if two fit together
)

// Plan is what a schedule is drawn from.
type Plan struct {
	Seed     int64
	Over     time.Duration
	Replicas int
	Parts    []Part
	Calm     time.Duration // long enough to judge liveness in
}

// Draw draws a schedule. Parts come in turns, in an order that is drawn anew each time: none is
// forgotten. Those that fit beside many others come more often.
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
	bag    []Part // that have not come since it was filled
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

// take takes a part that fits out of the bag, which is filled again when none in it does.
func (d *draw) take(fits func(Part) bool) (Part, bool) {
	for range 2 {
		if n := slices.IndexFunc(d.bag, fits); n >= 0 {
			part := d.bag[n]
			d.bag = slices.Delete(d.bag, n, n+1)
			return part, true
		}
		d.fill()
	}
	return Part{}, false
}

// fill puts each part that may be done at all behind what is still in the bag.
func (d *draw) fill() {
	for _, n := range d.random.Perm(len(d.Parts)) {
		part := d.Parts[n]
		in := slices.ContainsFunc(d.bag, func(p Part) bool { return p.Name == part.Name })
		if !in && (part.Replica == 0 || minority(d.Replicas) > 0) {
			d.bag = append(d.bag, part)
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

// between draws a time in whole milliseconds, least and most included.
func (d *draw) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.random.Int64N(max(0, (most-least).Milliseconds())+1))*time.Millisecond
}

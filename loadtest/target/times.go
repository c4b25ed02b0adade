package target

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"shop/loadtest"
	"shop/locking/invariant"
)

var readsFit = invariant.Invariant{Code: "I-SHOWN", Name: "reads-fit", Means: "a read shows a number of units that can have been left at some moment while it was under way"}

// most and least are the units that can have been left at some moment between two: what was there before, with all
// that may have been given back by the second and without what clients got by the first; and the other way round.
// A request that got nothing may have held its units for a while.
func (b *balance) most(from, to time.Duration) int {
	return b.there - b.taken.until(from) + b.giving.until(to+1)
}

func (b *balance) least(from, to time.Duration) int {
	held := b.begun.until(to+1) - b.end.until(from)
	return b.there - b.takers.until(to+1) + b.given.until(from) - max(0, held)
}

// judgeTimes compares each success, and each read that shows units, with what can have been left at its time.
//
// This is what any order of the requests must keep, and less than linearizability: whether there is such an order can
// be decided in time only with the order in which the database made the writes, which is not known of a service
// that is not ours. (Of twenty requests for one object at once, a million subsets may have come first.)
func judgeTimes(sums map[string]*balance, records []loadtest.Record) invariant.Findings {
	findings := invariant.Findings{}
	for _, r := range records {
		s := of(r.Intent)
		b := sums[s.Object]
		switch {
		case b == nil || s.request == nil || len(s.request.Expect) > 0:
		case s.request.Shows != "":
			findings.Add(readsFit.Code, b.misread(r)...)
		case s.request.Takes != "" && r.Outcome == loadtest.OK:
			begun, answered := r.Times()
			if most := b.most(begun, answered); most < s.Units {
				findings.Add(supplyKept.Code, fmt.Sprintf("%s: %s of %d %s succeeded while at most %d were there", r.Key, s.request.Name, s.Units, s.Object, most))
			}
		}
	}
	return findings
}

// misread lists the answers to a read with a number of units that cannot have been.
func (b *balance) misread(r loadtest.Record) (wrong []string) {
	s := of(r.Intent)
	for _, a := range r.Attempts {
		left, is := s.request.shown(a.Body)
		least, most := b.least(a.Start, a.End), b.most(a.Start, a.End)
		if a.Outcome == loadtest.OK && is && (left < least || left > most) {
			wrong = append(wrong, fmt.Sprintf("%s: %s shows %d %s; %d to %d can have been left", r.Key, s.request.Name, left, s.Object, least, most))
		}
	}
	return wrong
}

// shown is the number of units in an answer.
func (r *Request) shown(answer []byte) (left int, is bool) {
	left, err := strconv.Atoi(field(answer, r.Shows))
	return left, err == nil
}

// hidden tells whether some answers to a read lack the number that they are to show.
func (r *Request) hidden(records []loadtest.Record) bool {
	return r.Shows != "" && slices.ContainsFunc(records, func(record loadtest.Record) bool {
		_, is := r.shown(record.Body)
		return record.Outcome == loadtest.OK && !is
	})
}

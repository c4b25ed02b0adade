// SPDX-License-Identifier: MIT

package target

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

var readsFit = invariant.Invariant{Code: "I-SHOWN", Name: "reads-fit", Means: "a read shows a number of units that can have been left at some moment while it was under way"}

// most returns the greatest number of units that can have been left at some time between from and to: the
// supply, plus what may have been given back by to, minus what clients got before from.
func (b *balance) most(from, to time.Duration) int {
	return b.there - b.taken.until(from) + b.giving.until(to+1)
}

// least returns the smallest such number: the supply, plus what was given back before from, minus what clients
// may have got by to, and minus what requests that got nothing may have held for a while.
func (b *balance) least(from, to time.Duration) int {
	held := b.begun.until(to+1) - b.end.until(from)
	return b.there - b.takers.until(to+1) + b.given.until(from) - max(0, held)
}

// judgeTimes compares each success, and each read that shows units, with what can have been left at its
// time.
//
// This is a necessary condition of every order of the requests, and weaker than linearizability. Whether a
// legal order exists can be decided in time only with the order of the writes in the database, which is
// not known of a Target. (Of twenty concurrent requests for one object, a million subsets may have come first.)
func judgeTimes(sums map[string]*balance, records []traffic.Record) invariant.Findings {
	findings := invariant.Findings{}
	for _, r := range records {
		s := of(r.Intent)
		b := sums[s.Object]
		switch {
		case b == nil || s.request == nil || len(s.request.Expect) > 0:
		case s.request.Shows != "":
			findings.Add(readsFit.Code, b.misread(r)...)
		case s.request.Takes != "" && r.Outcome == traffic.OK:
			begun, answered := r.Times()
			if most := b.most(begun, answered); most < s.Units {
				findings.Add(supplyKept.Code, fmt.Sprintf("%s: %s of %d %s succeeded while at most %d can have been left", r.Key, s.request.Name, s.Units, s.Object, most))
			}
		}
	}
	return findings
}

// misread lists the answers to a read with a number of units that cannot have been left.
func (b *balance) misread(r traffic.Record) (wrong []string) {
	s := of(r.Intent)
	for _, a := range r.Attempts {
		left, is := s.request.shown(a.Body)
		least, most := b.least(a.Start, a.End), b.most(a.Start, a.End)
		if a.Outcome == traffic.OK && is && (left < least || left > most) {
			wrong = append(wrong, fmt.Sprintf("%s: %s shows %d %s; %d to %d can have been left", r.Key, s.request.Name, left, s.Object, least, most))
		}
	}
	return wrong
}

// shown returns the number of units in an answer.
func (r *Request) shown(answer []byte) (left int, is bool) {
	left, err := strconv.Atoi(field(answer, r.Shows))
	return left, err == nil
}

// hidden reports whether some answers to a read lack the number that they must show.
func (r *Request) hidden(records []traffic.Record) bool {
	return r.Shows != "" && slices.ContainsFunc(records, func(record traffic.Record) bool {
		_, is := r.shown(record.Body)
		return record.Outcome == traffic.OK && !is
	})
}

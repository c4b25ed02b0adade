// SPDX-License-Identifier: MIT

package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// checkSupply reads a supply such as {coffee: 100}. A supply that is a text is SQL.
func (f *File) checkSupply() error {
	switch f.Supply.Kind {
	case 0: // there is none
		return nil
	case yaml.ScalarNode:
		if f.Database == "" {
			return f.at(place("supply"), "a supply in SQL needs a database")
		}
		return nil
	case yaml.MappingNode:
	default:
		return f.at(place("supply"), "supply: want {object: units}, or SQL that returns an object and its units in each row")
	}
	f.given = map[string]int{}
	for i := 0; i+1 < len(f.Supply.Content); i += 2 {
		name, value := f.Supply.Content[i].Value, f.Supply.Content[i+1].Value
		units, err := strconv.Atoi(value)
		if err != nil || units < 0 {
			return f.at(place("supply", name), "%s: want a number of units, not %q", name, value)
		}
		objects, err := enumerate(name)
		if err != nil {
			return f.at(place("supply", name), "%v", err)
		}
		for _, object := range objects {
			if _, twice := f.given[object]; twice {
				return f.at(place("supply", name), "%s is listed twice", object)
			}
			f.given[object] = units
			f.supplied = append(f.supplied, object)
		}
	}
	return nil
}

// supply returns the units of each object before the first request; nil if they are not known.
func (f *File) supply(ctx context.Context, conn *pgx.Conn) (map[string]int, error) {
	if f.Supply.Kind != yaml.ScalarNode {
		return f.given, nil
	}
	rows, err := conn.Query(ctx, f.Supply.Value)
	if err != nil {
		return nil, f.at(place("supply"), "supply: %v", err)
	}
	supply := map[string]int{}
	var object string
	var units int
	_, err = pgx.ForEachRow(rows, []any{&object, &units}, func() error { supply[object] = units; return nil })
	switch {
	case err != nil:
		return nil, f.at(place("supply"), "supply: want rows with an object and its units: %v", err)
	case len(supply) == 0:
		return nil, f.at(place("supply"), "supply: the query returns no row: is this the database of the service?")
	}
	return supply, nil
}

// balance sums up the answers for one object.
type balance struct {
	there, wanted, got, back int

	takers     timeline // starts of requests that got units, or may have got them
	taken      timeline // ends of requests that got units
	giving     timeline // starts of requests that gave units back, or may have given them back
	given      timeline // ends of requests that gave units back
	begun, end timeline // starts and ends of attempts that got no units, but may have held some in between
}

// timeline adds up units by time.
type timeline []moment

type moment struct {
	at    time.Duration
	units int
}

// sum sorts the entries, and replaces each by the sum up to it.
func (l timeline) sum() {
	slices.SortFunc(l, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(l); i++ {
		l[i].units += l[i-1].units
	}
}

// until returns the sum of all entries before a time.
func (l timeline) until(at time.Duration) int {
	n := sort.Search(len(l), func(i int) bool { return l[i].at >= at })
	if n == 0 {
		return 0
	}
	return l[n-1].units
}

// takes reports whether a success of a request takes units.
func takes(r traffic.Record) bool {
	s := of(r.Intent)
	return s.request != nil && s.request.Takes != "" && len(s.request.Expect) == 0
}

// balances adds up the answers, by object.
func balances(supply map[string]int, records []traffic.Record) map[string]*balance {
	sums := map[string]*balance{}
	for object, units := range supply {
		sums[object] = &balance{there: units}
	}
	for _, r := range records {
		s := of(r.Intent)
		b := sums[s.Object]
		switch {
		case b == nil || s.request == nil:
		case s.request.Gives && r.Outcome != traffic.Rejected: // an undecided one may have given back
			b.give(r, s.Units)
		case takes(r):
			b.take(r, s.Units)
		}
	}
	for _, b := range sums {
		for _, line := range []timeline{b.takers, b.taken, b.giving, b.given, b.begun, b.end} {
			line.sum()
		}
	}
	return sums
}

func (b *balance) give(r traffic.Record, units int) {
	b.back += units
	begun, answered := r.Times()
	b.giving = append(b.giving, moment{begun, units})
	if r.Outcome == traffic.OK {
		b.given = append(b.given, moment{answered, units})
	}
}

func (b *balance) take(r traffic.Record, units int) {
	b.wanted += units
	if r.Outcome == traffic.OK {
		_, answered := r.Times()
		b.got += units
		b.taken = append(b.taken, moment{answered, units})
	}
	if (r.Outcome == traffic.OK || r.Outcome == traffic.Unknown) && len(r.Attempts) > 0 {
		first := slices.MinFunc(r.Attempts, func(a, b traffic.Attempt) int { return cmp.Compare(a.Start, b.Start) })
		b.takers = append(b.takers, moment{first.Start, units})
		return
	}
	for _, a := range r.Attempts {
		b.begun, b.end = append(b.begun, moment{a.Start, units}), append(b.end, moment{a.End, units})
	}
}

// left returns the least number of units that can have been left while an attempt was under way. Units that
// were given back are not counted. Of the supply it subtracts what all requests got that began before the
// end of the attempt, and what other attempts under way may have held for a while.
func (b *balance) left(a traffic.Attempt, own int) int {
	held := b.begun.until(a.End) - b.end.until(a.Start+1) - own
	return b.there - b.takers.until(a.End) - max(0, held)
}

// The invariants of a supply.
var (
	supplyKept = invariant.Invariant{Code: "I-SUPPLY", Name: "no-more-than-there-was", Means: "in all and at any time, clients got no more units of an object than its supply and the units given back"}
	allSold    = invariant.Invariant{Code: "I-SOLD", Name: "all-sold", Means: "no request for an object is refused while enough units of it are left"}
)

// judgeSupply compares the answers with the supply. It also returns how many units clients got beyond the
// supply.
func judgeSupply(supply map[string]int, records []traffic.Record) (findings invariant.Findings, over int64) {
	findings = invariant.Findings{}
	if supply == nil {
		return findings, 0
	}
	sums := balances(supply, records)
	findings.Add(supplyKept.Code)
	findings.Add(allSold.Code)
	for _, object := range slices.Sorted(maps.Keys(sums)) {
		if b := sums[object]; b.got > b.there+b.back {
			findings.Add(supplyKept.Code, fmt.Sprintf("%s: the supply is %d, %d were given back, and clients got %d", object, b.there, b.back, b.got))
			over += int64(b.got - b.there - b.back)
		}
	}
	findings.Merge(judgeTimes(sums, records))
	for _, r := range records {
		s := of(r.Intent)
		if b := sums[s.Object]; b != nil && takes(r) && r.Outcome == traffic.Rejected {
			if left := b.left(refusal(r), s.Units*meanwhile(r)); left >= s.Units {
				findings.Add(allSold.Code, fmt.Sprintf("%s: %s of %d %s was refused (%d %s) while at least %d were left",
					r.Key, s.request.Name, s.Units, s.Object, r.Status(), r.Problem(), left))
			}
		}
	}
	return findings, over
}

// refusal returns the first attempt that was refused.
func refusal(r traffic.Record) (refused traffic.Attempt) {
	if i := slices.IndexFunc(r.Attempts, func(a traffic.Attempt) bool { return a.Outcome == traffic.Rejected }); i >= 0 {
		refused = r.Attempts[i]
	}
	return refused
}

// meanwhile counts the attempts of a key that overlap its refusal, the refusal included.
func meanwhile(r traffic.Record) (n int) {
	refused := refusal(r)
	for _, a := range r.Attempts {
		if a.Start < refused.End && a.End > refused.Start {
			n++
		}
	}
	return n
}

// Limits bound shares of the answers, and the number of successes. A run beyond them fails.
type Limits struct {
	OK        int     `yaml:"least_ok"`       // least number of successes, without reads and requests with expect
	Errors    Percent `yaml:"most_errors"`    // of attempts: those with a status 5xx that is not listed as open, and those that were sent and got no answer; default 5%
	Busy      Percent `yaml:"most_busy"`      // of attempts: those that did nothing, by their answer or since there was no connection; default 50%
	Undecided Percent `yaml:"most_undecided"` // of keys: those without a final answer; default 0%
}

type limits struct{ errors, busy, undecided float64 }

func (f *File) checkLimits() error {
	for _, limit := range []struct {
		name      string
		text      Percent
		otherwise float64
		into      *float64
	}{
		{"most_errors", f.Limits.Errors, 0.05, &f.limits.errors},
		{"most_busy", f.Limits.Busy, 0.5, &f.limits.busy},
		{"most_undecided", f.Limits.Undecided, 0, &f.limits.undecided},
	} {
		share, err := limit.text.share(limit.otherwise)
		if err != nil {
			return f.at(place("limits", limit.name), "%s: %v", limit.name, err)
		}
		*limit.into = share
	}
	if f.Limits.OK < 0 {
		return f.at(place("limits", "least_ok"), "least_ok must not be below 0")
	}
	return nil
}

var withinLimits = invariant.Invariant{Code: "I-LIMIT", Name: "within-limits", Means: "enough requests succeed, and the shares of errors and of busy answers stay within their limits"}

// judgeLimits compares the run with the limits of the file.
func (f *File) judgeLimits(records []traffic.Record) invariant.Findings {
	ok, attempts, failed, busy := 0, 0, 0, 0
	for _, r := range records {
		if s := of(r.Intent); r.Outcome == traffic.OK && !r.Reads && (s.request == nil || len(s.request.Expect) == 0) {
			ok++
		}
		for _, a := range r.Attempts {
			attempts++
			switch {
			case a.Outcome == traffic.Open:
				busy++
			case a.Status == 0 || a.Status >= 500 && !a.Outcome.Final():
				failed++
			}
		}
	}
	findings := invariant.Findings{}
	findings.Add(withinLimits.Code)
	exceeded := func(what string, n int, limit float64) {
		if share := float64(n) / float64(max(1, attempts)); share > limit {
			findings.Add(withinLimits.Code, fmt.Sprintf("%s: %d of %d, %.1f%%; the limit is %.1f%%", what, n, attempts, 100*share, 100*limit))
		}
	}
	exceeded("most_errors: answers 5xx or missing", failed, f.limits.errors)
	exceeded("most_busy: answers that nothing was done yet", busy, f.limits.busy)
	if ok < f.Limits.OK {
		findings.Add(withinLimits.Code, fmt.Sprintf("least_ok: %d successes; the limit is %d", ok, f.Limits.OK))
	}
	return findings
}

var errNothingChecked = errors.New("there is neither a supply nor audits: nothing would be checked")

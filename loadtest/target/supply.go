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

// Supply is the units of each object before the first request, in YAML such as {coffee: 100}, or SQL that returns them.
type Supply struct {
	SQL     string
	units   map[string]int
	objects []string // in the order of the file
}

func (s *Supply) given() bool { return s.SQL != "" || s.units != nil }

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *Supply) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		s.SQL = node.Value
		return nil
	}
	var units map[string]uint
	if err := node.Decode(&units); err != nil {
		return err
	}
	s.units = map[string]int{}
	for i := 0; i < len(node.Content); i += 2 {
		name := node.Content[i]
		objects, err := enumerate(name.Value)
		if err != nil {
			return fmt.Errorf("line %d: %w", name.Line, err)
		}
		for _, object := range objects {
			if _, twice := s.units[object]; twice {
				return fmt.Errorf("line %d: %s is listed twice", name.Line, object)
			}
			s.units[object] = int(units[name.Value])
		}
		s.objects = append(s.objects, objects...)
	}
	return nil
}

// supply returns the units of each object before the first request; nil if they are not known.
func (f *File) supply(ctx context.Context, conn *pgx.Conn) (map[string]int, error) {
	if f.Supply.SQL == "" {
		return f.Supply.units, nil
	}
	supply := map[string]int{}
	var object string
	var units int
	rows, _ := conn.Query(ctx, f.Supply.SQL) // its error is that of ForEachRow
	_, err := pgx.ForEachRow(rows, []any{&object, &units}, func() error { supply[object] = units; return nil })
	if err == nil && len(supply) == 0 {
		err = errors.New("no row: is this the database of the service?")
	}
	if err != nil {
		return nil, f.at(place("supply"), "supply: want rows with an object and its units: %v", err)
	}
	return supply, nil
}

// balance sums up the answers for one object.
type balance struct {
	there, wanted, got, back int

	takers       timeline // starts of requests that got units, or may have got them
	taken        timeline // ends of requests that got units
	giving       timeline // starts of requests that gave units back, or may have given them back
	given        timeline // ends of requests that gave units back
	begun, ended timeline // of attempts that got no units, but may have held some in between
}

// timeline adds up units by time.
type timeline []moment

type moment struct {
	at    time.Duration
	units int
}

func (l *timeline) add(at time.Duration, units int) { *l = append(*l, moment{at, units}) }

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

// balances adds up the answers, by object.
func balances(supply map[string]int, records []traffic.Record) map[string]*balance {
	sums := map[string]*balance{}
	for object, units := range supply {
		sums[object] = &balance{there: units}
	}
	for _, r := range records {
		if b := sums[of(r.Intent).Object]; b != nil {
			b.add(r)
		}
	}
	for _, b := range sums {
		for _, line := range []timeline{b.takers, b.taken, b.giving, b.given, b.begun, b.ended} {
			line.sum()
		}
	}
	return sums
}

func (b *balance) add(r traffic.Record) {
	s := of(r.Intent)
	begun, answered := r.Times()
	switch {
	case s.Gives && r.Outcome != traffic.Rejected: // an undecided one may have given back
		b.back += s.Units
		b.giving.add(begun, s.Units)
		if r.Outcome == traffic.OK {
			b.given.add(answered, s.Units)
		}
	case !s.takes():
	case r.Outcome == traffic.OK:
		b.got += s.Units
		b.taken.add(answered, s.Units)
		fallthrough
	case r.Outcome == traffic.Unknown:
		b.wanted += s.Units
		b.takers.add(begun, s.Units)
	default:
		b.wanted += s.Units
		for _, a := range r.Attempts {
			b.begun.add(a.Start, s.Units)
			b.ended.add(a.End, s.Units)
		}
	}
}

// most returns the greatest number of units that can have been left at some time between from and to: the
// supply, plus what may have been given back by to, minus what clients got before from.
func (b *balance) most(from, to time.Duration) int {
	return b.there - b.taken.until(from) + b.giving.until(to+1)
}

// least returns the smallest such number, if nothing was given back: the supply, minus what clients may have got by to,
// and minus what requests that got nothing may have held for a while, except one that held own units itself.
func (b *balance) least(from, to time.Duration, own int) int {
	held := b.begun.until(to+1) - b.ended.until(from) - own
	return b.there - b.takers.until(to+1) - max(0, held)
}

// The invariants of a supply.
var (
	supplyKept = invariant.Invariant{Code: "I-SUPPLY", Name: "no-more-than-there-was", Means: "in all and at any time, clients got no more units of an object than its supply and the units given back"}
	allSold    = invariant.Invariant{Code: "I-SOLD", Name: "all-sold", Means: "no request for an object is refused while enough units of it are left"}
	readsFit   = invariant.Invariant{Code: "I-SHOWN", Name: "reads-fit", Means: "a read shows a number of units that can have been left at some moment while it was under way"}
)

// judgeSupply compares the answers with the supply: all of them together, and each success, refusal and read that shows units
// with what can have been left at its time. It also returns how many units clients got beyond the supply.
//
// This is a necessary condition of every order of the requests, and weaker than linearizability. Whether a
// legal order exists can be decided in time only with the order of the writes in the database, which is
// not known of a Target. (Of twenty concurrent requests for one object, a million subsets may have come first.)
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
	for _, r := range records {
		s := of(r.Intent)
		b := sums[s.Object]
		switch {
		case b == nil || len(s.Expect) > 0:
		case s.Shows != "":
			findings.Add(readsFit.Code, b.misread(r)...)
		case s.takes() && r.Outcome == traffic.OK:
			if most := b.most(r.Times()); most < s.Units {
				findings.Add(supplyKept.Code, fmt.Sprintf("%s: %s of %d %s succeeded while at most %d can have been left", r.Key, s.Name, s.Units, s.Object, most))
			}
		case s.takes() && r.Outcome == traffic.Rejected:
			refused := r.Deciding()
			meanwhile := count(r, func(a traffic.Attempt) bool { return a.Start < refused.End && a.End > refused.Start })
			if left := b.least(refused.Start, refused.End, s.Units*meanwhile); left >= s.Units {
				findings.Add(allSold.Code, fmt.Sprintf("%s: %s of %d %s was refused (%d %s) while at least %d were left",
					r.Key, s.Name, s.Units, s.Object, r.Status(), r.Problem(), left))
			}
		}
	}
	return findings, over
}

// count returns the number of attempts of a key that match.
func count(r traffic.Record, match func(traffic.Attempt) bool) (n int) {
	for _, a := range r.Attempts {
		if match(a) {
			n++
		}
	}
	return n
}

// misread lists the answers to a read with a number of units that cannot have been left.
func (b *balance) misread(r traffic.Record) (wrong []string) {
	s := of(r.Intent)
	for _, a := range r.Attempts {
		left, is := s.shown(a.Body)
		least, most := b.least(a.Start, a.End, 0)+b.given.until(a.Start), b.most(a.Start, a.End)
		if a.Outcome == traffic.OK && is && (left < least || left > most) {
			wrong = append(wrong, fmt.Sprintf("%s: %s shows %d %s; %d to %d can have been left", r.Key, s.Name, left, s.Object, least, most))
		}
	}
	return wrong
}

// shown returns the number of units in an answer.
func (r *Request) shown(answer []byte) (left int, is bool) {
	left, err := strconv.Atoi(field(answer, r.Shows))
	return left, err == nil
}

// Limits bound shares of the answers, and the number of successes. A run beyond them fails.
type Limits struct {
	OK        int     `yaml:"least_ok"`       // least number of successes, without reads and requests with expect
	Errors    Percent `yaml:"most_errors"`    // of attempts: those with a status 5xx that is not listed as open, and those that were sent and got no answer; default 5%
	Busy      Percent `yaml:"most_busy"`      // of attempts: those that did nothing, by their answer or since there was no connection; default 50%
	Undecided Percent `yaml:"most_undecided"` // of keys: those without a final answer; default 0%
}

var withinLimits = invariant.Invariant{Code: "I-LIMIT", Name: "within-limits", Means: "enough requests succeed, and the shares of errors and of busy answers stay within their limits"}

// judge compares the answers with the limits.
func (l Limits) judge(records []traffic.Record) invariant.Findings {
	ok, attempts, failed, busy := 0, 0, 0, 0
	for _, r := range records {
		if r.Outcome == traffic.OK && of(r.Intent).writes() {
			ok++
		}
		attempts += len(r.Attempts)
		busy += count(r, func(a traffic.Attempt) bool { return a.Outcome == traffic.Open })
		failed += count(r, func(a traffic.Attempt) bool {
			return a.Outcome != traffic.Open && (a.Status == 0 || a.Status >= 500 && !a.Outcome.Final())
		})
	}
	findings := invariant.Findings{}
	findings.Add(withinLimits.Code)
	exceeded := func(what string, n int, limit Percent) {
		if share := float64(n) / float64(max(1, attempts)); share > float64(limit) {
			findings.Add(withinLimits.Code, fmt.Sprintf("%s: %d of %d, %.1f%%; the limit is %.1f%%", what, n, attempts, 100*share, 100*limit))
		}
	}
	exceeded("most_errors: answers 5xx or missing", failed, l.Errors)
	exceeded("most_busy: answers that nothing was done yet", busy, l.Busy)
	if ok < l.OK {
		findings.Add(withinLimits.Code, fmt.Sprintf("least_ok: %d successes; the limit is %d", ok, l.OK))
	}
	return findings
}

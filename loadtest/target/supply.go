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

	"shop/loadtest"
	"shop/locking/invariant"
)

// checkSupply reads "supply: {coffee: 100}". A text is SQL, for the database.
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
			return f.at(place("supply", name), "%s: want units as a number, not %q", name, value)
		}
		objects, err := enumerate(name)
		if err != nil {
			return f.at(place("supply", name), "%v", err)
		}
		for _, object := range objects {
			if _, twice := f.given[object]; twice {
				return f.at(place("supply", name), "%s is there twice", object)
			}
			f.given[object] = units
			f.supplied = append(f.supplied, object)
		}
	}
	return nil
}

// supply is how much there is of each object before the first request; nil: it is not known.
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
		return nil, f.at(place("supply"), "supply: want rows of an object and its units: %v", err)
	case len(supply) == 0:
		return nil, f.at(place("supply"), "supply: the query returns no row: is this the database of the service?")
	}
	return supply, nil
}

// balance is what clients were told of one object.
type balance struct {
	there, wanted, got, back int

	takers     timeline // starts of what got units, or may have got them
	taken      timeline // ends of what got units
	giving     timeline // starts of what gave units back, or may have given them back
	given      timeline // ends of what gave units back
	begun, end timeline // starts and ends of attempts that got none: they may have held some meanwhile
}

// timeline adds up units by time.
type timeline []moment

type moment struct {
	at    time.Duration
	units int
}

// sum makes of each entry the sum up to it.
func (l timeline) sum() {
	slices.SortFunc(l, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(l); i++ {
		l[i].units += l[i-1].units
	}
}

// until is the sum of all before a moment.
func (l timeline) until(at time.Duration) int {
	n := sort.Search(len(l), func(i int) bool { return l[i].at >= at })
	if n == 0 {
		return 0
	}
	return l[n-1].units
}

// takes tells whether a success of a request takes units of an object that is supplied.
func takes(r loadtest.Record) bool {
	s := of(r.Intent)
	return s.request != nil && s.request.Takes != "" && len(s.request.Expect) == 0
}

// balances adds up the answers, by object.
func balances(supply map[string]int, records []loadtest.Record) map[string]*balance {
	sums := map[string]*balance{}
	for object, units := range supply {
		sums[object] = &balance{there: units}
	}
	for _, r := range records {
		s := of(r.Intent)
		b := sums[s.Object]
		switch {
		case b == nil || s.request == nil:
		case s.request.Gives && r.Outcome != loadtest.Rejected: // one that is not decided may have given back
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

func (b *balance) give(r loadtest.Record, units int) {
	b.back += units
	begun, answered := r.Times()
	b.giving = append(b.giving, moment{begun, units})
	if r.Outcome == loadtest.OK {
		b.given = append(b.given, moment{answered, units})
	}
}

func (b *balance) take(r loadtest.Record, units int) {
	b.wanted += units
	if r.Outcome == loadtest.OK {
		_, answered := r.Times()
		b.got += units
		b.taken = append(b.taken, moment{answered, units})
	}
	if (r.Outcome == loadtest.OK || r.Outcome == loadtest.Unknown) && len(r.Attempts) > 0 {
		first := slices.MinFunc(r.Attempts, func(a, b loadtest.Attempt) int { return cmp.Compare(a.Start, b.Start) })
		b.takers = append(b.takers, moment{first.Start, units})
		return
	}
	for _, a := range r.Attempts {
		b.begun, b.end = append(b.begun, moment{a.Start, units}), append(b.end, moment{a.End, units})
	}
}

// left is the least that can have been there while an attempt was under way, whatever was
// given back meanwhile: what was there before the first request, without what all got that
// began before its end, and without what others under way may have held for a while.
func (b *balance) left(a loadtest.Attempt, own int) int {
	held := b.begun.until(a.End) - b.end.until(a.Start+1) - own
	return b.there - b.takers.until(a.End) - max(0, held)
}

// The invariants of a supply.
var (
	supplyKept = invariant.Invariant{Code: "I-SUPPLY", Name: "no-more-than-there-was", Means: "clients got no more units of an object than were there and were given back, in all and at any time"}
	allSold    = invariant.Invariant{Code: "I-SOLD", Name: "all-sold", Means: "no request for an object is refused while as much as it wants is there"}
)

// judgeSupply compares what clients were told with what there was. It returns how many units
// they got that were not there.
func judgeSupply(supply map[string]int, records []loadtest.Record) (findings invariant.Findings, over int64) {
	findings = invariant.Findings{}
	if supply == nil {
		return findings, 0
	}
	sums := balances(supply, records)
	findings.Add(supplyKept.Code)
	findings.Add(allSold.Code)
	for _, object := range slices.Sorted(maps.Keys(sums)) {
		if b := sums[object]; b.got > b.there+b.back {
			findings.Add(supplyKept.Code, fmt.Sprintf("%s: %d were there, %d were given back, and clients got %d", object, b.there, b.back, b.got))
			over += int64(b.got - b.there - b.back)
		}
	}
	findings.Merge(judgeTimes(sums, records))
	for _, r := range records {
		s := of(r.Intent)
		if b := sums[s.Object]; b != nil && takes(r) && r.Outcome == loadtest.Rejected {
			if left := b.left(refusal(r), s.Units*meanwhile(r)); left >= s.Units {
				findings.Add(allSold.Code, fmt.Sprintf("%s: %s of %d %s was refused (%d %s) while at least %d were there",
					r.Key, s.request.Name, s.Units, s.Object, r.Status(), r.Problem(), left))
			}
		}
	}
	return findings, over
}

// refusal is the attempt that was refused first.
func refusal(r loadtest.Record) (refused loadtest.Attempt) {
	if i := slices.IndexFunc(r.Attempts, func(a loadtest.Attempt) bool { return a.Outcome == loadtest.Rejected }); i >= 0 {
		refused = r.Attempts[i]
	}
	return refused
}

// meanwhile counts the attempts of a key that were under way with its refusal, itself included.
func meanwhile(r loadtest.Record) (n int) {
	refused := refusal(r)
	for _, a := range r.Attempts {
		if a.Start < refused.End && a.End > refused.Start {
			n++
		}
	}
	return n
}

// Limits are shares that fail the run when they are exceeded, and the successes that it needs.
type Limits struct {
	OK        int     `yaml:"least_ok"`       // successes, reads and what is not allowed not counted
	Errors    Percent `yaml:"most_errors"`    // of answers: status 5xx that is not listed as open, and requests without one; default 5%
	Busy      Percent `yaml:"most_busy"`      // of answers: those that are open; default 50%
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

var withinLimits = invariant.Invariant{Code: "I-LIMIT", Name: "within-limits", Means: "enough requests succeed, and errors and answers to come back later stay below their shares"}

// judgeLimits compares the run with the limits of the file.
func (f *File) judgeLimits(records []loadtest.Record) invariant.Findings {
	ok, attempts, failed, busy := 0, 0, 0, 0
	for _, r := range records {
		if s := of(r.Intent); r.Outcome == loadtest.OK && !r.Reads && (s.request == nil || len(s.request.Expect) == 0) {
			ok++
		}
		for _, a := range r.Attempts {
			attempts++
			switch {
			case a.Outcome == loadtest.Open && a.Status != 0:
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
	exceeded("most_errors: answers 5xx, or none", failed, f.limits.errors)
	exceeded("most_busy: answers to come back later", busy, f.limits.busy)
	if ok < f.Limits.OK {
		findings.Add(withinLimits.Code, fmt.Sprintf("least_ok: %d successes; at least %d must be", ok, f.Limits.OK))
	}
	return findings
}

var errNothingChecked = errors.New("there are neither a supply nor audits: nothing would be compared with what is true")

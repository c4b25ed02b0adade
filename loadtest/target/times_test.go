// SPDX-License-Identifier: MIT

package target

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"shop/loadtest/traffic"
)

var shows = strings.Replace(mixed, "path: '/{{.Object}}'}", "path: '/{{.Object}}', shows: stock.left}", 1)

// one returns a record of a request for coffee, under way from one time to another. A read shows the units.
func one(f *File, name string, units int, from, to time.Duration, outcome traffic.Outcome) traffic.Record {
	r := answered(f, name, 1, "coffee", units, 200, outcome)[0]
	r.Key = fmt.Sprintf("%s %d from %d", name, units, from)
	r.Attempts[0].Start, r.Attempts[0].End = from, to
	if r.Reads {
		r.Body = fmt.Appendf(nil, `{"stock":{"left":%d}}`, units)
		r.Attempts[0].Body = r.Body
	}
	return r
}

func TestTimes_SuccessesAndReadsMustFitWhatCanHaveBeenLeft(t *testing.T) {
	f := parsed(t, shows)
	ok, refused, open, unknown := traffic.OK, traffic.Rejected, traffic.Open, traffic.Unknown
	for _, c := range []struct {
		name    string
		records []traffic.Record // of ten units
		broken  string
	}{
		{"taken, and seen", []traffic.Record{one(f, "buy", 3, 1, 2, ok), one(f, "look", 7, 3, 4, ok)}, ""},
		{"taken, and not seen", []traffic.Record{one(f, "buy", 3, 1, 2, ok), one(f, "look", 10, 3, 4, ok)}, "I-SHOWN"},
		{"taken twice", []traffic.Record{one(f, "buy", 3, 1, 2, ok), one(f, "look", 4, 3, 4, ok)}, "I-SHOWN"},
		{"taken meanwhile", []traffic.Record{one(f, "buy", 3, 1, 4, ok), one(f, "look", 10, 2, 3, ok), one(f, "look", 7, 2, 3, ok)}, ""},
		{"gone before it was taken", []traffic.Record{one(f, "look", 7, 1, 2, ok), one(f, "buy", 3, 3, 4, ok)}, "I-SHOWN"},
		{"given back, and seen", []traffic.Record{one(f, "buy", 3, 1, 2, ok), one(f, "cancel", 3, 3, 4, ok), one(f, "look", 10, 5, 6, ok)}, ""},
		{"given back, and not seen", []traffic.Record{one(f, "buy", 3, 1, 2, ok), one(f, "cancel", 3, 3, 4, ok), one(f, "look", 7, 5, 6, ok)}, "I-SHOWN"},
		{"given back meanwhile", []traffic.Record{one(f, "buy", 3, 1, 2, ok), one(f, "cancel", 3, 3, 6, ok), one(f, "look", 10, 4, 5, ok), one(f, "look", 7, 4, 5, ok)}, ""},
		{"more than there is", []traffic.Record{one(f, "buy", 9, 1, 2, ok), one(f, "buy", 2, 3, 4, ok)}, "I-SUPPLY"},
		{"sold before it was given back", []traffic.Record{one(f, "buy", 9, 1, 2, ok), one(f, "buy", 2, 3, 4, ok), one(f, "cancel", 9, 5, 6, ok)}, "I-SUPPLY"},
		{"sold while it is given back", []traffic.Record{one(f, "buy", 9, 1, 2, ok), one(f, "buy", 2, 3, 6, ok), one(f, "cancel", 9, 5, 6, ok)}, ""},
		{"not given back", []traffic.Record{one(f, "buy", 9, 1, 2, ok), one(f, "cancel", 9, 3, 4, refused), one(f, "look", 10, 5, 6, ok)}, "I-SHOWN"},
		{"refused, and taken", []traffic.Record{one(f, "buy", 30, 1, 2, refused), one(f, "look", -20, 3, 4, ok)}, "I-SHOWN"},
		{"held until it was refused", []traffic.Record{one(f, "buy", 20, 1, 4, refused), one(f, "look", -10, 2, 3, ok)}, ""},
		{"given up, and taken", []traffic.Record{one(f, "buy", 3, 1, 2, open), one(f, "look", 7, 3, 4, ok)}, "I-SHOWN"},
		{"it may have happened, and did", []traffic.Record{one(f, "buy", 3, 1, 2, unknown), one(f, "look", 10, 3, 4, ok), one(f, "look", 7, 5, 6, ok)}, ""},
		{"it may have been given back", []traffic.Record{one(f, "buy", 3, 1, 2, ok), one(f, "cancel", 3, 3, 4, unknown), one(f, "look", 10, 5, 6, ok), one(f, "look", 7, 5, 6, ok)}, ""},
		{"a read without an answer", []traffic.Record{one(f, "buy", 3, 1, 2, ok), one(f, "look", 10, 3, 4, unknown)}, ""},
	} {
		findings, _ := judgeSupply(f.Supply.units, c.records)
		broken := slices.Sorted(maps.Keys(findings.Counts()))
		broken = slices.DeleteFunc(broken, func(code string) bool { return findings[code].Count == 0 || code == "I-SOLD" })
		if strings.Join(broken, " ") != c.broken {
			t.Errorf("%s: broken %q, want %q: %v", c.name, broken, c.broken, findings)
		}
	}
}

func TestTimes_AReadWithoutItsUnitsMakesARunInconclusive(t *testing.T) {
	f := parsed(t, shows)
	right := one(f, "look", 10, 1, 2, traffic.OK)
	wrong := right
	wrong.Body = []byte(`{"stock": "enough"}`)
	i := slices.IndexFunc(f.Requests, func(r Request) bool { return r.Name == "look" })
	for _, c := range []struct {
		records []traffic.Record
		says    string
	}{
		{[]traffic.Record{right}, ""},
		{[]traffic.Record{right, wrong}, `answers to "look" have no number in "stock.left": is shows right?`},
	} {
		v := &review{file: f, supply: f.Supply.units, records: c.records}
		if got := v.vain(f.Requests[i]); got != c.says {
			t.Errorf("%q, want %q", got, c.says)
		}
	}
}

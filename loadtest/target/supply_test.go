// SPDX-License-Identifier: MIT

package target

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"shop/loadtest/traffic"
)

// answered returns records of n sequential requests of a file that ended in the same way.
func answered(f *File, name string, n int, object string, units, status int, outcome traffic.Outcome) (records []traffic.Record) {
	i := slices.IndexFunc(f.Requests, func(r Request) bool { return r.Name == name })
	for k := range n {
		key := fmt.Sprintf("%s-%s-%d-%d-%d", name, object, units, status, k)
		problem := map[int]string{409: "sold-out", 404: "Not Found", 401: "Unauthorized"}[status]
		records = append(records, traffic.Record{
			Intent: traffic.Intent{
				Key: key, Action: traffic.Action(name), Method: f.Requests[i].Method, Path: "/", Reads: f.Requests[i].Reads,
				Of: sent{Request: &f.Requests[i], Object: object, Units: units, Client: "alice"},
			},
			Outcome:  outcome,
			Attempts: []traffic.Attempt{{Key: key, Status: status, Outcome: outcome, Problem: problem, Sends: 1}},
		})
	}
	return records
}

// inOrder gives the records of several lists consecutive times.
func inOrder(lists ...[]traffic.Record) []traffic.Record {
	records := slices.Concat(lists...)
	for i := range records {
		records[i].Attempts[0].Start, records[i].Attempts[0].End = time.Duration(2*i), time.Duration(2*i+1)
	}
	return records
}

func TestSupply_WhatClientsGotIsComparedWithWhatWasThere(t *testing.T) {
	f := parsed(t, mixed)
	ok, refused, open := traffic.OK, traffic.Rejected, traffic.Unknown
	for _, c := range []struct {
		name    string
		records []traffic.Record
		broken  []string
		over    int64
	}{
		{"all sold", inOrder(answered(f, "buy", 5, "coffee", 2, 201, ok), answered(f, "buy", 9, "coffee", 2, 409, refused)), nil, 0},
		{"the last unit is not enough for two", inOrder(answered(f, "buy", 3, "coffee", 3, 201, ok), answered(f, "buy", 9, "coffee", 2, 409, refused)), nil, 0},
		{"one unit too many", inOrder(answered(f, "buy", 11, "coffee", 1, 201, ok), answered(f, "buy", 1, "coffee", 2, 409, refused)), []string{"I-SUPPLY"}, 1},
		{"one sold, and the rest refused", inOrder(answered(f, "buy", 1, "coffee", 1, 201, ok), answered(f, "buy", 299, "coffee", 1, 409, refused)), []string{"I-SOLD"}, 0},
		{"one left, and one refused", inOrder(answered(f, "buy", 9, "coffee", 1, 201, ok), answered(f, "buy", 1, "coffee", 1, 409, refused)), []string{"I-SOLD"}, 0},
		{"refused too early", inOrder(answered(f, "buy", 9, "coffee", 1, 201, ok), answered(f, "buy", 1, "coffee", 1, 409, refused), answered(f, "buy", 1, "coffee", 1, 200, ok)), []string{"I-SOLD"}, 0},
		{"what may be sold is not left", inOrder(answered(f, "buy", 9, "coffee", 1, 201, ok), answered(f, "buy", 1, "coffee", 1, 500, open), answered(f, "buy", 1, "coffee", 2, 409, refused)), nil, 0},
		{"given back, and sold again", inOrder(answered(f, "buy", 10, "coffee", 1, 201, ok), answered(f, "buy", 1, "coffee", 2, 409, refused), answered(f, "cancel", 3, "coffee", 1, 200, ok), answered(f, "buy", 1, "coffee", 1, 201, ok)), nil, 0},
		{"refused too early, and given back later", inOrder(answered(f, "buy", 5, "coffee", 1, 201, ok), answered(f, "buy", 1, "coffee", 2, 409, refused), answered(f, "cancel", 3, "coffee", 1, 200, ok)), []string{"I-SOLD"}, 0},
		{"not given back", inOrder(answered(f, "buy", 11, "coffee", 1, 201, ok), answered(f, "cancel", 1, "coffee", 1, 404, refused)), []string{"I-SUPPLY"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			findings, over := judgeSupply(f.Supply.units, c.records)
			var broken []string
			for code, n := range findings.Counts() {
				if n > 0 {
					broken = append(broken, code)
				}
			}
			if !slices.Equal(broken, c.broken) || over != c.over {
				t.Errorf("broken %v, %d too many; want %v, %d: %v", broken, over, c.broken, c.over, findings)
			}
		})
	}
}

// A service may take units for a while, and give them back when it cannot take them all.
func TestSupply_UnitsThatOthersMayHaveHeldAreNotLeft(t *testing.T) {
	f := parsed(t, mixed)
	records := inOrder(answered(f, "buy", 8, "coffee", 1, 201, traffic.OK), answered(f, "buy", 1, "coffee", 3, 409, traffic.Rejected), answered(f, "buy", 1, "coffee", 2, 409, traffic.Rejected))
	three, two := &records[8].Attempts[0], &records[9].Attempts[0]
	if found, _ := judgeSupply(f.Supply.units, records); found["I-SOLD"].Count != 1 {
		t.Errorf("one after the other: %v, want that two were refused while two were there", found)
	}
	three.Start, three.End = two.Start-1, two.Start+1
	if found, _ := judgeSupply(f.Supply.units, records); found["I-SOLD"].Count != 0 {
		t.Errorf("at once: %v", found)
	}
}

func TestLimits_SharesAndTheLeastNumberOfSuccesses(t *testing.T) {
	f := parsed(t, mixed+"limits: {least_ok: 10, most_errors: 10%, most_busy: 20%}\n")
	good := answered(f, "buy", 10, "coffee", 1, 201, traffic.OK)
	for _, c := range []struct {
		name    string
		records []traffic.Record
		says    string
	}{
		{"enough", slices.Concat(good, answered(f, "buy", 1, "tea", 1, 500, traffic.Unknown), answered(f, "buy", 2, "tea", 1, 503, traffic.Open)), ""},
		{"too few", good[1:], "least_ok: 9"},
		{"reads do not count", slices.Concat(good[1:], answered(f, "look", 5, "tea", 0, 200, traffic.OK)), "least_ok: 9"},
		{"errors", slices.Concat(good, answered(f, "buy", 2, "tea", 1, 500, traffic.Unknown)), "most_errors"},
		{"no answers", slices.Concat(good, answered(f, "buy", 2, "tea", 1, 0, traffic.Unknown)), "most_errors"},
		{"a replica that was away for a while", slices.Concat(good, answered(f, "buy", 2, "tea", 1, 0, traffic.Open)), ""},
		{"one that was away for long", slices.Concat(good, answered(f, "buy", 3, "tea", 1, 0, traffic.Open)), "most_busy"},
		{"busy", slices.Concat(good, answered(f, "buy", 3, "tea", 1, 429, traffic.Open)), "most_busy"},
	} {
		found := f.Limits.judge(c.records)["I-LIMIT"]
		if text := strings.Join(found.IDs, "; "); (found.Count > 0) != (c.says != "") || !strings.Contains(text, c.says) {
			t.Errorf("%s: %q, want %q", c.name, text, c.says)
		}
	}
}

// SPDX-License-Identifier: MIT

package target

import (
	"slices"
	"strings"
	"testing"

	"shop/loadtest/judge"
	"shop/loadtest/traffic"
)

func TestReview_NamesASettingThatMayBeWrong(t *testing.T) {
	f := parsed(t, mixed+"answers: {rejected: [402], open: [503]}\n")
	sold := slices.Concat(answered(f, "buy", 6, "coffee", 2, 201, traffic.OK), answered(f, "move", 1, "tea", 0, 200, traffic.OK), answered(f, "look", 1, "tea", 0, 200, traffic.OK))
	for _, c := range []struct {
		name    string
		records []traffic.Record
		says    []string // reasons or hints
	}{
		{"a refusal that is not listed", answered(f, "buy", 294, "coffee", 1, 409, traffic.Unknown), []string{"294 keys ended in 409 sold-out: is that a refusal? Set answers: {rejected: [409 sold-out]}", "no request succeeded"}},
		{"an error", slices.Concat(sold, answered(f, "buy", 3, "coffee", 1, 500, traffic.Unknown)), []string{"3 keys ended in 500", "{open: [500]}"}},
		{"busy to the end", slices.Concat(sold, answered(f, "buy", 3, "coffee", 1, 503, traffic.Open)), []string{"3 keys ended in 503, which the file lists as open"}},
		{"a repetition is refused as a duplicate", refusedAgain(answered(f, "buy", 4, "coffee", 1, 201, traffic.OK)), []string{"4 keys succeeded, and their repetitions ended in 409 again", "Set answers: {duplicate: [409 again]}"}},
		{"no answer", slices.Concat(sold, answered(f, "buy", 3, "coffee", 1, 0, traffic.Open)), []string{"3 keys ended without an answer"}},
		{"a wrong secret", answered(f, "buy", 20, "coffee", 1, 401, traffic.Rejected), []string{"no request succeeded: 20 ended in 401 Unauthorized", "are the headers of the clients right"}},
		{"no key in the header that the service reads", answered(f, "buy", 20, "coffee", 1, 400, traffic.Rejected), []string{"are the body and idempotency_header right"}},
		{"a wrong path", answered(f, "buy", 20, "coffee", 1, 404, traffic.Rejected), []string{"are the path and the objects right"}},
		{"one request that never succeeds", slices.Concat(sold, answered(f, "cancel", 5, "coffee", 1, 404, traffic.Rejected)), []string{`no request "cancel" succeeded: 5 ended in 404 Not Found`, "set expect"}},
		{"one that is never sent", sold, []string{`request "spy" was never sent: no success of "buy"`}},
		{"too much of everything", answered(f, "buy", 4, "coffee", 2, 201, traffic.OK), []string{"clients wanted 8 units, and 20 were there", "lower the supply"}},
		{"no overlap", sold, []string{"0 pairs of requests with different keys overlapped for one object"}},
		{"a silent address", slices.Concat(sold, answered(f, "buy", 10, "coffee", 1, 201, traffic.OK)), []string{"127.0.0.1:2 returned no success"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := &review{file: f, supply: f.Supply.units, records: c.records, blind: []string{"an audit was blind"}}
			text := strings.Join(append(v.inconclusive(0), v.hints()...), "\n")
			for _, want := range c.says {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
		})
	}
}

// refusedAgain adds an answer 409 to each record.
func refusedAgain(records []traffic.Record) []traffic.Record {
	for i := range records {
		records[i].Attempts = append(records[i].Attempts, traffic.Attempt{Status: 409, Problem: "again", Outcome: traffic.Unknown, Sends: 1})
	}
	return records
}

func TestReview_ARightRunHasNoHints(t *testing.T) {
	f := parsed(t, small)
	f.Services = []string{"http://127.0.0.1:1", "http://127.0.0.1:2"} // that one of them sold nothing is chance
	records := slices.Concat(answered(f, "buy", 5, "coffee", 2, 201, traffic.OK), answered(f, "buy", 5, "coffee", 1, 409, traffic.Rejected))
	v := &review{file: f, supply: f.Supply.units, records: records}
	if got := append(v.inconclusive(judge.OverlapsLeast), v.hints()...); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestReview_AKeyInAnotherHeaderIsNoticed(t *testing.T) {
	f := parsed(t, small)
	records := answered(f, "buy", 5, "coffee", 2, 201, traffic.OK)
	for i := range records {
		records[i].Attempts = append(records[i].Attempts, records[i].Attempts[0])
		records[i].Diverged = true
	}
	v := &review{file: f, records: records}
	if text := strings.Join(v.hints(), "\n"); !strings.Contains(text, "Set idempotency_header") {
		t.Error(text)
	}
	records[0].Diverged = false // the service knows some keys: the header is right
	if text := strings.Join(v.hints(), "\n"); strings.Contains(text, "idempotency_header") {
		t.Error(text)
	}
}

func TestReview_AClientWithAWrongSecretIsNamed(t *testing.T) {
	f := parsed(t, small+"clients: [{name: ann}, {name: bob}]\n")
	records := slices.Concat(answered(f, "buy", 5, "coffee", 1, 201, traffic.OK), answered(f, "buy", 3, "coffee", 1, 401, traffic.Rejected))
	for i := range records[5:] {
		records[5+i].Client = 1
	}
	v := &review{file: f, supply: f.Supply.units, records: records}
	if text := strings.Join(v.hints(), "\n"); !strings.Contains(text, "all 3 keys of bob ended in 401, while 5 of other clients succeeded") || strings.Contains(text, "ann") {
		t.Error(text)
	}
	records[0].Client = 1 // one of its keys succeeded: its secret is right
	if text := strings.Join(v.hints(), "\n"); strings.Contains(text, "401") {
		t.Error(text)
	}
}

// SPDX-License-Identifier: MIT

package linear

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// written returns a history with an operation of each kind, and its lines.
func written(t *testing.T) (h History, lines []string) {
	t.Helper()
	h = History{
		Header: Header{
			Format: Format, Version: Version, Flow: "inventory", Strategy: "row", Fault: "none", Seed: 7,
			Epoch: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Given: json.RawMessage(`[{"SKU":"cup"}]`),
		},
		Operations: []Operation{
			{Client: 1, Key: "a", Action: "buy", Method: "POST", Path: "/v1/orders", Body: json.RawMessage(`{"q":"<1>"}`), Objects: []string{"cup"}, Call: 1, Return: 5, Outcome: OK, Status: 201, Answer: json.RawMessage(`{"id":1}`), Attempts: []Attempt{{0, 1, 5, 201, OK, "", 1}}},
			{Client: 2, Key: "b", Under: "a", Action: "buy", Call: 2, Outcome: "unknown", Effect: Yes, Stored: json.RawMessage(`{"id":2}`), Order: 9},
			{Client: 2, Key: "c", Action: "read", Reads: true, Call: 3, Return: 4, Outcome: OK, Answer: Raw([]byte("no JSON"))},
			{Client: Service, Key: "d", Action: "expire", Outcome: "unknown", Effect: Yes},
		},
	}
	var text bytes.Buffer
	if err := Write(&text, h); err != nil {
		t.Fatal(err)
	}
	return h, strings.SplitAfter(strings.TrimSuffix(text.String(), "\n"), "\n")
}

func TestRead_ReturnsWhatWasWritten(t *testing.T) {
	h, lines := written(t)
	read, err := Read(strings.NewReader(strings.Join(lines, "")))
	if err != nil || !reflect.DeepEqual(read, h) {
		t.Errorf("%v\n%+v\nwant\n%+v", err, read, h)
	}
}

func TestRead_RejectsAnIncompleteHistory(t *testing.T) {
	_, lines := written(t)
	last := len(lines) - 1
	for _, c := range []struct {
		name  string
		lines []string
		says  string
	}{
		{"empty", nil, "empty"},
		{"a history of attempts", []string{`{"key":"a","replica":0,"start":1,"end":2}`}, "not a history"},
		{"no JSON", []string{"hello\n"}, "not a history"},
		{"another version", []string{strings.Replace(lines[0], `"version":1`, `"version":2`, 1)}, "version 2"},
		{"cut off between lines", lines[:last], "incomplete"},
		{"only its header", lines[:1], "incomplete"},
		{"cut off in a line", append(append([]string{}, lines[:2]...), lines[2][:20]), "line 3"},
		{"a line is missing", append(append([]string{}, lines[:2]...), lines[3:]...), "counts 4 operations, but the file has 3"},
		{"two in one", append(append([]string{}, lines...), "\n"+lines[1]), "after the last line"},
		{"no key", []string{lines[0], `{"action":"buy","call":1}` + "\n"}, "without a key"},
		{"backwards", []string{lines[0], `{"key":"a","call":2,"return":1}` + "\n"}, "the return is before the call"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Read(strings.NewReader(strings.Join(c.lines, ""))); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

func TestFate_IsWhatTheClientWasToldAndTheDatabaseShows(t *testing.T) {
	for _, c := range []struct {
		outcome string
		effect  Effect
		reads   bool
		fate    Fate
	}{
		{OK, NotKnown, false, Done},
		{OK, Yes, false, Done},
		{Rejected, NotKnown, false, Refused},
		{Rejected, No, false, Refused},
		{Rejected, Yes, false, Contradiction},
		{Open, NotKnown, false, Nothing},
		{Open, Yes, false, Contradiction}, // abandoned after "busy", but it happened
		{"unknown", NotKnown, false, Maybe},
		{"unknown", Yes, false, Done},
		{"unknown", No, false, Nothing},
		{"unknown", NotKnown, true, Nothing},
		{OK, NotKnown, true, Done},
	} {
		if got := (&Operation{Outcome: c.outcome, Effect: c.effect, Reads: c.reads}).Fate(); got != c.fate {
			t.Errorf("%+v: fate %d", c, got)
		}
	}
}

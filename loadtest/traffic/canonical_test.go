// SPDX-License-Identifier: MIT

package traffic

import (
	"testing"
	"time"
)

func TestCanonical_EqualTimesAreEqualTextsAndANonObjectIsEmpty(t *testing.T) {
	for body, want := range map[string]string{
		`{"b":1,"a":"2026-01-01T01:00:00+01:00"}`:              `{"a":"2026-01-01T00:00:00.000000Z","b":1}`,
		`{"a":[{"at":"2026-01-01T00:00:00.12Z"}]}`:             `{"a":[{"at":"2026-01-01T00:00:00.120000Z"}]}`,
		`{"a":9007199254740993, "b": null, "c": "2026-01-01"}`: `{"a":9007199254740993,"b":null,"c":"2026-01-01"}`,
		`[]`: `{}`, ``: `{}`, `null`: `{}`, `<html>`: `{}`, `{} {}`: `{}`, `{"a":"\u0000"}`: `{}`,
	} {
		if got := Canonical([]byte(body)); string(got) != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

func TestTimes_AnEffectIsBetweenTheFirstAttemptAndTheAnswerThatDecided(t *testing.T) {
	attempts := []Attempt{
		{Start: 5 * time.Second, End: 6 * time.Second, Outcome: Open, Sends: 1},
		{Start: 4 * time.Second, End: 7 * time.Second, Outcome: Unknown, Sends: 1}, // a duplicate that is slower
		{Start: 8 * time.Second, End: 9 * time.Second, Outcome: OK, Sends: 1},
		{Start: 10 * time.Second, End: 11 * time.Second, Outcome: OK, Sends: 1}, // sent again
	}
	for _, c := range []struct {
		record          Record
		begun, answered time.Duration
	}{
		{Record{Outcome: OK, Attempts: attempts}, 4 * time.Second, 9 * time.Second},
		{Record{Intent: Intent{Reads: true}, Outcome: OK, Attempts: attempts}, 8 * time.Second, 9 * time.Second},
		{Record{Outcome: Unknown, Attempts: attempts[:2]}, 4 * time.Second, 0},
		{Record{Outcome: Open}, 0, 0},
	} {
		if begun, answered := c.record.Times(); begun != c.begun || answered != c.answered {
			t.Errorf("%s: %v to %v, want %v to %v", c.record.Outcome, begun, answered, c.begun, c.answered)
		}
	}
}

func TestAddBeside_RequestsAreInOrderOfTimeAndDuplicatesStayTogether(t *testing.T) {
	var p Plan
	random := RandomFor("x")
	for i := range 20 {
		p.Add(random, 3, ScheduledRequest{At: time.Duration(i), Intent: &Intent{Key: "w"}})
	}
	read := &Intent{Key: "r", Reads: true}
	p.AddBeside(ScheduledRequest{At: 10, Intent: read}, ScheduledRequest{At: 0, Intent: Intent{Key: "d"}.Denied("forbidden")})
	if len(p.Schedule) != 24 || len(p.Intents) != 22 || len(p.Load()) != 20 {
		t.Fatalf("%d requests, %d intents, %d of the load", len(p.Schedule), len(p.Intents), len(p.Load()))
	}
	twice := 0
	for i := 1; i < len(p.Schedule); i++ {
		if p.Schedule[i].At < p.Schedule[i-1].At {
			t.Errorf("request %d is earlier than the one before", i)
		}
		if p.Schedule[i].Intent == p.Schedule[i-1].Intent {
			twice++
		}
	}
	if twice != 2 {
		t.Errorf("%d duplicates side by side, want 2", twice)
	}
}

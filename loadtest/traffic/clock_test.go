// SPDX-License-Identifier: MIT

package traffic

import (
	"strings"
	"testing"
	"time"
)

func TestUntimely_TheEffectIsMadeWhileItsClientWaits(t *testing.T) {
	h := &History{Epoch: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	bought := func(body string) Record {
		return Record{
			Intent: Intent{Key: "k", Action: "buy"}, Outcome: OK, Body: []byte(body),
			Attempts: []Attempt{ // in the order in which they ended: the second overtook the first
				{Outcome: OK, Start: 2 * time.Second, End: 3 * time.Second},
				{Outcome: Unknown, Start: time.Second, End: 4 * time.Second},
			},
		}
	}
	for _, c := range []struct{ name, body, wrong string }{
		{"at the first attempt", `{"at":"2026-01-01T00:00:01Z"}`, ""},
		{"with the answer, in another zone", `{"at":"2026-01-01T01:00:03+01:00"}`, ""},
		{"a clock that is read coarsely", `{"at":"2026-01-01T00:00:00.951Z"}`, ""},
		{"before it was asked for", `{"at":"2026-01-01T00:00:00.949Z"}`, "-51ms after the first request"},
		{"behind the answer", `{"at":"2026-01-01T00:00:03.051Z"}`, "-51ms before the answer"},
		{"local time that is called UTC", `{"at":"2026-01-01T01:00:02Z"}`, "1h0m1s after"},
		{"no time", `{"at":7}`, "no time in at"},
		{"another field", `{"made":"2026-01-01T00:00:02Z"}`, "no time in at"},
		{"no JSON", `<html>`, "no time in at"},
	} {
		got := h.Untimely([]Record{bought(c.body)}, map[Action]string{"buy": "at"})
		if (c.wrong != "") != (len(got) == 1) || len(got) == 1 && !strings.Contains(got[0], c.wrong) {
			t.Errorf("%s: %q, want %q", c.name, got, c.wrong)
		}
	}
}

func TestUntimely_OnlySuccessesOfActionsWithATimeAreChecked(t *testing.T) {
	h := NewHistory()
	records := []Record{
		{Intent: Intent{Action: "buy"}, Outcome: Rejected, Body: []byte(`{}`)},
		{Intent: Intent{Action: "buy", Reads: true}, Outcome: OK, Body: []byte(`{}`)},
		{Intent: Intent{Action: "look"}, Outcome: OK, Body: []byte(`{}`)},
	}
	if wrong := h.Untimely(records, map[Action]string{"buy": "at"}); len(wrong) != 0 {
		t.Error(wrong)
	}
}

func TestSet_IsWhatTheWallClockGainedOverTheTimeThatPassed(t *testing.T) {
	from := time.Now()
	if by := set(from, from.Add(time.Hour), time.Minute); by != 59*time.Minute {
		t.Errorf("set forward by %v", by)
	}
	if by := set(from, from.Add(-time.Minute), time.Minute); by != -2*time.Minute {
		t.Errorf("set back by %v", by)
	}
}

// SPDX-License-Identifier: MIT

package crashmatrix

import (
	"slices"
	"strings"
	"testing"
	"time"

	"shop/loadtest/traffic"
)

// good returns an observation of each kind of cell in which everything is correct.
func good() map[string]seen {
	hit := traffic.Record{Intent: traffic.Intent{Key: "cell-001"}, Outcome: traffic.OK, Attempts: make([]traffic.Attempt, 2)}
	before := seen{sound: true, stood: true, record: hit, stored: 1, evidence: evidence{hit: true}}
	after := before
	after.committed, after.storedThen = true, 1
	return map[string]seen{"before the commit": before, "after the commit": after}
}

func TestJudge_AHitWithOneEffectIsOK(t *testing.T) {
	for name, s := range good() {
		if verdict, why := s.judge(); verdict != OK || len(why) > 0 {
			t.Errorf("%s: %s %q", name, verdict, why)
		}
		refused := s
		refused.record.Outcome, refused.stored = traffic.Rejected, 0
		if verdict, why := refused.judge(); verdict != OK {
			t.Errorf("%s, refused: %s %q", name, verdict, why)
		}
	}
}

func TestJudge_WithoutEvidenceACellIsEmpty(t *testing.T) {
	for name, spoil := range map[string]func(*seen){
		"no hit":           func(s *seen) { s.stood = false },
		"not sound before": func(s *seen) { s.sound = false },
		"not at its step":  func(s *seen) { s.storedThen = 1 - s.storedThen },
		"no evidence":      func(s *seen) { s.evidence.hit = false },
	} {
		for kind, s := range good() {
			spoil(&s)
			if verdict, why := s.judge(); verdict != Empty || len(why) == 0 {
				t.Errorf("%s, %s: %s %q", name, kind, verdict, why)
			}
		}
	}
}

func TestEvidence_IsThatTheFaultHitTheStoppedRequest(t *testing.T) {
	const ttl = time.Second
	for name, c := range map[string]struct {
		of   evidence
		want bool
	}{
		"paused past the TTL":             {paused(1300*time.Millisecond, ttl, true, true), true},
		"paused for the TTL alone":        {paused(ttl, ttl, true, true), false},
		"did not stay stopped to the end": {paused(1300*time.Millisecond, ttl, false, true), false},
		"cut":                             {cut(1, 3, true), true},
		"nothing was lost":                {cut(0, 3, true), false},
		"no connection was cut":           {cut(1, 0, true), false},
		"cut with nothing to lose":        {cut(0, 3, false), true},
		"nothing to lose, no connection":  {cut(0, 0, false), false},
	} {
		if c.of.hit != c.want || c.of.text == "" {
			t.Errorf("%s: %+v", name, c.of)
		}
	}
}

func TestJudge_AViolationCountsEvenWithoutEvidence(t *testing.T) {
	for want, spoil := range map[string]func(*seen){
		"is not decided":             func(s *seen) { s.record.Outcome = traffic.Unknown },
		"two different":              func(s *seen) { s.record.Diverged = true },
		"2 effects":                  func(s *seen) { s.stored = 2 },
		"and has no effect":          func(s *seen) { s.stored = 0 },
		"refused, and has an effect": func(s *seen) { s.record.Outcome = traffic.Rejected },
		"a rival for the same":       func(s *seen) { s.stuck = []string{"cell-001-rival"} },
		"S1: product":                func(s *seen) { s.broken = []string{"S1: product"} },
	} {
		for kind, s := range good() {
			spoil(&s)
			for _, stood := range []bool{true, false} {
				s.stood = stood
				verdict, why := s.judge()
				if verdict != Violated || !slices.ContainsFunc(why, func(text string) bool { return strings.Contains(text, want) }) {
					t.Errorf("%s, %s: %s %q", want, kind, verdict, why)
				}
			}
		}
	}
}

func TestFailpoints_StopTheRequestOfEachCell(t *testing.T) {
	m := Matrix{&Cells{}, []Cell{{Step: "a"}, {Step: "a"}, {Step: "b"}, {Step: "b"}}}
	want := []string{
		"--failpoint", "f/a=stop:cell-000", "--failpoint", "f/a=stop:cell-001",
		"--failpoint", "f/b=stop:cell-002", "--failpoint", "f/b=stop:cell-003",
	}
	if got := m.failpoints("f"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

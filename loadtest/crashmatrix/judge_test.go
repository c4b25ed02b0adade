// SPDX-License-Identifier: MIT

package crashmatrix

import (
	"slices"
	"strings"
	"testing"
	"time"

	"shop/loadtest"
)

// good returns an observation of each kind of cell in which everything is correct.
func good() map[string]seen {
	hit := loadtest.Record{Intent: loadtest.Intent{Key: "cell-001"}, Outcome: loadtest.OK, Attempts: make([]loadtest.Attempt, 2)}
	base := seen{sound: true, stood: true, hit: hit, stored: 1, uses: true, ttl: time.Second}
	killed, paused, cut, idle := base, base, base, base
	killed.killed = true
	paused.paused, paused.stoodOn = 1300*time.Millisecond, true
	cut.lost, cut.connections = 1, 3
	idle.uses, idle.connections, idle.committed, idle.storedThen = false, 3, true, 1
	return map[string]seen{"killed": killed, "paused": paused, "cut": cut, "cut with nothing to lose": idle}
}

func TestJudge_AHitWithOneEffectIsOK(t *testing.T) {
	for name, s := range good() {
		if verdict, why := s.judge(); verdict != loadtest.CellOK || len(why) > 0 {
			t.Errorf("%s: %s %q", name, verdict, why)
		}
		refused := s
		refused.hit.Outcome, refused.stored = loadtest.Rejected, 0
		if verdict, why := refused.judge(); verdict != loadtest.CellOK {
			t.Errorf("%s, refused: %s %q", name, verdict, why)
		}
	}
}

func TestJudge_WithoutEvidenceACellIsEmpty(t *testing.T) {
	for name, spoil := range map[string]func(*seen){
		"no hit":                          func(s *seen) { s.stood = false },
		"not sound before":                func(s *seen) { s.sound = false },
		"not at its step":                 func(s *seen) { s.storedThen = 1 - s.storedThen },
		"killed by something else":        func(s *seen) { s.killed = false },
		"paused for less than the TTL":    func(s *seen) { s.paused = min(s.paused, time.Second) },
		"did not stay stopped to the end": func(s *seen) { s.stoodOn = false },
		"nothing was lost":                func(s *seen) { s.lost = 0 },
		"no connection was cut":           func(s *seen) { s.connections = 0 },
	} {
		spoiled := 0
		for kind, s := range good() {
			was := len(s.lacking()) == 0
			spoil(&s)
			verdict, why := s.judge()
			if verdict == loadtest.CellOK {
				continue // another kind of fault
			}
			spoiled++
			if !was || verdict != loadtest.CellEmpty || len(why) == 0 {
				t.Errorf("%s, %s: %s %q", name, kind, verdict, why)
			}
		}
		if spoiled == 0 {
			t.Errorf("%s: no cell is empty", name)
		}
	}
}

func TestJudge_AViolationCountsEvenWithoutEvidence(t *testing.T) {
	for want, spoil := range map[string]func(*seen){
		"is not decided":             func(s *seen) { s.hit.Outcome = loadtest.Unknown },
		"two different":              func(s *seen) { s.hit.Diverged = true },
		"2 effects":                  func(s *seen) { s.stored = 2 },
		"and has no effect":          func(s *seen) { s.stored = 0 },
		"refused, and has an effect": func(s *seen) { s.hit.Outcome = loadtest.Rejected },
		"a rival for the same":       func(s *seen) { s.stuck = []string{"cell-001-rival"} },
		"S1: product":                func(s *seen) { s.broken = []string{"S1: product"} },
	} {
		for kind, s := range good() {
			spoil(&s)
			for _, stood := range []bool{true, false} {
				s.stood = stood
				verdict, why := s.judge()
				if verdict != loadtest.CellViolated || !slices.ContainsFunc(why, func(text string) bool { return strings.Contains(text, want) }) {
					t.Errorf("%s, %s: %s %q", want, kind, verdict, why)
				}
			}
		}
	}
}

func TestFailpoints_StopTheRequestOfEachCell(t *testing.T) {
	flow := &loadtest.Flow{Name: "f", Cells: &loadtest.Cells{Steps: []string{"a", "b"}}}
	got := Failpoints(flow.Safe("s", loadtest.CrashMatrix))
	want := []string{
		"--failpoint", "f/a=stop:cell-000", "--failpoint", "f/a=stop:cell-001",
		"--failpoint", "f/b=stop:cell-002", "--failpoint", "f/b=stop:cell-003",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := Failpoints(flow.Safe("s", loadtest.Pause)); got != nil {
		t.Errorf("under another fault: %q", got)
	}
}

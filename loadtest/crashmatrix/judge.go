// SPDX-License-Identifier: MIT

package crashmatrix

import (
	"fmt"
	"time"

	"shop/loadtest/traffic"
)

// seen is what was observed of a cell from outside.
type seen struct {
	sound      bool // a request succeeded at the victim before
	stood      bool // the victim was stopped at the step
	committed  bool // the step is after the commit
	storedThen int  // effects of the key while the victim was stopped
	evidence   evidence
	record     traffic.Record // of the key that was hit
	stored     int            // effects of the key at the end
	stuck      []string       // keys of undecided rivals
	broken     []string       // invariants, with the ids that break them
}

// evidence describes what the fault did, and whether it hit the request that was stopped at the step.
type evidence struct {
	text string
	hit  bool
}

// paused is the evidence of a pause. stoodOn: the victim was still stopped at its end; overtaken: a rival succeeded during it.
func paused(over, ttl time.Duration, stoodOn, overtaken bool) evidence {
	text := fmt.Sprintf("stopped for %.1f s, %.1f TTL", over.Seconds(), over.Seconds()/ttl.Seconds())
	if overtaken {
		text += ", while a rival succeeded"
	}
	return evidence{text, over > ttl && stoodOn}
}

// cut is the evidence of a cut that lost chunks of data on some connections. uses: the request still sends something to the store.
func cut(lost, connections int64, uses bool) evidence {
	if lost == 0 && !uses {
		return evidence{fmt.Sprintf("connections cut: %d; the request sends the store nothing more", connections), connections > 0}
	}
	return evidence{fmt.Sprintf("chunks lost: %d, connections: %d", lost, connections), lost > 0 && connections > 0}
}

// judge returns the verdict on a cell. A violation counts even if evidence of the fault is missing.
func (s seen) judge() (Verdict, []string) {
	if wrong := s.wrong(); len(wrong) > 0 {
		return Violated, wrong
	}
	if lacking := s.lacking(); len(lacking) > 0 {
		return Empty, lacking
	}
	return OK, nil
}

// wrong lists the violations.
func (s seen) wrong() (wrong []string) {
	key := s.record.Key
	switch {
	case !s.record.Outcome.Final():
		wrong = append(wrong, fmt.Sprintf("%s is not decided: %s", key, s.record.Ended()))
	case s.record.Diverged:
		wrong = append(wrong, key+" got two different final answers")
	}
	switch {
	case s.stored > 1:
		wrong = append(wrong, fmt.Sprintf("%s has %d effects", key, s.stored))
	case s.record.Outcome == traffic.OK && s.stored == 0:
		wrong = append(wrong, key+" was acknowledged, and has no effect")
	case s.record.Outcome == traffic.Rejected && s.stored > 0:
		wrong = append(wrong, key+" was refused, and has an effect")
	}
	for _, key := range s.stuck {
		wrong = append(wrong, key+", a rival for the same object, is not decided")
	}
	return append(wrong, s.broken...)
}

// lacking lists the evidence that is missing.
func (s seen) lacking() (lacking []string) {
	want := 0
	if s.committed {
		want = 1
	}
	if !s.sound {
		lacking = append(lacking, "no earlier request succeeded at the replica")
	}
	if !s.stood {
		return append(lacking, "the request did not reach the step: it ended as "+s.record.Ended())
	}
	if s.storedThen != want {
		lacking = append(lacking, fmt.Sprintf("effects of the key stored while the replica was stopped at the step: %d, want %d", s.storedThen, want))
	}
	if !s.evidence.hit {
		lacking = append(lacking, "the replica was stopped at the step, without evidence of the fault: "+s.evidence.text)
	}
	return lacking
}

// observed describes what was observed of a request that was stopped at the step.
func (s seen) observed() []string {
	return []string{
		fmt.Sprintf("the kernel reported the process as stopped; effects of the key stored: %d", s.storedThen),
		s.evidence.text,
		fmt.Sprintf("decided as %s by attempt %d", s.record.Outcome, len(s.record.Attempts)),
	}
}

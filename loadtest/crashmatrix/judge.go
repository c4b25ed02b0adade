// SPDX-License-Identifier: MIT

package crashmatrix

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"shop/loadtest"
)

// seen is what was observed of a cell from outside.
type seen struct {
	sound      bool  // a request succeeded at the victim before
	stood      bool  // the victim was stopped at the step
	storedThen int64 // effects of the key while it was stopped
	committed  bool  // the step is after the commit

	killed      bool          // by SIGKILL
	paused      time.Duration // for how long the victim was stopped
	stoodOn     bool          // still stopped at the end of the pause
	overtaken   bool          // a rival succeeded during the pause
	ttl         time.Duration
	uses        bool  // the request still sends something to the store
	lost        int64 // chunks
	connections int64 // on the link that was cut

	hit    loadtest.Record
	stored int64    // effects of the key at the end
	stuck  []string // keys of undecided rivals
	broken []string // invariants, with the ids that break them
}

// judge returns the verdict on a cell. A violation counts even if evidence of the fault is missing.
func (s seen) judge() (loadtest.CellVerdict, []string) {
	if wrong := s.wrong(); len(wrong) > 0 {
		return loadtest.CellViolated, wrong
	}
	if lacking := s.lacking(); len(lacking) > 0 {
		return loadtest.CellEmpty, lacking
	}
	return loadtest.CellOK, nil
}

// wrong lists the violations.
func (s seen) wrong() (wrong []string) {
	key := s.hit.Key
	switch {
	case !s.hit.Outcome.Final():
		wrong = append(wrong, fmt.Sprintf("%s is not decided: %s", key, s.hit.Ended()))
	case s.hit.Diverged:
		wrong = append(wrong, key+" got two different final answers")
	}
	switch {
	case s.stored > 1:
		wrong = append(wrong, fmt.Sprintf("%s has %d effects", key, s.stored))
	case s.hit.Outcome == loadtest.OK && s.stored == 0:
		wrong = append(wrong, key+" was acknowledged, and has no effect")
	case s.hit.Outcome == loadtest.Rejected && s.stored > 0:
		wrong = append(wrong, key+" was refused, and has an effect")
	}
	for _, key := range s.stuck {
		wrong = append(wrong, key+", a rival for the same object, is not decided")
	}
	return append(wrong, s.broken...)
}

// lacking lists the evidence that is missing.
func (s seen) lacking() (lacking []string) {
	var want int64
	if s.committed {
		want = 1
	}
	switch {
	case !s.sound:
		lacking = append(lacking, "no earlier request succeeded at the replica")
	case !s.stood:
		return append(lacking, "the request did not reach the step: it ended as "+s.hit.Ended())
	}
	if s.storedThen != want {
		lacking = append(lacking, fmt.Sprintf("effects of the key stored while the replica was stopped at the step: %d, want %d", s.storedThen, want))
	}
	if text, hit := s.fault(); !hit {
		lacking = append(lacking, "the replica was stopped at the step, without evidence of the fault: "+text)
	}
	return lacking
}

// fault describes what the fault did, and reports whether it hit the request that was stopped at the step.
func (s seen) fault() (text string, hit bool) {
	switch {
	case s.killed:
		return "wait status SIGKILL", true
	case s.paused > 0:
		text = fmt.Sprintf("stopped for %.1f s, %.1f TTL", s.paused.Seconds(), s.paused.Seconds()/s.ttl.Seconds())
		if s.overtaken {
			text += ", while a rival succeeded"
		}
		return text, s.paused > s.ttl && s.stoodOn
	case s.lost == 0 && !s.uses:
		return fmt.Sprintf("connections cut: %d; the request sends the store nothing more", s.connections), s.connections > 0
	}
	return fmt.Sprintf("chunks lost: %d, connections: %d", s.lost, s.connections), s.lost > 0 && s.connections > 0
}

// evidence describes what was observed.
func (s seen) evidence() []string {
	if !s.stood {
		return nil
	}
	text, _ := s.fault()
	return []string{
		fmt.Sprintf("the kernel reported the process as stopped; effects of the key stored: %d", s.storedThen),
		text,
		fmt.Sprintf("decided as %s by attempt %d", s.hit.Outcome, len(s.hit.Attempts)),
	}
}

// broken lists the violated invariants that concern the objects or the requests of the cell.
func (c *trying) broken(ctx context.Context) (found []string, err error) {
	about := c.about()
	for _, check := range c.inspection.Checks {
		ids, err := c.inspection.Query(ctx, check)
		if err != nil {
			return nil, fmt.Errorf("check %s: %w", check.Name, err)
		}
		for _, id := range ids {
			if slices.ContainsFunc(about, func(part string) bool { return strings.Contains(id, part) }) {
				found = append(found, fmt.Sprintf("%s: %s: %s", check.Invariant, check.Means, id))
			}
		}
	}
	return found, nil
}

// about returns the names of the objects of a cell, and the keys and ids of its requests.
func (c *trying) about() (names []string) {
	for _, i := range slices.Concat(c.requests.Warm, []*loadtest.Intent{c.requests.Hit}, c.requests.Rivals) {
		names = append(names, i.Contends...)
		r := c.Trial.History.Record(i.Key)
		if r.Key == "" {
			continue
		}
		names = append(names, r.Key)
		if r.Outcome == loadtest.OK {
			names = append(names, r.Made.String())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

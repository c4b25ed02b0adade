package crashmatrix

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"shop/loadtest"
)

// seen is what was seen of a cell from outside.
type seen struct {
	sound      bool // the victim did a request before
	stood      bool // the victim stood still at the step
	storedThen int64
	committed  bool // the step is behind the commit

	killed      bool          // by SIGKILL
	paused      time.Duration // it stood still for so long
	stoodOn     bool          // to the end
	overtaken   bool          // a rival had the object meanwhile
	ttl         time.Duration
	uses        bool  // the request still sends something to the store
	lost        int64 // chunks
	connections int64 // on the link that was cut

	hit    loadtest.Record
	stored int64    // effects of its key in the end
	stuck  []string // keys of rivals that are not decided
	broken []string // invariants, with what broke them
}

// judge says what a cell shows. What was seen to be wrong counts also where the evidence lacks.
func (s seen) judge() (loadtest.CellVerdict, []string) {
	if wrong := s.wrong(); len(wrong) > 0 {
		return loadtest.CellViolated, wrong
	}
	if lacking := s.lacking(); len(lacking) > 0 {
		return loadtest.CellEmpty, lacking
	}
	return loadtest.CellOK, nil
}

// wrong is what is violated.
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
		wrong = append(wrong, key+", which is about the same, is not decided")
	}
	return append(wrong, s.broken...)
}

// lacking is the evidence that is not there.
func (s seen) lacking() (lacking []string) {
	var want int64
	if s.committed {
		want = 1
	}
	switch {
	case !s.sound:
		lacking = append(lacking, "no request succeeded at the replica before")
	case !s.stood:
		return append(lacking, "the request did not come to the step: it ended as "+s.hit.Ended())
	}
	if s.storedThen != want {
		lacking = append(lacking, fmt.Sprintf("%s of its key stored while it stood at the step, want %d", counted(s.storedThen, "effect"), want))
	}
	if !s.struck() {
		lacking = append(lacking, "the replica stood at the step, and nothing is seen of the fault: "+strings.Join(s.evidence()[1:], ", "))
	}
	return lacking
}

// struck tells whether the request was hit.
func (s seen) struck() bool {
	switch {
	case !s.stood:
		return false
	case s.killed:
		return true
	case s.paused > 0:
		return s.paused > s.ttl && s.stoodOn
	}
	return s.connections > 0 && (s.lost > 0 || !s.uses)
}

// evidence is what was seen, in words.
func (s seen) evidence() []string {
	if !s.stood {
		return nil
	}
	list := []string{fmt.Sprintf("the kernel showed the process as stopped, with %s of the key stored", counted(s.storedThen, "effect"))}
	switch {
	case s.killed:
		list = append(list, "wait status SIGKILL")
	case s.paused > 0:
		text := fmt.Sprintf("stopped for %.1f s, %.1f TTL", s.paused.Seconds(), s.paused.Seconds()/s.ttl.Seconds())
		if s.overtaken {
			text += ", a rival succeeded meanwhile"
		}
		list = append(list, text)
	default:
		text := fmt.Sprintf("%s lost on %s", counted(s.lost, "chunk"), counted(s.connections, "connection"))
		if s.lost == 0 && !s.uses {
			text = counted(s.connections, "connection") + " cut; the request sends nothing more there"
		}
		list = append(list, text)
	}
	return append(list, fmt.Sprintf("decided as %s by attempt %d", s.hit.Outcome, len(s.hit.Attempts)))
}

// counted is a number of things, in words.
func counted(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// broken lists what breaks an invariant, and is about the objects or the requests of the cell.
func (c *trying) broken(ctx context.Context) (found []string, err error) {
	about := c.about()
	for _, check := range c.look.Checks {
		ids, err := c.look.Ask(ctx, check)
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

// about are the names of the objects of a cell, and the keys and ids of its requests.
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

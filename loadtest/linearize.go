// SPDX-License-Identifier: MIT

package loadtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"shop/loadtest/judge"
	"shop/loadtest/linear"
	"shop/loadtest/traffic"
)

// linearize writes the history of a scenario, checks it, and adds the findings to r.
func (t *Trial) linearize(ctx context.Context, r *Result, records []traffic.Record, audited Audited) error {
	s := t.Scenario
	if s.Flow.Linear == nil {
		return nil
	}
	given, err := json.Marshal(t.Plan.Given)
	if err != nil {
		return fmt.Errorf("encode what the plan provides: %w", err)
	}
	var ids [][16]byte
	for _, c := range t.Clients {
		ids = append(ids, c.ID)
	}
	h := judge.WithEffects(linear.Header{
		Flow: s.Flow.Name, Strategy: s.Strategy, Fault: string(s.Fault), Seed: cmp.Or(s.Seed, t.proof.Load.Seed),
		Epoch: t.History.Epoch, Given: given, Audited: audited.Effects != nil,
	}, records, audited.Effects, ids)
	h.Operations = append(h.Operations, audited.Own...)
	folder := filepath.Join(t.proof.Out, s.Folder())
	if t.proof.Out != "" {
		if err := judge.WriteHistory(filepath.Join(folder, judge.HistoryFile), h); err != nil {
			return err
		}
	}
	partitions, err := s.Flow.Linear(h)
	if err != nil {
		return fmt.Errorf("%s: %w", judge.HistoryFile, err)
	}
	checked := linear.Check(ctx, partitions, t.proof.limits(s))
	r.judge(checked)
	if t.proof.Out == "" {
		return ctx.Err()
	}
	drawing := ctx
	if s.Expect == Violated {
		bounded, stop := context.WithTimeoutCause(ctx, controlDrawing, linear.ErrTime)
		defer stop()
		drawing = bounded
	}
	return errors.Join(ctx.Err(), judge.Draw(drawing, folder, checked))
}

// The bounds for a control: of the check of each partition, and of all drawings. When many requests wait at
// once, proving that no order is legal can take longer than any bound, and the checks of Breaks catch the
// control anyway.
const (
	controlTime    = 500 * time.Millisecond
	controlDrawing = 2 * time.Second
)

// limits returns the limits for the check of a scenario's history.
func (p *Proof) limits(s Scenario) linear.Limits {
	limits := p.Limits
	if s.Expect == Violated && (limits.Time == 0 || limits.Time > controlTime) {
		limits.Time = controlTime
	}
	return limits
}

// judge adds the findings of a check. A check that is undecided, or without operations, makes the run of a
// safe strategy inconclusive; a control is judged by Breaks and Keeps alone.
func (r *Result) judge(checked linear.Result) {
	r.Checked = checked.Operations
	r.Evidence["partitions"], r.Evidence["check_ms"] = int64(checked.Partitions), checked.Took.Milliseconds()
	if checked.Operations == 0 && r.Expect == Safe {
		r.Inconclusive = append(r.Inconclusive, "no operation was checked for linearizability: the model knows none of the history")
	}
	var illegal []string
	for _, f := range checked.Failures {
		if f.Verdict == linear.Illegal {
			illegal = append(illegal, f.Sentence())
		} else if r.Expect == Safe {
			r.Inconclusive = append(r.Inconclusive, "the history could not be checked: "+f.Sentence())
		}
	}
	r.Findings.Add("I-LIN", illegal...)
}

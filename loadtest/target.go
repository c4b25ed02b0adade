// SPDX-License-Identifier: MIT

package loadtest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"shop/loadtest/judge"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// Target is a service outside of this repository, what is sent to it, and what must be true afterwards.
// A Target is not started or stopped, and no faults are injected. Package target reads one from a file.
type Target struct {
	Name       string
	Bases      []string // one for each replica, or that of a load balancer
	Headers    traffic.Headers
	Classify   func(int, http.Header, []byte) (traffic.Outcome, string)
	Stored     []string                                           // as in Flow
	Same       func(traffic.Record, traffic.Attempt, []byte) bool // as in History
	Plan       traffic.Plan
	FollowUp   func(traffic.Record) []traffic.ScheduledRequest // what clients send after a success; may be nil
	Load       traffic.Load
	Grace      time.Duration // after the load, until every key must be decided; 0: 20 s
	Undecided  float64       // the share of keys that may stay undecided
	Invariants []invariant.Invariant

	// Audit finds errors in the answers and in what the service stored.
	Audit func(context.Context, []traffic.Record) (Audited, error)
	// Review returns why the run shows nothing, and hints at settings that may be wrong.
	Review func(Result) (inconclusive, hints []string)

	Say  func(format string, args ...any)
	Tick func(line string)
}

// TargetFlow is the name of the flow of a Target.
const TargetFlow = "target"

// flow is nearly empty: Target has what a Flow would define.
func (t *Target) flow() *Flow {
	return &Flow{
		Name: TargetFlow, Number: "oversold", Invariants: t.Invariants,
		Evidence: map[string]string{"oversold": "units that clients got beyond the supply"},
		Shown: Shown{Words: Words{Done: "ok"}, Summary: func(r Result) string {
			return fmt.Sprintf("%d ok, %d rejected, %d undecided, %d overlaps", r.OK, r.Rejected, r.Unknown, r.Evidence["overlaps"])
		}},
	}
}

// Run sends the load, retries undecided keys, sends some decided keys once more, and then audits. The
// service keeps running, so a query sees what is committed at that time; every request has ended before.
func (t *Target) Run(ctx context.Context) (Report, error) {
	r, err := traffic.NewRun(ctx, t.Bases, t.Headers, t.Load.Duration+cmp.Or(t.Grace, traffic.Grace), t.Classify, t.Stored...)
	if err != nil {
		return Report{}, err
	}
	r.Follow, r.History.Same = t.FollowUp, t.Same
	defer r.Close()
	t.Say("%s: %d requests to %d addresses", t.Name, len(t.Plan.Schedule), len(t.Bases))
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go progress(watching, r.History, t.Tick)
	sent := r.Send(ctx, t.Plan.Schedule)
	decided := r.History.Now()
	stop()
	replayed, silent := r.Replay(ctx, max(traffic.Grace, t.Grace))
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	records := r.History.Records()
	audited, err := t.audit(ctx, records, silent)
	if err != nil {
		return Report{}, err
	}
	scenario := t.flow().Safe(t.Name, NoFault)
	result := NewResult(scenario, len(t.Bases))
	result.Plan = t.Plan
	result.measure(records, decided)
	result.Evidence = judge.OnTheWire(records)
	result.Evidence["overlaps"], result.Evidence["replayed"] = judge.Overlaps(records, len(t.Bases)), replayed
	result.Findings, result.Violations = audited.Findings, audited.Findings.Counts()
	result.Violations[scenario.Flow.Number] = audited.Number
	result.Records, result.Epoch, result.Sent = records, r.History.Epoch, sent
	result.Inconclusive, result.Hints = t.Review(result)
	result.Inconclusive = append(traffic.Lagging(result.Latency.Lag), result.Inconclusive...)
	result.Verdict, result.AsExpected = Judge(scenario, result.Violations, result.Inconclusive)
	t.Say("    %s", result.Sentence())
	for _, hint := range result.Hints {
		t.Say("    hint: %s", hint)
	}
	return Report{Seed: t.Load.Seed, AsExpected: result.AsExpected, Scenarios: []Result{result}, Planned: 1, Load: t.Load, When: time.Now()}, nil
}

func (t *Target) audit(ctx context.Context, records []traffic.Record, silent []string) (Audited, error) {
	audited, err := t.Audit(ctx, records)
	if err != nil {
		return Audited{}, err
	}
	audited.Findings.Add("I-ONCE", append(judge.Diverged(records), judge.FirstDuplicates(records)...)...)
	open := judge.Undecided(records)
	if float64(len(open)) <= t.Undecided*float64(len(records)) {
		open = nil
	}
	audited.Findings.Add("I-LIVE", append(open, silent...)...)
	return audited, nil
}

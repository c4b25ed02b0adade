// SPDX-License-Identifier: MIT

package loadtest

import (
	"shop/loadtest/fault"
	"shop/loadtest/fault/replicafault"
)

// Combined is the strategy of each flow that answers several requests in one transaction, under one lock if it takes one.
const Combined = "combined"

// The faults of Combined: a replica is killed, or paused for longer
// than the TTL of its lock, in such a transaction.
const (
	CombinerKilled Fault = "combiner-killed"
	CombinerPaused Fault = "combiner-paused"
)

var together = Need{Evidence: "together", Least: 10, Why: "fewer than 10 transactions answered several requests"}

// CombinerKilledSpec is CombinerKilled: replicas die at the steps of Flow.Batch.
func CombinerKilledSpec() FaultSpec {
	setup := Setup{Inject: func(_ Servers, t *Trial) (fault.Fault, error) {
		f := t.Scenario.Flow
		return replicafault.CrashSteps{Replicas: t.Replicas, Flow: f.Name, Steps: f.Batch, Action: "kill-batch", Wait: stepWait, Calm: 2 * t.TTL()}, nil
	}}
	return FaultSpec{Fault: CombinerKilled, Of: Combined, Setup: setup, Needs: []Need{
		{Evidence: "crashes", Least: 5, Why: "fewer than 5 replicas were killed in a transaction for several requests"},
		{Evidence: "cut_off", Why: "no request was cut off by a kill"},
		together,
	}}
}

// CombinerPausedSpec is CombinerPaused, with more needs.
func CombinerPausedSpec(more ...Need) FaultSpec {
	setup := Setup{StopInBatch: true, Inject: func(_ Servers, t *Trial) (fault.Fault, error) {
		return replicafault.Pauses{Replicas: t.Replicas, TTL: t.TTL(), InBatch: t.Replicas.PauseInBatch}, nil
	}}
	return FaultSpec{Fault: CombinerPaused, Of: Combined, Setup: setup, Least: 10, Needs: append([]Need{
		{Evidence: "pauses", Least: 2, Why: "fewer than 2 pauses in a transaction for several requests"},
		together,
	}, more...)}
}

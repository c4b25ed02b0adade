// SPDX-License-Identifier: MIT

package loadtest

import (
	"cmp"
	"slices"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/fault/pgfault"
	"shop/loadtest/judge"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// The faults of a PostgreSQL with a standby. The standby is away for a while, during which a COMMIT waits. Then it
// returns, or the primary is lost and the standby takes over. The audit is made on the server that has taken over.
// PrimaryLostAsync is for controls: COMMITs do not wait for the standby, so acknowledged writes are lost.
const (
	StandbyGone      Fault = "standby-gone"
	PrimaryLost      Fault = "primary-lost"
	PrimaryLostAsync Fault = "primary-lost-async"
)

// StandbyAway is how long the standby is away. A request whose COMMIT waits ends as unknown within this time, and its
// key is sent again.
const StandbyAway = 8 * time.Second

// StandbySpecs are the faults of a standby, for strategies that use PostgreSQL. recovery is how long a server needs to
// start, and least the length of the load in TTLs. slower divides the rate of the load, so that connections are left for
// the keys that are sent again. Requests of the strategy reads, if there is one, wait in the COMMIT of what they read: none of them
// need end as unknown.
func StandbySpecs(recovery time.Duration, least, slower int, reads string) (specs []FaultSpec) {
	waited := []Need{
		{Evidence: "commits_waited", Expect: Safe, Why: "no COMMIT waited for the standby"},
		{Evidence: "outcome_unknown", Expect: Safe, Not: reads, Why: "no request ended as unknown while the standby was away"},
		{Evidence: "done_after", Least: 10, Why: "fewer than 10 writes succeeded after the fault"},
	}
	lost := append(slices.Clone(waited),
		Need{Evidence: "promotions", Why: "the standby was not promoted"},
		Need{Evidence: "done_meanwhile", Least: 10, Expect: Violated, Why: "fewer than 10 writes were acknowledged while the standby was away"},
	)
	spec := FaultSpec{Store: "postgres", Least: least, Slower: slower, Recovery: StandbyAway + recovery}
	spec.CatchUp = spec.Recovery // as long as the standby was away the keys that waited are caught up with
	for _, f := range []Fault{StandbyGone, PrimaryLost, PrimaryLostAsync} {
		spec.Fault, spec.Apart, spec.Needs = f, f == PrimaryLostAsync, lost
		spec.Setup = Setup{
			Postgres: PostgresPair, Args: []string{"--pg-max-conns", "32"}, // a COMMIT that waits keeps its connection
			Inject: func(servers Servers, t *Trial) (fault.Fault, error) {
				pair, err := servers.Members(PostgresPair)
				return pgfault.Standby{Members: pair, URL: t.Postgres, Away: StandbyAway, Lost: f != StandbyGone, Async: f == PrimaryLostAsync}, err
			},
		}
		if f == StandbyGone {
			spec.Needs = waited
		}
		specs = append(specs, spec)
	}
	return specs
}

// ReplicatedInvariant is judged under StandbyGone. Under PrimaryLost the database itself shows what was lost.
var ReplicatedInvariant = invariant.Invariant{
	Code: "I-SYNC", Name: "acknowledged-is-replicated",
	Means: "a write that is sent while the synchronous standby is away is not acknowledged until the standby is back",
}

// unreplicated lists the keys that were first sent while the standby was away, and decided meanwhile.
func (t *Trial) unreplicated(records []traffic.Record) []string {
	return judge.Keys(records, func(r traffic.Record) bool {
		if r.Reads || len(r.Attempts) == 0 || !r.Outcome.Final() {
			return false
		}
		first := slices.MinFunc(r.Attempts, func(a, b traffic.Attempt) int { return cmp.Compare(a.Start, b.Start) })
		decided := r.Deciding()
		return (r.Outcome == traffic.OK || decided.Stored) && judge.Inside(traffic.Attempt{Start: first.Start, End: decided.End}, t.events, t.History.Epoch)
	})
}

// durable returns the records without the answers to reads that may show a write that was lost with the primary. When
// PostgreSQL gives up the wait for the standby, since the client has cancelled it or statement_timeout is over, it makes
// the write visible: no answer to a write depends on that, an answer to a read does.
func (t *Trial) durable(records []traffic.Record) []traffic.Record {
	if t.Scenario.Fault != PrimaryLost {
		return records
	}
	records = slices.Clone(records)
	for i, r := range records {
		met := func(a traffic.Attempt) bool { return judge.MetFault(a, t.events, t.History.Epoch) }
		if r.Reads && slices.ContainsFunc(r.Attempts, met) {
			records[i].Outcome, records[i].Attempts = traffic.Unknown, nil // as if it had not been answered
		}
	}
	return records
}

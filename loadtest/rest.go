// SPDX-License-Identifier: MIT

package loadtest

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
	"shop/locking/invariant"
)

// LeakInvariant is the invariant that a process or a server breaks if it is not back at rest after a Nemesis.
var LeakInvariant = invariant.Invariant{
	Code: "I-LEAK", Name: "no-leak",
	Means: "after a nemesis, when the load has ended and the TTLs have passed, goroutines, open files, memory, connections, locks and leases are what they were before the load, give or take a stated slack",
}

// Figure is what a process or a server has at rest: before the load, after some reads, and again after it.
type Figure struct {
	Name   string `json:"name"`
	Before int64  `json:"before"`
	After  int64  `json:"after"` // the smallest value of the readings after the load
	Slack  int64  `json:"slack"` // After may exceed Before by it
}

// String describes the figure: replica 1: goroutines: 31 before the load, 95 after it, limit 51.
func (f Figure) String() string {
	return fmt.Sprintf("%s: %d before the load, %d after it, limit %d", f.Name, f.Before, f.After, f.Before+f.Slack)
}

// leaks lists the figures that are above their limits.
func leaks(figures []Figure) (found []string) {
	for _, f := range figures {
		if f.After > f.Before+f.Slack {
			found = append(found, f.String())
		}
	}
	return found
}

// comesBack reports whether the trial must be back at rest after its load. A control need not.
func (t *Trial) comesBack() bool { return t.Scenario.Fault == Nemesis && t.Scenario.Expect == Safe }

// readsFirst is how many reads each replica answers before its figures are read: it connects to its stores.
const readsFirst = 20

// beforeLoad reads the figures before the load.
func (t *Trial) beforeLoad(ctx context.Context) (err error) {
	if !t.comesBack() {
		return nil
	}
	for _, base := range t.Bases {
		left := readsFirst
		for _, i := range t.Plan.Intents {
			if i.Reads && left > 0 {
				_, _ = fetch(ctx, base+i.Path, t.Headers.Clients[i.Client]) // some of them are refused
				left--
			}
		}
	}
	t.before, err = t.figures(ctx)
	return err
}

// afterLoad waits until the locks of the load have expired, and then, for at most Grace, until each figure was within
// its limit once: what runs beside the load, as a sweeper does, takes locks at rest too.
func (t *Trial) afterLoad(ctx context.Context) {
	if !t.comesBack() || t.failed != nil || !fault.Wait(ctx, LiveBound(t.TTL())) {
		return
	}
	for end := time.Now().Add(t.Grace()); ; {
		now, err := t.figures(ctx)
		for i := range now {
			now[i].Before = t.before[i].After
			if t.AtRest != nil {
				now[i].After = min(now[i].After, t.AtRest[i].After)
			}
		}
		if err == nil {
			t.AtRest = now
		}
		if err == nil && len(leaks(now)) == 0 || time.Now().After(end) || !fault.Wait(ctx, time.Second) {
			return
		}
	}
}

// figures reads the figures of the processes and of the stores, into After.
//
// A connection that is idle in the pool of a replica may be kept for the next request, so it does not count, neither
// as a connection nor as an open file. These, and the goroutines, are by the replica's own count: no other process
// can see them.
func (t *Trial) figures(ctx context.Context) (all []Figure, err error) {
	idle := map[string]int64{} // by server
	for n, r := range t.Replicas.all {
		of, err := r.figures(ctx, fmt.Sprintf("replica %d", n+1), idle)
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	if s := t.Replicas.sidecar; s != nil {
		of, err := processFigures("sidecar", s.pid(), 0)
		if err != nil {
			return nil, err
		}
		of[1].Slack = 20 // it has pools of its own
		all = append(all, of...)
	}
	of, err := t.postgresFigures(ctx, idle["postgres"])
	if err != nil {
		return nil, err
	}
	all = append(all, of...)
	if t.proof.Figures != nil {
		if of, err = t.proof.Figures(ctx, t, idle); err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// figures reads those of a replica, and adds its idle connections to idle.
func (r *replica) figures(ctx context.Context, name string, idle map[string]int64) ([]Figure, error) {
	metrics, err := scrape(ctx, r.metrics)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	goroutines, kept := metrics["go_goroutines"].GetMetric(), int64(0)
	if len(goroutines) == 0 {
		return nil, fmt.Errorf("%s: no go_goroutines in its /metrics", name)
	}
	for _, m := range metrics["pool_connections"].GetMetric() {
		if label(m, "state") == "idle" {
			n := int64(m.GetGauge().GetValue())
			idle[label(m, "server")] += n
			kept += n
		}
	}
	of, err := processFigures(name, r.pid(), kept)
	return append(of, Figure{Name: name + ": goroutines", After: int64(goroutines[0].GetGauge().GetValue()), Slack: 20}), err
}

// processFigures reads those of a process from outside. idle of its open files are connections in pools.
func processFigures(name string, pid int, idle int64) ([]Figure, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return nil, err
	}
	var size, resident int64 // in pages
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return nil, fmt.Errorf("memory of %s: %w", name, err)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return []Figure{
		{Name: name + ": memory, MiB", After: resident * int64(os.Getpagesize()) >> 20, Slack: 64},
		{Name: name + ": open files", After: int64(len(files)) - idle, Slack: 10},
	}, err
}

// postgresFigures counts the connections to the trial's database, and their locks.
func (t *Trial) postgresFigures(ctx context.Context, idle int64) ([]Figure, error) {
	conn, err := pgx.Connect(ctx, t.Postgres)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var connections, locks int64
	err = conn.QueryRow(ctx, `
WITH session AS (
    SELECT pid
    FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid())
SELECT (SELECT count(*) FROM session),
       (SELECT count(*) FROM pg_locks JOIN session USING (pid) WHERE locktype IN ('advisory', 'transactionid', 'tuple'))`).Scan(&connections, &locks)
	return []Figure{
		{Name: "PostgreSQL: connections", After: connections - idle, Slack: 6},
		{Name: "PostgreSQL: locks", After: locks},
	}, err
}

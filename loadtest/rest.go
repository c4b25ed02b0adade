// SPDX-License-Identifier: MIT

package loadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
	"shop/loadtest/judge"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
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
				_, _ = traffic.Fetch(ctx, base+i.Path, t.Headers.Clients[i.Client]) // some of them are refused
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
	if !t.comesBack() || t.failed != nil || !fault.Wait(ctx, judge.LiveBound(t.TTL())) {
		return
	}
	for end := time.Now().Add(t.Grace()); ; {
		now, err := t.figures(ctx)
		for i, f := range now {
			if before := named(t.before, f.Name); before != nil {
				now[i].Before = before.After
			}
			if earlier := named(t.AtRest, f.Name); earlier != nil {
				now[i].After = min(f.After, earlier.After)
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

// named returns the figure with a name; nil: there is none.
func named(figures []Figure, name string) *Figure {
	for i := range figures {
		if figures[i].Name == name {
			return &figures[i]
		}
	}
	return nil
}

// figures reads the figures of the processes and of the stores, into After.
//
// A connection that is idle in the pool of a replica may be kept for the next request, so it does not count, neither
// as a connection nor as an open file. These, and the goroutines, are by the replica's own count: no other process
// can see them.
func (t *Trial) figures(ctx context.Context) (all []Figure, err error) {
	idle := map[string]int64{} // by server
	for _, p := range t.Replicas.Processes() {
		of, err := figuresOf(ctx, p, idle)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
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

// figuresOf reads those of a process, and adds its idle connections to idle.
func figuresOf(ctx context.Context, p site.Process, idle map[string]int64) ([]Figure, error) {
	if p.Metrics == "" {
		of, err := outside(p, 0)
		if err == nil {
			of[1].Slack = 20 // its pools do not say what is idle
		}
		return of, err
	}
	metrics, err := site.Scrape(ctx, p.Metrics)
	if err != nil {
		return nil, err
	}
	goroutines, kept := metrics["go_goroutines"].GetMetric(), int64(0)
	if len(goroutines) == 0 {
		return nil, errors.New("no go_goroutines in its /metrics")
	}
	for _, m := range metrics["pool_connections"].GetMetric() {
		if site.Label(m, "state") == "idle" {
			n := int64(m.GetGauge().GetValue())
			idle[site.Label(m, "server")] += n
			kept += n
		}
	}
	of, err := outside(p, kept)
	return append(of, Figure{Name: p.Name + ": goroutines", After: int64(goroutines[0].GetGauge().GetValue()), Slack: 20}), err
}

// outside reads the figures of a process that the kernel knows. idle of its open files are connections in pools.
func outside(p site.Process, idle int64) ([]Figure, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID))
	if err != nil {
		return nil, err
	}
	var size, resident int64 // in pages
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return nil, fmt.Errorf("its memory: %w", err)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
	return []Figure{
		{Name: p.Name + ": memory, MiB", After: resident * int64(os.Getpagesize()) >> 20, Slack: 64},
		{Name: p.Name + ": open files", After: int64(len(files)) - idle, Slack: 10},
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

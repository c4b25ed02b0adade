// SPDX-License-Identifier: MIT

package target

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// Log reports the progress of a run: Say prints a line that stays, Tick one that the next line replaces.
type Log struct {
	Say  func(format string, args ...any)
	Tick func(line string)
}

// Run loads the service and audits the result. It returns an error if the run was not possible. A service
// that fails is not an error.
func (f *File) Run(ctx context.Context, log Log) (loadtest.Report, error) {
	if err := f.load(); err != nil {
		return loadtest.Report{}, err
	}
	conn, err := f.connect(ctx)
	if err != nil {
		return loadtest.Report{}, err
	}
	if conn != nil {
		defer conn.Close(context.WithoutCancel(ctx))
	}
	supply, err := f.supply(ctx, conn)
	if err != nil {
		return loadtest.Report{}, err
	}
	p := &plan{file: f, replicas: len(f.Services), run: rand.Uint32()}
	load := traffic.Load{Rate: f.Rate, Duration: f.Duration, Seed: f.Seed, Replicas: len(f.Services)}
	drawn, err := p.draw(load)
	if err != nil {
		return loadtest.Report{}, err
	}
	if err := f.await(ctx); err != nil {
		return loadtest.Report{}, err
	}
	v := &review{file: f, supply: supply}
	t := loadtest.Target{
		Name: f.Name, Bases: f.Services, Headers: f.headers(), Classify: f.classify, Stored: f.Answers.stored(), Same: f.same, Plan: drawn, FollowUp: p.followUp,
		Load: load, Grace: f.Decide, Undecided: f.limits.undecided, Invariants: f.invariants(),
		Audit: func(ctx context.Context, records []traffic.Record) (loadtest.Audited, error) {
			return f.judge(ctx, conn, v, records)
		},
		Review: func(r loadtest.Result) (inconclusive, hints []string) {
			return v.inconclusive(r.Evidence["overlaps"]), v.hints()
		},
		Say: log.Say, Tick: log.Tick,
	}
	return t.Run(ctx)
}

// Folder is the folder of the run's files, relative to that of the report.
func (f *File) Folder() string {
	return (&loadtest.Flow{Name: loadtest.TargetFlow}).Safe(f.Name, loadtest.NoFault).Folder()
}

// connect connects to the database, if there is one, and prepares the audits on it.
func (f *File) connect(ctx context.Context) (*pgx.Conn, error) {
	if f.Database == "" {
		return nil, nil
	}
	if scheme, _, is := strings.Cut(f.Database, "://"); is && !strings.HasPrefix(scheme, "postgres") {
		return nil, f.at(place("database"), "queries run in PostgreSQL only, and this is the URL of %s: for another database, use an audit with a command", scheme)
	}
	config, err := pgx.ParseConfig(f.Database)
	if err != nil {
		return nil, f.at(place("database"), "not the URL of a database (not shown, since it may hold a password): want postgres://user:password@host/name")
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if err := f.rehearse(ctx, conn); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// await waits until each service accepts connections.
func (f *File) await(ctx context.Context) error {
	deadline := time.Now().Add(f.Start)
	for _, service := range f.Services {
		u, err := url.Parse(service) // checked by check
		if err != nil {
			return err
		}
		host := u.Host
		if u.Port() == "" {
			host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		}
		for {
			conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", host)
			if err == nil {
				_ = conn.Close()
				break
			}
			if time.Now().After(deadline) || !fault.Wait(ctx, 50*time.Millisecond) {
				return f.at(place("services"), "%s accepts no connection within %v: does the service run? %v", u.Host, f.Start, err)
			}
		}
	}
	return nil
}

// judge collects all findings.
func (f *File) judge(ctx context.Context, conn *pgx.Conn, v *review, records []traffic.Record) (loadtest.Audited, error) {
	v.records = records
	findings, blind, err := f.audit(ctx, conn, records)
	if err != nil {
		return loadtest.Audited{}, err
	}
	v.blind = blind
	supplied, over := judgeSupply(v.supply, records)
	findings.Merge(supplied)
	findings.Merge(f.judgeLimits(records))
	findings.Add("I-DENY", notRefused(records)...)
	findings.Add("I-ONCE", f.notNamed(records)...)
	return loadtest.Audited{Findings: findings, Number: over}, nil
}

// notNamed lists the repetitions that were taken for the first answer by an id that does not name the effect: several keys of
// one request have it, as if it were that of the object. Then only equal bytes show that there was one effect.
func (f *File) notNamed(records []traffic.Record) (wrong []string) {
	name := cmp.Or(f.Answers.ID, defaultID)
	key := func(r traffic.Record) string { return string(r.Action) + "\x00" + field(r.Body, name) }
	keys := map[string]int{}
	for _, r := range records {
		if r.Outcome == traffic.OK && !r.Reads {
			keys[key(r)]++
		}
	}
	for _, r := range records {
		if r.Reworded != "" && keys[key(r)] > 1 {
			wrong = append(wrong, fmt.Sprintf("%s: %s; %d keys have this %s, so it does not name the effect: set answers.id", r.Key, r.Reworded, keys[key(r)], name))
		}
	}
	return wrong
}

// notRefused lists the requests that did not end in one of their expected statuses.
func notRefused(records []traffic.Record) (wrong []string) {
	for _, r := range records {
		if expect := of(r.Intent).expect(); len(expect) > 0 && !slices.Contains(expect, r.Status()) {
			wrong = append(wrong, fmt.Sprintf("%s: %s %s by %s ended in %d %s; want %v", r.Action, r.Method, r.Path, of(r.Intent).Client, r.Status(), r.Problem(), expect))
		}
	}
	return wrong
}

// invariants returns the invariants of the file.
func (f *File) invariants() []invariant.Invariant {
	all := []invariant.Invariant{withinLimits}
	if f.Supply.Kind != 0 {
		all = append(all, supplyKept, allSold, readsFit)
	}
	for _, a := range f.Audits {
		if a.Name != "" {
			all = append(all, invariant.Invariant{Code: a.Name, Name: a.Name, Means: a.Means})
		}
	}
	return all
}

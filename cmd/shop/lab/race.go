// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/invariant"
	"shop/locking/pglock"
)

// Config locates the servers. A race needs PostgreSQL, and the stores of its flow.
type Config struct {
	PostgresURL   string
	RedisURL      string
	EtcdEndpoints []string    // none: no race of transfers, and etcd is not measured
	EtcdTLS       *tls.Config // nil: no certificate
	MongoURL      string      // "": no race of wallets, and MongoDB is not measured
	LockPrefix    string      // of the names in Redis and etcd
	KillRedis     bool        // allows the fault Kill, which ends the server at RedisURL
	Shop          Shop
	Sources       fs.FS // the files of the repository; nil: the page of patterns has paths instead of links
	Log           *slog.Logger
}

// The bounds of a race, from its start.
const (
	beginTime = 7500 * time.Millisecond // for a request to begin
	raceTime  = 11 * time.Second
	countTime = 5 * time.Second  // after raceTime, to count
	openTime  = 10 * time.Second // to make tables and connect
	tick      = 150 * time.Millisecond
)

// Lane is what one strategy did.
type Lane struct {
	Strategy string   `json:"strategy"`
	Safe     bool     `json:"safe"`
	Locks    bool     `json:"locks"` // it uses leases of a lock store
	Verdict  Verdict  `json:"verdict"`
	Samples  []Sample `json:"samples"`
	Events   []Event  `json:"events"`
}

// Result is what a race did.
type Result struct {
	Settings
	Command string    `json:"command"`
	Started time.Time `json:"started"`
	Lanes   []Lane    `json:"lanes"`
	Error   string    `json:"error,omitempty"` // of the fault: the verdicts stand all the same
}

// Race is a race that is about to run.
type Race struct {
	settings Settings
	db       *pgxpool.Pool
	locks    *driver.Store
	lease    locking.Lease // excludes other races
	lanes    []*lane
	killer   *killer // nil without the fault Kill
}

// Open makes the tables of a race and connects its replicas. It returns an error that matches ErrSettings, or
// ErrRunning, or names what is missing.
func Open(ctx context.Context, cfg Config, s Settings) (_ *Race, err error) {
	s = s.WithDefaults()
	if err := errors.Join(s.Validate(), cfg.allows(s)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	r := &Race{settings: s}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	schema, err := r.lock(ctx, cfg.PostgresURL)
	if err != nil {
		return nil, err
	}
	for n, strategy := range s.Strategies {
		l, err := openLane(ctx, s, strategy, site{cfg, r.db, fmt.Sprintf("%s_race_%d", schema, n+1)})
		if err != nil {
			return nil, err
		}
		r.lanes = append(r.lanes, l)
	}
	if s.Fault == Kill {
		if r.killer, err = newKiller(cfg); err != nil {
			return nil, err
		}
		for _, l := range r.lanes {
			l.killer, r.killer.records = r.killer, append(r.killer.records, l.record)
		}
	}
	return r, nil
}

// Close closes all connections. The tables stay, to be inspected.
func (r *Race) Close() {
	if r.killer != nil {
		r.killer.close()
	}
	for _, l := range r.lanes {
		l.close()
	}
	if r.locks != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.locks.Release(ctx, r.lease) // if it fails, Close ends the session
		r.locks.Close()
	}
	if r.db != nil {
		r.db.Close()
	}
}

// lock excludes other races, and returns the name of the shop's schema.
func (r *Race) lock(ctx context.Context, databaseURL string) (schema string, err error) {
	if r.db, err = openPool(ctx, databaseURL, 2, nil); err != nil { // one connection holds the lock
		return "", err
	}
	if err := r.db.QueryRow(ctx, `SELECT current_schema()`).Scan(&schema); err != nil {
		return "", err
	}
	if r.locks, err = pglock.NewSessions(r.db, pglock.Options{Prefix: "shop race "}); err != nil {
		return "", err
	}
	if r.lease, err = r.locks.TryAcquire(ctx, schema); errors.Is(err, locking.ErrBusy) {
		err = ErrRunning
	}
	return schema, err
}

// Progress is a sample of one lane, with the events since the one before.
type Progress struct {
	Lane   int     `json:"lane"`
	Sample Sample  `json:"sample"`
	Events []Event `json:"events"`
}

// Run runs the race in all lanes at the same time. It calls watch with the progress of each, one call at a time.
func (r *Race) Run(ctx context.Context, watch func(Progress)) (*Result, error) {
	result := &Result{Settings: r.settings, Command: r.settings.Command(), Started: time.Now(), Lanes: make([]Lane, len(r.lanes))}
	var (
		lanes sync.WaitGroup
		mu    sync.Mutex
		errs  = make([]error, len(r.lanes))
	)
	for _, l := range r.lanes {
		l.record.start = result.Started
	}
	for n, l := range r.lanes {
		out := &result.Lanes[n]
		out.Strategy, out.Safe, out.Locks = l.strategy.Name, l.strategy.Safe, l.locks()
		lanes.Go(func() {
			errs[n] = l.watched(ctx, out, func(s Sample, events []Event) {
				mu.Lock()
				defer mu.Unlock()
				watch(Progress{n, s, events})
			})
		})
	}
	lanes.Wait()
	if r.killer != nil {
		if err := r.killer.wait(ctx); err != nil {
			result.Error = err.Error()
		}
	}
	return result, errors.Join(errs...)
}

// watched runs the lane, samples it, and judges it.
func (l *lane) watched(ctx context.Context, out *Lane, watch func(Sample, []Event)) (err error) {
	ctx, stop := context.WithTimeout(ctx, raceTime+countTime) // PostgreSQL may not answer at all
	defer stop()
	bounded, cancel := context.WithTimeout(ctx, raceTime)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(bounded)
	}()
	sample := func() error {
		figures, err := l.scene.count(ctx)
		if err != nil {
			return err
		}
		s, events := l.record.now(len(out.Events))
		s.Figures = figures
		out.Samples, out.Events = append(out.Samples, s), append(out.Events, events...)
		watch(s, events)
		return nil
	}
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		case <-time.After(tick):
		}
		if err = sample(); err != nil {
			cancel()
			<-done
			return err
		}
	}
	out.Verdict, err = l.judge(ctx)
	return err
}

// Verdict is what the stores say after the race.
type Verdict struct {
	Figures Figures          `json:"figures"`
	Broken  map[string]int64 `json:"broken"` // invariant → violations, if there are any
	Holds   bool             `json:"holds"`  // no invariant is broken
	Text    string           `json:"text"`
}

// judge counts again, and runs the audit of the lesson.
func (l *lane) judge(ctx context.Context) (v Verdict, err error) {
	if v.Figures, err = l.scene.count(ctx); err != nil {
		return v, err
	}
	found, text, err := l.scene.audit(ctx, v.Figures)
	v.Broken, v.Text = map[string]int64{}, text
	for name, n := range found {
		if _, shown := v.Figures[name]; n > 0 && !shown {
			v.Broken[invariant.Find(l.flow.Invariants, name).String()] = n
		}
	}
	v.Holds = len(v.Broken) == 0
	return v, err
}

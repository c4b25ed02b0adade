// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// ownServer starts a server for one test, with counters of these names beside a and b.
func ownServer(t *testing.T, settings []string, counters ...string) (*servertest.Server, *database) {
	t.Helper()
	server, own := pgtest.Own(t, settings)
	d := &database{Database: own}
	d.Exec(schema)
	for _, name := range counters {
		d.Exec(`INSERT INTO counters VALUES ($1, 0)`, name)
	}
	d.DB, d.events = d.open(d.Pool, nil)
	return server, d
}

// endWaits ends the waits for a standby of the sessions named name, with a function of the server, until done is closed.
func (d *database) endWaits(name, function string, done <-chan struct{}) {
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for {
		select {
		case <-done:
			return
		case <-pause.C:
			d.Exec(`SELECT `+function+`(pid) FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'SyncRep'`, name)
		}
	}
}

// wantUnknown checks that a request is told that its outcome is unknown, and nothing that promises more.
func wantUnknown(t *testing.T, what string, reply idempotency.Reply, err error) {
	t.Helper()
	if !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrBusy) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s, without the standby: status %d, replayed %t, %v, want ErrOutcomeUnknown", what, reply.Status, reply.Replayed, err)
	}
}

// wantReplayed checks that each request, sent again, gets its reply, and has had one effect.
func (d *database) wantReplayed(requests map[string]idempotency.Request) {
	d.T.Helper()
	for name, req := range requests {
		reply, err := d.Do(within(d.T), req, raise(req, name))
		if err != nil || reply.Status != 201 || !reply.Replayed {
			d.T.Errorf("%s, with the standby: %+v, %v, want the reply", name, reply, err)
		}
		if n := d.Number(`SELECT n FROM counters WHERE name = $1`, name); n != 1 {
			d.T.Errorf("%s: %d effects", name, n)
		}
	}
}

// An operator ends the wait of COMMIT for the standby. The reply is visible then, and COMMIT
// may be answered. The request, its repetition and a batch are not, until the standby is back.
func TestAnswered_NotBeforeTheStandbyHasIt(t *testing.T) {
	t.Parallel()
	ways := map[string]struct{ function, settings string }{
		"cancelled":  {"pg_cancel_backend", ""},
		"quiet":      {"pg_cancel_backend", "&client_min_messages=error"}, // which would hide the warning
		"terminated": {"pg_terminate_backend", ""},
	}
	_, d := ownServer(t, nil, slices.Collect(maps.Keys(ways))...)
	d.StandbyAway()
	requests := map[string]idempotency.Request{}
	for name, way := range ways {
		db, _ := d.open(pgtest.Pool(t, d.URL+"&application_name="+name+way.settings), nil)
		req := newRequest()
		requests[name] = req
		done := make(chan struct{})
		go d.endWaits(name, way.function, done)
		reply, err := db.Do(within(t), req, raise(req, name))
		wantUnknown(t, name, reply, err)
		if n := d.Number(`SELECT count(*) FROM idempotency_keys WHERE key = $1`, req.Key); n != 1 {
			t.Errorf("%s: %d replies are visible: the test shows nothing", name, n)
		}
		reply, err = db.Do(within(t), req, raise(req, name))
		wantUnknown(t, name+", sent again", reply, err)
		reused := req
		reused.Fingerprint[0]++
		reply, err = db.Do(within(t), reused, raise(reused, name))
		wantUnknown(t, name+", another request with this key", reply, err)
		for _, locked := range []string{name, "no row"} { // without one, the batch writes nothing of its own
			results, err := raiseAll(within(t), db, locked, []*pgtx.Op{{Request: req}})
			if !errors.Is(err, locking.ErrOutcomeUnknown) {
				t.Errorf("%s, in a batch that locks %s: %+v, %v, want ErrOutcomeUnknown", name, locked, results, err)
			}
		}
		close(done)
	}
	d.StandbyBack()
	d.wantReplayed(requests)
}

// The time limits of the client end the wait, and after them a restart of the primary.
func TestAnswered_NotBeforeTheStandbyHasItWithinTheTimeLimits(t *testing.T) {
	t.Parallel()
	locktest.Slow(t, "waits for CommitTimeout, and restarts a server")
	names := []string{"patient", "leaves"}
	server, d := ownServer(t, nil, names...)
	d.StandbyAway()
	requests := map[string]idempotency.Request{}
	for _, name := range names {
		req := newRequest()
		requests[name] = req
		for _, what := range []string{"first", "again"} {
			ctx := within(t)
			if name == "leaves" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			began := time.Now()
			reply, err := d.Do(ctx, req, raise(req, name))
			wantUnknown(t, name+" "+what, reply, err)
			if took := time.Since(began); took > pgtx.Limit {
				t.Errorf("%s %s: took %v", name, what, took)
			}
		}
	}
	server.Restart()
	d.Pool.Reset()
	for name, req := range requests {
		reply, err := d.Do(within(t), req, raise(req, name))
		wantUnknown(t, name+", after a restart", reply, err)
	}
	d.StandbyBack()
	d.wantReplayed(requests)
}

// The warnings of the statements before COMMIT say nothing about COMMIT.
func TestCommit_IgnoresTheWarningsOfOtherStatements(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	d.Exec(`CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'mind'; RETURN NEW; END $$`)
	d.Exec(`CREATE TRIGGER warn BEFORE INSERT ON effects FOR EACH ROW EXECUTE FUNCTION warn()`)
	req := newRequest()
	reply, err := d.Do(t.Context(), req, raise(req, "a"))
	if err != nil || reply.Replayed || d.Of(pgtx.Ambiguous) != 0 {
		t.Errorf("%+v, %v, %d ambiguous", reply, err, d.Of(pgtx.Ambiguous))
	}
}

// Without a synchronous standby a reply that is found costs one round trip, as its lookup.
func TestLookup_OfAReplyIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	db, _, p := d.behindProxy(nil)
	req := newRequest()
	if _, err := db.Do(t.Context(), req, raise(req, "a")); err != nil {
		t.Fatal(err)
	}
	var trips atomic.Int64
	p.OnRequest(func([]byte, net.Conn, net.Conn) bool {
		trips.Add(1)
		return true
	})
	reply, err := db.Do(t.Context(), req, raise(req, "a"))
	if n := trips.Load(); err != nil || !reply.Replayed || n != 1 {
		t.Errorf("%+v, %v, after %d messages, want 1", reply, err, n)
	}
}

// A server that answers COMMIT before its disk has it loses what it has answered. Connections of PoolConfig wait for the disk.
func TestAnswered_SurvivesACrashOfAServerThatDoesNotWaitForItsDisk(t *testing.T) {
	t.Parallel()
	locktest.Slow(t, "restarts a server")
	server, d := ownServer(t, []string{"synchronous_commit = off", "wal_writer_delay = '10s'"})
	d.Exec(`CHECKPOINT`) // with the tables
	db, _ := d.open(pgtest.Pool(t, d.URL), nil)
	req := newRequest()
	if _, err := db.Do(t.Context(), req, raise(req, "a")); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	d.Pool.Reset()
	d.want(1)
}

// The primary is lost after it has committed what no standby has, and the standby is promoted. What was answered is there, the
// rest has not happened, and each request, sent again, has one effect.
func TestAnswered_IsAtThePromotedStandby(t *testing.T) {
	t.Parallel()
	locktest.Slow(t, "starts a primary and a standby")
	primary, d := ownServer(t, nil)
	standby, url := servertest.StartStandby(t, primary)
	d.Pool.Reset()
	d.Exec(`ALTER SYSTEM SET synchronous_standby_names = 'standby'`)
	d.Exec(`SELECT pg_reload_conf()`)
	locktest.Eventually(t, "the standby is synchronous", func() bool {
		return d.Number(`SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	})
	answered, unanswered := newRequest(), newRequest()
	if _, err := d.Do(within(t), answered, raise(answered, "a")); err != nil {
		t.Fatal(err)
	}
	standby.Kill()
	for _, what := range []string{"first", "again"} {
		reply, err := d.Do(within(t), unanswered, raise(unanswered, "a"))
		wantUnknown(t, what, reply, err)
	}
	if n := d.Number(`SELECT n FROM counters WHERE name = 'a'`); n != 2 {
		t.Errorf("the primary has %d effects: the test shows nothing", n)
	}
	primary.Kill()
	standby.Start()

	promoted := &database{Database: &pgtest.Database{T: t, URL: url, Pool: pgtest.Pool(t, url)}}
	promoted.Exec(`SELECT pg_promote(false)`)
	locktest.Eventually(t, "the standby is promoted", func() bool { return promoted.Number(`SELECT pg_is_in_recovery()::int`) == 0 })
	promoted.DB, promoted.events = promoted.open(promoted.Pool, nil)
	promoted.want(1)
	for req, replayed := range map[idempotency.Request]bool{answered: true, unanswered: false} {
		reply, err := promoted.Do(within(t), req, raise(req, "a"))
		if err != nil || reply.Replayed != replayed {
			t.Errorf("replayed %t, %v, want %t", reply.Replayed, err, replayed)
		}
	}
	promoted.want(2)
}

func TestPoolConfig_RaisesWhatWouldLoseAnAnswer(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	current := func(pool *pgxpool.Pool) (commit, messages string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT current_setting('synchronous_commit'), current_setting('client_min_messages')`).Scan(&commit, &messages); err != nil {
			t.Fatal(err)
		}
		return commit, messages
	}
	for setting, want := range map[string]string{"off": "on", "local": "on", "remote_write": "remote_write", "on": "on", "remote_apply": "remote_apply"} {
		// As a setting of the server or the role: it is not in the URL under its name.
		commit, messages := current(pgtest.Pool(t, d.URL, "options=-c synchronous_commit="+setting+" -c client_min_messages=error"))
		if commit != want || messages != "warning" {
			t.Errorf("%s is %s, want %s; messages from %s on", setting, commit, want, messages)
		}
		if commit, messages = current(pgtest.Pool(t, d.URL+"&synchronous_commit="+setting, "options=-c client_min_messages=notice")); commit != setting || messages != "notice" {
			t.Errorf("%s of the URL is %s; messages from %s on", setting, commit, messages)
		}
	}
}

// An operator lowers the server's settings, so that commits go on without a lost standby. Connections that are open keep theirs.
func TestPoolConfig_AReloadOfTheServerLowersNothing(t *testing.T) {
	t.Parallel()
	_, d := ownServer(t, nil)
	config := d.Pool.Config()
	config.AfterConnect, config.MaxConns = nil, 1
	read := func(pool *pgxpool.Pool) (settings string) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `SELECT current_setting('synchronous_commit') || ' ' || current_setting('client_min_messages')`).Scan(&settings); err != nil {
			t.Fatal(err)
		}
		return settings
	}
	kept, plain := pgtest.Pool(t, d.URL), pgtest.Open(t, config)
	if settings := read(kept) + ", " + read(plain); settings != "on notice, on notice" {
		t.Fatal(settings)
	}
	d.Exec(`ALTER SYSTEM SET synchronous_commit = off`)
	d.Exec(`ALTER SYSTEM SET client_min_messages = error`)
	d.Exec(`SELECT pg_reload_conf()`)
	locktest.Eventually(t, "a session that keeps nothing has the new settings", func() bool { return read(plain) == "off error" })
	if settings := read(kept); settings != "on notice" || kept.Stat().TotalConns() != 1 {
		t.Errorf("%s, on %d connections", settings, kept.Stat().TotalConns())
	}
}

// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

func TestKey_ConcurrentRequestsHaveOneEffectAndOneBody(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	other, _ := d.open(pgtest.Pool(t, d.URL), nil)
	for round := range int64(5) {
		req := newRequest()
		const senders = 8
		var bodies [senders]string
		var wg sync.WaitGroup
		for n := range senders {
			db := []*pgtx.DB{d.DB, other}[n%2]
			wg.Go(func() {
				reply, err := db.Do(t.Context(), req, raise(req, "a"))
				if err != nil {
					t.Error(err)
				}
				bodies[n] = string(reply.Body)
			})
		}
		wg.Wait()
		for _, body := range bodies {
			if body != bodies[0] || body == "" {
				t.Errorf("bodies %q and %q", body, bodies[0])
			}
		}
		d.want(round + 1)
	}
}

// Two requests with one key that lock different rows conflict only at the key: its
// INSERT refuses one of them.
func TestKey_OfTwoConcurrentRequestsOneIsRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, failpoint(locktest.MeetAt(2, pgtx.AfterGuard)))
	first := newRequest()
	second := first
	second.Fingerprint[0]++
	errs := make(chan error, 2)
	go func() { _, err := d.Do(t.Context(), first, raise(first, "a")); errs <- err }()
	go func() { _, err := d.Do(t.Context(), second, raise(second, "b")); errs <- err }()
	one, two := <-errs, <-errs
	if (one == nil) == (two == nil) || !errors.Is(errors.Join(one, two), idempotency.ErrKeyReused) {
		t.Errorf("%v and %v, want one nil and one ErrKeyReused", one, two)
	}
	if got := d.Number(`SELECT sum(n)::bigint FROM counters`); got != 1 {
		t.Errorf("%d raises, want 1", got)
	}
}

// failpoint returns a change of a Config.
func failpoint(f locktest.Failpoint[pgtx.Step]) func(*pgtx.Config) {
	return func(cfg *pgtx.Config) { cfg.Failpoint = f }
}

func TestKey_OfAnotherRequestIsRefusedWithoutEffect(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	req := newRequest()
	if _, err := d.Do(t.Context(), req, raise(req, "a")); err != nil {
		t.Fatal(err)
	}
	req.Fingerprint[0]++
	if _, err := d.Do(t.Context(), req, raise(req, "a")); !errors.Is(err, idempotency.ErrKeyReused) {
		t.Errorf("%v, want ErrKeyReused", err)
	}
	if _, err := d.Run(t.Context(), &pgtx.Op{Request: req}, raise(req, "a")); !errors.Is(err, idempotency.ErrKeyReused) {
		t.Errorf("without the lookup: %v, want ErrKeyReused", err)
	}
	d.want(1)
}

// A request without a Client or a Fingerprint would get the reply to another one, and a reply without a Status cannot be sent.
// Neither has an effect, in a batch neither.
func TestKey_OfAnIncompleteRequestOrReplyHasNoEffect(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	noStatus := func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
		reply, err := raise(newRequest(), "a")(ctx, tx)
		reply.Status = 0
		return reply, err
	}
	noClient, noFingerprint, whole := newRequest(), newRequest(), newRequest()
	noClient.Client, noFingerprint.Fingerprint = uuid.Nil, [32]byte{}
	for name, try := range map[string]struct {
		req  idempotency.Request
		body pgtx.Body
	}{
		"no Client":                {noClient, raise(noClient, "a")},
		"no Fingerprint":           {noFingerprint, raise(noFingerprint, "a")},
		"no Status":                {whole, noStatus},
		"no Status of the refusal": {whole, func(context.Context, *pgtx.Tx) (idempotency.Reply, error) { return pgtx.Refuse(idempotency.Reply{}) }},
	} {
		if reply, err := d.Do(t.Context(), try.req, try.body); !errors.Is(err, idempotency.ErrIncomplete) {
			t.Errorf("Do, %s: got %+v, %v, want ErrIncomplete", name, reply, err)
		}
		if reply, err := d.Run(t.Context(), &pgtx.Op{Request: try.req}, try.body); !errors.Is(err, idempotency.ErrIncomplete) {
			t.Errorf("Run, %s: got %+v, %v, want ErrIncomplete", name, reply, err)
		}
		_, err := d.RunAll(t.Context(), "", []*pgtx.Op{{Request: try.req}}, func(*pgtx.Tx) {}, func(context.Context, *pgtx.Tx, []int) ([]pgtx.Result, error) {
			return []pgtx.Result{{}}, nil
		})
		if !errors.Is(err, idempotency.ErrIncomplete) {
			t.Errorf("RunAll, %s: got %v, want ErrIncomplete", name, err)
		}
	}
	if n := d.Number(`SELECT count(*) FROM idempotency_keys`); n != 0 {
		t.Errorf("%d keys are stored", n)
	}
	d.want(0)
}

func TestKey_BelongsToItsClient(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	for range 2 {
		req := newRequest()
		req.Key = "same"
		if reply, err := d.Do(t.Context(), req, raise(req, "a")); err != nil || reply.Replayed {
			t.Errorf("%+v, %v", reply, err)
		}
	}
	d.want(2)
}

// A client sends several requests: each key replays the reply to its own request.
func TestKey_ReplaysItsOwnReply(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	first := newRequest()
	second := first
	second.Key = uuid.NewString()
	for _, replayed := range []bool{false, true} {
		for n, req := range []idempotency.Request{first, second} {
			reply, err := d.Do(t.Context(), req, raise(req, "a"))
			if want := strconv.Itoa(n + 1); err != nil || string(reply.Body) != want || reply.Replayed != replayed {
				t.Errorf("want %s, replayed %v: %s, %v, %v", want, replayed, reply.Body, reply.Replayed, err)
			}
		}
	}
	d.want(2)
}

// The header of a reply is stored with it: by a request on its own, by a refusal, and by a batch.
func TestKey_ReplaysTheHeaderOfItsReply(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, nil)
			d.DB, _ = d.open(pgtest.Pool(t, d.URL+"&default_query_exec_mode="+mode), nil)
			replaysHeaders(t, d)
		})
	}
}

func replaysHeaders(t *testing.T, d *database) {
	t.Helper()
	made := map[string]idempotency.Reply{
		"none":    {Status: 201},
		"one":     {Status: 201, Header: map[string]string{"Location": `/orders/1?of="é"`}},
		"refused": {Status: 409, Header: map[string]string{"Retry-After": "3", "Link": ""}},
	}
	requests := map[string]idempotency.Request{}
	ofBatch := make([]*pgtx.Op, 0, len(made))
	for name, reply := range made {
		requests[name] = newRequest()
		if got, err := d.Do(t.Context(), requests[name], func(context.Context, *pgtx.Tx) (idempotency.Reply, error) {
			if name == "refused" {
				return pgtx.Refuse(reply)
			}
			return reply, nil
		}); err != nil || !maps.Equal(got.Header, reply.Header) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		ofBatch = append(ofBatch, &pgtx.Op{Request: newRequest(), Label: name})
	}
	for _, replayed := range []bool{false, true} {
		results, err := d.RunAll(t.Context(), "", ofBatch, func(tx *pgtx.Tx) { tx.Queue(`SELECT FROM counters FOR UPDATE`) },
			func(_ context.Context, _ *pgtx.Tx, open []int) (results []pgtx.Result, _ error) {
				for _, n := range open {
					results = append(results, pgtx.Result{Reply: made[ofBatch[n].Label]})
				}
				return results, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		for n, r := range results {
			if want := made[ofBatch[n].Label]; !maps.Equal(r.Reply.Header, want.Header) || r.Reply.Replayed != replayed {
				t.Errorf("%s, replayed %v: %+v", ofBatch[n].Label, replayed, r.Reply)
			}
			requests["batch "+ofBatch[n].Label] = ofBatch[n].Request
		}
	}
	for name, req := range requests {
		got, err := d.Do(t.Context(), req, refuse("a"))
		if want := made[strings.TrimPrefix(name, "batch ")]; err != nil || !got.Replayed || !maps.Equal(got.Header, want.Header) {
			t.Errorf("%s again: %+v, %v", name, got, err)
		}
	}
}

func TestKey_RefusalIsStoredReplayedAndUndone(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	req := newRequest()
	for n := range 2 {
		reply, err := d.Do(t.Context(), req, refuse("a"))
		if err != nil || reply.Status != 409 || string(reply.Body) != "no" || reply.Replayed != (n > 0) {
			t.Errorf("%+v, %v", reply, err)
		}
	}
	// The refusal is replayed, whatever the next body would do.
	if reply, err := d.Do(t.Context(), req, raise(req, "a")); err != nil || reply.Status != 409 || !reply.Replayed {
		t.Errorf("%+v, %v", reply, err)
	}
	d.want(0)
}

// The transaction that stores the refusal is kept open at its key: the row must be free.
func TestKey_RefusalIsStoredWithoutTheRowLock(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	req := newRequest()
	release := d.Hold(`INSERT INTO idempotency_keys VALUES ($1, $2, $3, 0, '')`, req.Client, req.Key, req.Fingerprint[:])
	done := make(chan error)
	go func() {
		_, err := d.Run(t.Context(), &pgtx.Op{Request: req}, refuse("a"))
		done <- err
	}()
	d.blocked(1)
	if _, err := d.Pool.Exec(t.Context(), `SELECT FROM counters WHERE name = 'a' FOR UPDATE NOWAIT`); err != nil {
		t.Errorf("the row is locked while the refusal is stored: %v", err)
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestKey_IsNotUsedUpByAnError(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	req := newRequest()
	mine := errors.New("mine")
	for range 3 {
		_, err := d.Do(t.Context(), req, func(ctx context.Context, tx *pgtx.Tx) (idempotency.Reply, error) {
			if _, err := raise(req, "a")(ctx, tx); err != nil {
				return idempotency.Reply{}, err
			}
			return idempotency.Reply{}, mine
		})
		if !errors.Is(err, mine) {
			t.Errorf("%v, want the body's own error", err)
		}
	}
	d.want(0)
	if got := d.Pool.Stat().NewConnsCount(); got != 1 {
		t.Errorf("%d connections were made, want 1: an attempt that fails must return its connection", got)
	}
	if reply, err := d.Do(t.Context(), req, raise(req, "a")); err != nil || reply.Replayed {
		t.Errorf("%+v, %v, want a new reply: an error must not use up the key", reply, err)
	}
	d.want(1)
}

func TestKey_InProgressIsNeitherBusyNorAnOutcome(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	req := newRequest()
	release := d.Hold(`INSERT INTO idempotency_keys VALUES ($1, $2, $3, 0, '')`, req.Client, req.Key, req.Fingerprint[:])
	impatient, _ := d.open(pgtest.Pool(t, d.URL, "lock_timeout=100"), nil)
	for name, body := range map[string]pgtx.Body{"effect": raise(req, "a"), "refusal": refuse("a")} {
		_, err := impatient.Do(t.Context(), req, body)
		if !errors.Is(err, idempotency.ErrInProgress) || errors.Is(err, locking.ErrBusy) {
			t.Errorf("%s: %v, want ErrInProgress: the outcome of the first request is not known", name, err)
		}
	}
	release()
	if reply, err := d.Do(t.Context(), req, raise(req, "a")); err != nil || reply.Replayed {
		t.Errorf("%+v, %v, want a new reply: the first request was rolled back", reply, err)
	}
	d.want(1)
}

func TestPurge_DeletesOnlyOldKeys(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	old, fresh := newRequest(), newRequest()
	for _, req := range []idempotency.Request{old, fresh} {
		if _, err := d.Do(t.Context(), req, raise(req, "a")); err != nil {
			t.Fatal(err)
		}
	}
	for age, want := range map[string]int64{"23 hours 59 minutes": 0, "24 hours 1 minute": 1} {
		if _, err := d.Pool.Exec(t.Context(), `UPDATE idempotency_keys SET created_at = now() - $2::interval WHERE key = $1`, old.Key, age); err != nil {
			t.Fatal(err)
		}
		if n, err := pgtx.Purge(t.Context(), d.Pool, pgtx.KeysKept); n != want || err != nil {
			t.Errorf("%s: purged %d, %v, want %d", age, n, err, want)
		}
		if want == 1 {
			break
		}
		_, _ = d.Pool.Exec(t.Context(), `UPDATE idempotency_keys SET created_at = now()`)
	}
	if reply, err := d.Do(t.Context(), fresh, raise(fresh, "a")); err != nil || !reply.Replayed {
		t.Errorf("fresh: %+v, %v", reply, err)
	}
	if _, err := pgtx.Purge(t.Context(), d.Pool, pgtx.KeysKept-time.Second); err == nil {
		t.Error("Purge accepted less than KeysKept")
	}
}

func TestCountKeys_CountsThoseOfOneClientUpToTheLimit(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	req, other := newRequest(), newRequest()
	for n := range 3 {
		if has, err := d.HasKey(t.Context(), req); has || err != nil {
			t.Errorf("%d: has the key %v, %v", n, has, err)
		}
		if _, err := d.Do(t.Context(), req, raise(req, "a")); err != nil {
			t.Fatal(err)
		}
		if has, err := d.HasKey(t.Context(), idempotency.Request{Client: req.Client, Key: req.Key}); !has || err != nil {
			t.Errorf("%d: has the key %v, %v", n, has, err)
		}
		req.Key = uuid.NewString()
	}
	if _, err := d.Do(t.Context(), other, raise(other, "a")); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]int64{1: 1, 3: 3, 100: 3} {
		if n, err := d.CountKeys(t.Context(), req.Client, limit); n != want || err != nil {
			t.Errorf("up to %d: %d, %v; want %d", limit, n, err, want)
		}
	}
	if n, err := d.CountKeys(t.Context(), uuid.New(), 9); n != 0 || err != nil {
		t.Errorf("a client without keys: %d, %v", n, err)
	}
}

func TestMigrate_CompletesATableThatHasNoHeaders(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	old := newRequest()
	if _, err := d.Do(t.Context(), old, raise(old, "a")); err != nil {
		t.Fatal(err)
	}
	d.Exec(`ALTER TABLE idempotency_keys DROP COLUMN header`)
	if err := d.Read(t.Context(), pgtx.Migrate); err != nil {
		t.Fatal(err)
	}
	// New connections: those that have prepared the statements refuse their changed result.
	db, _ := d.open(pgtest.Pool(t, d.URL), nil)
	if reply, err := db.Do(t.Context(), old, refuse("a")); err != nil || string(reply.Body) != "1" || reply.Header != nil {
		t.Errorf("a key from before: %+v, %v", reply, err)
	}
	req := newRequest()
	if reply, err := db.Do(t.Context(), req, raise(req, "a")); err != nil || string(reply.Body) != "2" {
		t.Errorf("a new key: %+v, %v", reply, err)
	}
}

func TestMigrate_MayRunConcurrentlyAndRepeatedly(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	if _, err := d.Pool.Exec(t.Context(), `DROP TABLE idempotency_keys`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := d.Read(t.Context(), func(ctx context.Context, conn *pgx.Conn) error { return pgtx.Migrate(ctx, conn) }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := d.Number(`SELECT count(*) FROM idempotency_keys`); n != 0 {
		t.Errorf("%d keys in a new table", n)
	}
}

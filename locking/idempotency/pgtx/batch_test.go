// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/servertest"
)

// raiseAll raises a counter once for each request, in one transaction. The reply to a request is the value after it.
func raiseAll(ctx context.Context, db *pgtx.DB, name string, requests []*pgtx.Op) ([]pgtx.Result, error) {
	var n *[]int64
	return db.RunAll(ctx, "", requests, func(tx *pgtx.Tx) {
		n = pgtx.QueueRows[int64](tx, `SELECT n FROM counters WHERE name = $1 FOR UPDATE`, name)
	}, func(_ context.Context, tx *pgtx.Tx, open []int) ([]pgtx.Result, error) {
		made := make([]pgtx.Result, len(open))
		for i, at := range open {
			made[i].Reply = idempotency.Reply{Status: 201, Body: strconv.AppendInt(nil, (*n)[0]+int64(i)+1, 10)}
			tx.Queue(`INSERT INTO effects VALUES ($1, $2)`, requests[at].Client, requests[at].Key)
		}
		tx.Queue(`UPDATE counters SET n = n + $2 WHERE name = $1`, name, len(open))
		return made, nil
	})
}

func newRequests(n int) (requests []*pgtx.Op) {
	for range n {
		requests = append(requests, &pgtx.Op{Request: newRequest()})
	}
	return requests
}

// Every message of RunAll is lost once, or its reply: the locks and the lookup of the keys, and the commit.
func TestRunAll_ConnectionCutAtAnyMessageIsOneEffectForEachRequest(t *testing.T) {
	t.Parallel()
	for name, cut := range servertest.Cuts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, nil)
			db, e, p := d.behindProxy(nil)
			if _, err := raiseAll(t.Context(), db, "b", newRequests(3)); err != nil { // prepares the statements
				t.Fatal(err)
			}
			d.Exec(`DELETE FROM effects`)
			messages, unknown, effects := 0, 0, int64(0)
			for n, again := int64(1), true; again; n++ {
				disturb, hit := servertest.Nth(n, cut)
				p.OnRequest(disturb)
				requests := newRequests(3)
				for _, replayed := range []bool{false, true} {
					results, err := raiseAll(t.Context(), db, "a", requests)
					if errors.Is(err, locking.ErrOutcomeUnknown) {
						unknown++
						results, err = raiseAll(t.Context(), db, "a", requests)
					}
					if err != nil || len(results) != len(requests) {
						t.Fatalf("message %d: %d results, %v", n, len(results), err)
					}
					for i, r := range results {
						if want := fmt.Sprint(effects + int64(i) + 1); r.Err != nil || string(r.Reply.Body) != want || replayed && !r.Reply.Replayed {
							t.Errorf("message %d, request %d: %+v, %v, want %s, replayed %t", n, i, r.Reply, r.Err, want, replayed)
						}
					}
					p.OnRequest(nil)
				}
				effects += int64(len(requests))
				d.want(effects)
				if again = hit.Load(); again {
					messages++
				}
			}
			if messages < 2 {
				t.Errorf("%d messages were lost, want at least 2", messages)
			}
			if a, r := e.Of(pgtx.Ambiguous), e.Of(pgtx.Resolved); unknown == 0 || a != unknown || r != a {
				t.Errorf("%d ambiguous, %d returned as unknown, %d resolved, want all of at least 1", a, unknown, r)
			}
		})
	}
}

// Of equal keys in one batch the first takes effect, and the others get its reply; another request under this key is refused.
func TestRunAll_EqualKeysTakeEffectOnce(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	first, other := newRequest(), newRequest()
	reused := first
	reused.Fingerprint = [32]byte{2}
	for round, replayed := range []bool{false, true} {
		var requests []*pgtx.Op
		for _, r := range []idempotency.Request{first, first, reused, other} {
			requests = append(requests, &pgtx.Op{Request: r})
		}
		results, err := raiseAll(t.Context(), d.DB, "a", requests)
		if err != nil || len(results) != len(requests) {
			t.Fatalf("round %d: %d results, %v", round, len(results), err)
		}
		want := []pgtx.Result{
			{Reply: idempotency.Reply{Status: 201, Body: []byte("1"), Replayed: replayed}},
			{Reply: idempotency.Reply{Status: 201, Body: []byte("1"), Replayed: true}},
			{Err: idempotency.ErrKeyReused},
			{Reply: idempotency.Reply{Status: 201, Body: []byte("2"), Replayed: replayed}},
		}
		for i, r := range results {
			if w := want[i]; !errors.Is(r.Err, w.Err) || r.Reply.Status != w.Reply.Status || string(r.Reply.Body) != string(w.Reply.Body) || r.Reply.Replayed != w.Reply.Replayed {
				t.Errorf("round %d, request %d: %+v, want %+v", round, i, r, w)
			}
		}
		d.want(2)
	}
}

// A request whose result is an error is not stored: its key is still free. A second request under this key is not decided.
func TestRunAll_ARequestWithAnErrorDoesNotUseItsKey(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	refused, odd := newRequest(), errors.New("odd")
	requests := append(newRequests(1), &pgtx.Op{Request: refused}, &pgtx.Op{Request: refused})
	results, err := d.RunAll(t.Context(), "", requests, func(tx *pgtx.Tx) {
		tx.Queue(`SELECT FROM counters WHERE name = 'a' FOR UPDATE`)
	}, func(_ context.Context, tx *pgtx.Tx, open []int) ([]pgtx.Result, error) {
		if !slices.Equal(open, []int{0, 1}) {
			t.Errorf("requests %v are open, want the first of each key", open)
		}
		return []pgtx.Result{{Reply: idempotency.Reply{Status: 201}}, {Err: odd}}, nil
	})
	if err != nil || len(results) != 3 || results[0].Err != nil || !errors.Is(results[1].Err, odd) || !errors.Is(results[2].Err, idempotency.ErrInProgress) {
		t.Errorf("%+v, %v, want a reply, the error, and ErrInProgress", results, err)
	}
	for i, stored := range []bool{true, false} {
		if _, found, err := d.Lookup(t.Context(), requests[i].Request); found != stored || err != nil {
			t.Errorf("key %d stored %t, %v, want %t", i, found, err, stored)
		}
	}
	if reply, err := d.Do(t.Context(), refused, raise(refused, "a")); err != nil || reply.Replayed {
		t.Errorf("the same key later: %+v, %v, want a new effect", reply, err)
	}
}

// A transaction that inserts one of the keys delays the others of a batch by BatchKeyWait at most.
func TestRunAll_WaitsForAKeyNoLongerThanBatchKeyWait(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	requests := newRequests(2)
	release := d.Hold(`INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body) VALUES ($1, $2, $3, 201, '')`,
		requests[1].Client, requests[1].Key, requests[1].Fingerprint[:])
	start := time.Now()
	if _, err := raiseAll(t.Context(), d.DB, "a", requests); !errors.Is(err, idempotency.ErrInProgress) {
		t.Errorf("%v, want ErrInProgress", err)
	}
	if waited := time.Since(start); waited >= pgtx.LockTimeout {
		t.Errorf("waited %v for the key, as long as for a row", waited)
	}
	d.want(0)
	release()
	if _, err := raiseAll(t.Context(), d.DB, "a", requests); err != nil {
		t.Errorf("after the other transaction was rolled back: %v", err)
	}
	d.want(2)
}

// A body that returns too few or too many results would shift the answers.
func TestRunAll_AWrongNumberOfResultsCommitsNothing(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	for _, n := range []int{0, 1, 3} {
		_, err := d.RunAll(t.Context(), "", newRequests(2), func(tx *pgtx.Tx) {
			tx.Queue(`SELECT FROM counters WHERE name = 'a' FOR UPDATE`)
		}, func(_ context.Context, tx *pgtx.Tx, _ []int) ([]pgtx.Result, error) {
			tx.Queue(`UPDATE counters SET n = n + 1 WHERE name = 'a'`)
			return make([]pgtx.Result, n), nil
		})
		if err == nil {
			t.Errorf("%d results for 2 requests: no error", n)
		}
	}
	d.want(0)
	if keys := d.Number(`SELECT count(*) FROM idempotency_keys`); keys != 0 {
		t.Errorf("%d keys were stored", keys)
	}
}

// unrenewed is a lock store whose leases last for a time and cannot be renewed.
type unrenewed time.Duration

func (u unrenewed) TryAcquire(context.Context, ...string) (locking.Lease, error) {
	return locking.Lease{Owner: "o", Fence: 1, Until: time.Now().Add(time.Duration(u))}, nil
}

func (unrenewed) Renew(context.Context, locking.Lease) (locking.Lease, error) {
	return locking.Lease{}, errors.New("no answer")
}
func (unrenewed) Release(context.Context, locking.Lease) error { return nil }

// A batch has waited for a row, and little is left of its lease: COMMIT could not be answered in time.
func TestRunAll_DoesNotCommitWithTooLittleLeftOfItsLease(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	err := locking.Do(t.Context(), unrenewed(pgtx.BatchKeyWait), locking.Options{}, []string{"a"}, func(ctx context.Context, _ locking.Lease) error {
		_, err := d.RunAll(ctx, "", newRequests(1), func(tx *pgtx.Tx) {
			tx.Queue(`SELECT FROM counters WHERE name = 'a' FOR UPDATE`)
		}, func(_ context.Context, tx *pgtx.Tx, open []int) ([]pgtx.Result, error) {
			tx.Queue(`UPDATE counters SET n = n + 1 WHERE name = 'a'`)
			return make([]pgtx.Result, len(open)), nil
		})
		return err
	})
	if !errors.Is(err, locking.ErrLost) || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("%v, want ErrLost", err)
	}
	d.want(0)
}

// A ctx that ended for another reason than a lost lease.
func TestRunAll_ReturnsTheCauseOfACtxThatEnds(t *testing.T) {
	t.Parallel()
	d, closed := newDatabase(t, nil), errors.New("closed")
	ctx, end := context.WithCancelCause(t.Context())
	_, err := d.RunAll(ctx, "", newRequests(1), func(tx *pgtx.Tx) {
		tx.Queue(`SELECT FROM counters WHERE name = 'a' FOR UPDATE`)
	}, func(_ context.Context, tx *pgtx.Tx, open []int) ([]pgtx.Result, error) {
		tx.Queue(`UPDATE counters SET n = n + 1 WHERE name = 'a'`)
		end(closed)
		return make([]pgtx.Result, len(open)), nil
	})
	if !errors.Is(err, closed) || errors.Is(err, locking.ErrLost) {
		t.Errorf("%v, want the cause", err)
	}
	d.want(0)
}

// Only a fault of one request is a reason to run the others without it.
func TestOfOne(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{"22021": true, "23503": true, "44000": true, "54000": true, "P0001": true, "25006": false, "42P01": false, "57P03": false, "40001": false, "": false} {
		if got := pgtx.OfOne(fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code})); got != want {
			t.Errorf("SQLSTATE %s: %t, want %t", code, got, want)
		}
	}
	for _, err := range []error{locking.ErrBusy, pgtx.ErrUnreachable, locking.ErrLost, locking.ErrStale, locking.ErrOutcomeUnknown, context.Canceled, context.DeadlineExceeded} {
		if pgtx.OfOne(fmt.Errorf("wrapped: %w", err)) {
			t.Errorf("%v: true, want false", err)
		}
	}
	inProgress := fmt.Errorf("%w: %w", idempotency.ErrInProgress, &pgconn.PgError{Code: "55P03"})
	if !pgtx.OfOne(inProgress) || !pgtx.OfOne(errors.New("a value that cannot be encoded")) {
		t.Error("a key in progress, or a value that cannot be encoded: false, want true")
	}
}

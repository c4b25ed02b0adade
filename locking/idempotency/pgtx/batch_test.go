package pgtx_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/locktest"
)

// raiseAll raises a counter once for each request, in one transaction. The reply to a request is the value after it.
func raiseAll(ctx context.Context, db *pgtx.DB, name string, requests []*pgtx.Op) ([]pgtx.Result, error) {
	var n *[]int64
	return db.RunAll(ctx, "", requests, func(tx *pgtx.Tx) {
		n = pgtx.Query[int64](tx, `SELECT n FROM counters WHERE name = $1 FOR UPDATE`, name)
	}, func(_ context.Context, tx *pgtx.Tx, open []int) ([]pgtx.Result, error) {
		made := make([]pgtx.Result, len(open))
		for i, at := range open {
			made[i].Reply = idempotency.Reply{Status: 201, Body: strconv.AppendInt(nil, (*n)[0]+int64(i)+1, 10)}
			tx.Exec(`INSERT INTO effects VALUES ($1, $2)`, requests[at].Client, requests[at].Key)
		}
		tx.Exec(`UPDATE counters SET n = n + $2 WHERE name = $1`, name, len(open))
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
	for name, cut := range cuts {
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
				disturb, hit := locktest.Nth(n, cut)
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

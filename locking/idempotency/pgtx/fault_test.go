// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"context"
	"errors"
	"testing"

	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

var steps = []pgtx.Step{pgtx.AfterAcquire, pgtx.AfterBegin, pgtx.AfterGuard, pgtx.AfterKey, pgtx.BeforeCommit, pgtx.AfterCommit}

func TestRun_CancelledAtAnyStepIsAllOrNothing(t *testing.T) {
	t.Parallel()
	for _, step := range steps {
		t.Run(string(step), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			d := newDatabase(t, failpoint(locktest.OnceAt(step, func(context.Context) { cancel() })))
			req := newRequest()
			_, err := d.Do(ctx, req, raise(req, "a"))
			if step == pgtx.AfterCommit {
				if err != nil {
					t.Errorf("%v, want nil: the transaction was committed", err)
				}
				d.want(1)
			} else {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v, want Canceled", err)
				}
				d.want(0)
			}
			if _, err := d.Do(t.Context(), req, raise(req, "a")); err != nil {
				t.Errorf("the same key again: %v", err)
			}
			d.want(1)
		})
	}
}

func TestRun_BackendTerminatedAtAnyStepIsOneEffect(t *testing.T) {
	t.Parallel()
	for _, step := range steps {
		t.Run(string(step), func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, nil)
			name := "pgtx-" + string(step) + "-" + newRequest().Key[:8]
			db, e := d.open(pgtest.Pool(t, d.URL, "application_name="+name), failpoint(locktest.OnceAt(step, func(ctx context.Context) {
				if n := d.Number(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`, name); n != 1 {
					t.Errorf("%d backends were terminated, want 1", n)
				}
			})))
			req := newRequest()
			if reply, err := db.Do(t.Context(), req, raise(req, "a")); err != nil || reply.Status != 201 {
				t.Errorf("%+v, %v", reply, err)
			}
			again := e.Of(pgtx.Retried) + e.Of(pgtx.Ambiguous)
			if want := step != pgtx.AfterCommit; (again > 0) != want {
				t.Errorf("%d attempts were retried, want any: %t", again, want)
			}
			d.want(1)
		})
	}
}

package pgtx_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"shop/locking/idempotency/pgtx"
)

var steps = []pgtx.Step{pgtx.AfterAcquire, pgtx.AfterBegin, pgtx.AfterGuard, pgtx.AfterKey, pgtx.BeforeCommit, pgtx.AfterCommit}

// once does something the first time that a step is reached.
func once(at pgtx.Step, do func(context.Context)) func(*pgtx.Config) {
	var done atomic.Bool
	return func(cfg *pgtx.Config) {
		cfg.Failpoint = func(ctx context.Context, step pgtx.Step, _ string) {
			if step == at && done.CompareAndSwap(false, true) {
				do(ctx)
			}
		}
	}
}

func TestRun_CancelledAtAnyStepIsAllOrNothing(t *testing.T) {
	t.Parallel()
	for _, step := range steps {
		t.Run(string(step), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			d := newDatabase(t, once(step, func(context.Context) { cancel() }))
			req := ask()
			_, err := d.Do(ctx, req, raise(req, "a"))
			if step == pgtx.AfterCommit {
				if err != nil {
					t.Errorf("%v: it was committed", err)
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
			name := "pgtx-" + string(step) + "-" + ask().Key[:8]
			db, e := d.open(newPool(t, d.url, "application_name="+name), once(step, func(ctx context.Context) {
				if n := d.number(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1`, name); n != 1 {
					t.Errorf("%d backends were terminated, want 1", n)
				}
			}))
			req := ask()
			if reply, err := db.Do(t.Context(), req, raise(req, "a")); err != nil || reply.Status != 201 {
				t.Errorf("%+v, %v", reply, err)
			}
			again := e.of(pgtx.Retried) + e.of(pgtx.Ambiguous)
			if want := step != pgtx.AfterCommit; (again > 0) != want {
				t.Errorf("%d attempts were repeated: the fault did not land", again)
			}
			d.want(1)
		})
	}
}

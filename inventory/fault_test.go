package inventory_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"shop/inventory"
	"shop/locking"
)

var steps = []inventory.Step{inventory.AfterAcquire, inventory.AfterGuard, inventory.BeforeCommit, inventory.AfterCommit}

// pauseAt stops the first purchase at a step: it closes reached, and waits for resume.
func pauseAt(at inventory.Step, reached chan<- struct{}, resume <-chan struct{}) func(context.Context, inventory.Step, string) {
	return onceAt(at, func(ctx context.Context) {
		close(reached)
		select {
		case <-resume:
		case <-ctx.Done():
		}
	})
}

// onceAt does something the first time that a step is reached.
func onceAt(at inventory.Step, do func(context.Context)) func(context.Context, inventory.Step, string) {
	var done atomic.Bool
	return func(ctx context.Context, step inventory.Step, _ string) {
		if step == at && done.CompareAndSwap(false, true) {
			do(ctx)
		}
	}
}

func TestBuy_CancelledAtAnyStepIsAllOrNothing(t *testing.T) {
	t.Parallel()
	for _, strategy := range append(safe(), "naive", "redis-only") {
		for _, step := range steps {
			t.Run(strategy+"/"+string(step), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := openWithRedis(t, inventory.Config{Strategy: strategy, Failpoint: onceAt(step, func(context.Context) { cancel() })})
				s.stock("A", 3)
				s.stock("B", 3)
				lines := []inventory.Line{{SKU: "A", Quantity: 1}, {SKU: "B", Quantity: 1}}
				req := ask()
				reply, err := s.Buy(ctx, req, lines)
				if step == inventory.AfterCommit {
					if err != nil || isRefused(reply) {
						t.Errorf("%s, %v: it was committed", reply.Body, err)
					}
				} else if !errors.Is(err, context.Canceled) || s.orders() != 0 || s.left("A") != 3 || s.left("B") != 3 {
					t.Errorf("%v, %d orders, %d and %d left: want nothing", err, s.orders(), s.left("A"), s.left("B"))
				}
				if _, err := s.Buy(t.Context(), req, lines); err != nil {
					t.Errorf("the same key again: %v", err)
				}
				if s.orders() != 1 || s.left("A") != 2 || s.left("B") != 2 {
					t.Errorf("%d orders, %d and %d left: want 1, 2 and 2", s.orders(), s.left("A"), s.left("B"))
				}
				s.mustHold()
			})
		}
	}
}

// terminate ends the backends that are inside a transaction on this shop's tables.
func (s *shop) terminate(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `
		SELECT pg_terminate_backend(pid)
		FROM pg_stat_activity
		WHERE application_name = current_setting('search_path') || '-buyer'
		AND pid <> pg_backend_pid()`)
	return err
}

func TestBuy_BackendTerminatedAtAnyStepIsOneEffect(t *testing.T) {
	t.Parallel()
	for _, strategy := range append(safe(), "naive", "redis-only") {
		for _, step := range steps {
			t.Run(strategy+"/"+string(step), func(t *testing.T) {
				t.Parallel()
				s := openWithRedis(t, inventory.Config{Strategy: strategy})
				s.stock("A", 3)
				cfg := s.cfg
				cfg.Pool = newPool(t, s.url, "application_name="+s.schema()+"-buyer")
				cfg.Failpoint = onceAt(step, func(ctx context.Context) {
					if err := s.terminate(ctx); err != nil {
						t.Error(err)
					}
				})
				buyer, events := s.another(cfg)
				req := ask()
				reply, err := buyer.Buy(t.Context(), req, one("A"))
				if err != nil || isRefused(reply) {
					t.Errorf("%s, %v", reply.Body, err)
				}
				again, unanswered := events.of(inventory.Retried), events.of(inventory.Ambiguous)
				if want := step != inventory.AfterCommit; (again+unanswered > 0) != want {
					t.Errorf("%d retried, %d ambiguous: the fault did not land", again, unanswered)
				}
				if unanswered != events.of(inventory.Resolved) {
					t.Errorf("%d ambiguous, %d resolved", unanswered, events.of(inventory.Resolved))
				}
				if s.orders() != 1 || s.left("A") != 2 {
					t.Errorf("%d orders, %d left: want 1 and 2", s.orders(), s.left("A"))
				}
				s.mustHold()
			})
		}
	}
}

func TestCancel_BackendTerminatedAtAnyStepGivesBackOnce(t *testing.T) {
	t.Parallel()
	for _, step := range steps {
		t.Run(string(step), func(t *testing.T) {
			t.Parallel()
			s := open(t, inventory.Config{})
			s.stock("A", 3)
			buyer := ask()
			id := s.ordered(buyer, one("A")...)
			cfg := s.cfg
			cfg.Pool = newPool(t, s.url, "application_name="+s.schema()+"-buyer")
			cfg.Failpoint = onceAt(step, func(ctx context.Context) {
				if err := s.terminate(ctx); err != nil {
					t.Error(err)
				}
			})
			svc, _ := s.another(cfg)
			reply, err := svc.Cancel(t.Context(), askBy(buyer.Client, "c"), id)
			if err != nil || isRefused(reply) || s.left("A") != 3 {
				t.Errorf("%s, %v, %d left: want 3", reply.Body, err, s.left("A"))
			}
			s.mustHold()
		})
	}
}

func TestBuy_AfterAllConnectionsBroke(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 9)
	p := newProxy(t, s.url)
	cfg := s.cfg
	cfg.Pool = newPool(t, p.url)
	buyer, _ := s.another(cfg)
	buyAtOnce(t, 5, buyer, one("A")) // several connections
	p.down()
	if _, err := buyer.Buy(t.Context(), ask(), one("A")); !errors.Is(err, locking.ErrBusy) {
		t.Errorf("%v, want ErrBusy: did nothing, come again", err)
	}
	p.up(t)
	if _, err := buyer.Buy(t.Context(), ask(), one("A")); err != nil {
		t.Error(err)
	}
	if got := s.left("A"); got != 3 {
		t.Errorf("%d left, want 3", got)
	}
	s.mustHold()
}

// What ends without an effect gives its connection back: a connection dropped
// inside a transaction would have to be made anew, by every buyer of an unknown sku.
func TestBuy_KeepsItsConnectionWhenItChangesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	for range 5 {
		if _, err := s.Buy(t.Context(), ask(), one("Z")); !errors.Is(err, inventory.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if got := s.pool.Stat().NewConnsCount(); got != 1 {
		t.Errorf("%d connections were made, want 1", got)
	}
}

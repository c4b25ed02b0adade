// SPDX-License-Identifier: MIT

package inventory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"shop/inventory"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

// kinds are the kinds of request that change something: what each does, and what is left after it of 5 units, of which
// an order has taken 2. tried lists the strategies with which a kind is tried: for cancels those that lock differently.
var kinds = map[string]struct {
	tried func() []string
	do    func(ctx context.Context, svc *inventory.Service, req inventory.Request, sku string, order uuid.UUID) (inventory.Reply, error)
	left  int64
}{
	"buy": {all, func(ctx context.Context, svc *inventory.Service, req inventory.Request, sku string, _ uuid.UUID) (inventory.Reply, error) {
		return svc.Buy(ctx, req, one(sku))
	}, 2},
	"cancel": {func() []string { return []string{"row", "redis-only"} }, func(ctx context.Context, svc *inventory.Service, req inventory.Request, _ string, order uuid.UUID) (inventory.Reply, error) {
		return svc.Cancel(ctx, req, order)
	}, 5},
}

// all returns all strategies.
func all() (names []string) {
	for _, s := range inventory.Strategies() {
		names = append(names, s.Name)
	}
	return names
}

// passes reports whether a kind of request passes a step: cancels do not pass the first and the last one.
func passes(kind string, step inventory.Step) bool {
	return kind == "buy" || step != inventory.BeforeAcquire && step != inventory.AfterRelease
}

// atEveryStep tries each kind of request with each strategy, once for each step.
func atEveryStep(t *testing.T, try func(s *shop, kind string, step inventory.Step, do func(context.Context, *inventory.Service) (inventory.Reply, error))) {
	for kind, k := range kinds {
		for _, strategy := range k.tried() {
			t.Run(kind+"/"+strategy, func(t *testing.T) {
				t.Parallel()
				s := openWithRedis(t, inventory.Config{Strategy: strategy})
				for _, step := range inventory.Steps() {
					sku, buyer := string(step), newRequest()
					s.stock(sku, 5)
					order, req := s.ordered(buyer, inventory.Line{SKU: sku, Quantity: 2}), requestBy(buyer.Client, "again")
					try(s, kind, step, func(ctx context.Context, svc *inventory.Service) (inventory.Reply, error) {
						return k.do(ctx, svc, req, sku, order)
					})
					if left := s.left(sku); left != k.left || t.Failed() {
						t.Fatalf("at %s: %d left, want %d", step, left, k.left)
					}
				}
				s.mustHold()
			})
		}
	}
}

func TestRequest_CancelledAtAnyStepIsAllOrNothing(t *testing.T) {
	t.Parallel()
	atEveryStep(t, func(s *shop, kind string, step inventory.Step, do func(context.Context, *inventory.Service) (inventory.Reply, error)) {
		ctx, cancel := context.WithCancel(s.T.Context())
		defer cancel()
		cfg := s.cfg
		cfg.Failpoint = locktest.OnceAt(step, func(context.Context) { cancel() })
		gone, _ := s.another(cfg)
		before := s.left(string(step))
		reply, err := do(ctx, gone)
		switch {
		case step == inventory.AfterCommit, step == inventory.AfterRelease, !passes(kind, step),
			kind == "buy" && cfg.Strategy == "combined" && step != inventory.BeforeAcquire: // in a batch, which is not its own
			if err != nil || isRefused(reply) {
				s.T.Errorf("%s, %v: it was committed", reply.Body, err)
			}
		case !errors.Is(err, context.Canceled) || s.left(string(step)) != before:
			s.T.Errorf("%s, %v, %d left of %d: want it cancelled, and nothing taken", reply.Body, err, s.left(string(step)), before)
		}
		if reply, err := do(s.T.Context(), s.Service); err != nil || isRefused(reply) {
			s.T.Errorf("the same key again: %s, %v", reply.Body, err)
		}
	})
}

func TestRequest_BackendTerminatedAtAnyStepHasOneEffect(t *testing.T) {
	t.Parallel()
	atEveryStep(t, func(s *shop, kind string, step inventory.Step, do func(context.Context, *inventory.Service) (inventory.Reply, error)) {
		name := "inventory-" + uuid.NewString()
		cfg := s.cfg
		cfg.Pool = pgtest.Pool(s.T, s.URL, "application_name="+name)
		defer cfg.Pool.Close()
		cfg.Failpoint = locktest.OnceAt(step, func(ctx context.Context) {
			if _, err := s.Pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, name); err != nil {
				s.T.Error(err)
			}
		})
		client, events := s.another(cfg)
		if reply, err := do(s.T.Context(), client); err != nil || isRefused(reply) {
			s.T.Errorf("%s, %v", reply.Body, err)
		}
		again, unanswered := events.Of(inventory.Retried), events.Of(inventory.Ambiguous)
		inside := step != inventory.BeforeAcquire && step != inventory.AfterCommit && step != inventory.AfterRelease
		if inside && again+unanswered == 0 {
			s.T.Error("nothing was retried: the fault did not land")
		}
		if unanswered != events.Of(inventory.Resolved) {
			s.T.Errorf("%d ambiguous, %d resolved", unanswered, events.Of(inventory.Resolved))
		}
	})
}

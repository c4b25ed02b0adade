// SPDX-License-Identifier: MIT

package transfer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/transfer"
)

// kinds are the kinds of request that change something: what each does, and what the accounts
// of a pair that began with 100 and 0 have after it.
var kinds = map[string]struct {
	do         func(ctx context.Context, svc *transfer.Service, p pair, req transfer.Request, hold uuid.UUID) (transfer.Reply, error)
	a, held, b int64
}{
	"transfer": {func(ctx context.Context, svc *transfer.Service, p pair, req transfer.Request, _ uuid.UUID) (transfer.Reply, error) {
		return svc.Transfer(ctx, req, p.move(30))
	}, 70, 20, 30},
	"reserve": {func(ctx context.Context, svc *transfer.Service, p pair, req transfer.Request, _ uuid.UUID) (transfer.Reply, error) {
		return svc.Reserve(ctx, req, p.move(30), transfer.HoldMax)
	}, 100, 50, 0},
	"post": {func(ctx context.Context, svc *transfer.Service, _ pair, req transfer.Request, hold uuid.UUID) (transfer.Reply, error) {
		return svc.Post(ctx, req, hold, 15)
	}, 85, 0, 15},
	"void": {func(ctx context.Context, svc *transfer.Service, _ pair, req transfer.Request, hold uuid.UUID) (transfer.Reply, error) {
		return svc.Void(ctx, req, hold)
	}, 100, 0, 0},
}

// tried lists the strategies with which a kind of request is tried: for transfers all, for the
// others those that differ in how they lock and read the rows.
func tried(kind string) []string {
	if kind == "transfer" {
		return all()
	}
	return []string{"row", "etcd-fence-only", "etcd-fenced"}
}

// atEveryStep tries each kind of request with each strategy, once for each step.
func atEveryStep(t *testing.T, try func(b *bank, kind string, step transfer.Step, p pair, hold uuid.UUID)) {
	for kind, k := range kinds {
		for _, strategy := range tried(kind) {
			t.Run(kind+"/"+strategy, func(t *testing.T) {
				t.Parallel()
				b := open(t, transfer.Config{Strategy: strategy})
				for _, step := range transfer.Steps() {
					p := b.pair(100, 0)
					try(b, kind, step, p, b.reserve(p, 20, transfer.HoldMax).ID)
					b.mustHave(p.a, k.a, k.held)
					b.mustHave(p.b, k.b, 0)
					b.mustHold()
					if t.Failed() {
						t.Fatal("at ", step)
					}
				}
			})
		}
	}
}

func TestRequest_CancelledAtAnyStepIsAllOrNothing(t *testing.T) {
	t.Parallel()
	atEveryStep(t, func(b *bank, kind string, step transfer.Step, p pair, hold uuid.UUID) {
		ctx, cancel := context.WithCancel(b.T.Context())
		defer cancel()
		cfg := b.cfg
		cfg.Failpoint = locktest.OnceAt(step, func(context.Context) { cancel() })
		left, _ := b.another(cfg)
		req := newRequest(p.alice)
		reply, err := kinds[kind].do(ctx, left, p, req, hold)
		switch {
		case step == transfer.AfterCommit, step == transfer.AfterRelease,
			kind == "transfer" && b.cfg.Strategy == "combined" && step != transfer.BeforeAcquire: // in a batch, which is not its own
			if err != nil || isRefused(reply) {
				b.T.Errorf("%s, %v: it was committed", reply.Body, err)
			}
		case !errors.Is(err, context.Canceled) || b.Number(`SELECT count(*) FROM idempotency_keys WHERE client_id = $1`, p.alice) != 1:
			b.T.Errorf("%s, %v: want it cancelled, and nothing stored", reply.Body, err)
		default:
			b.mustHave(p.a, 100, 20)
		}
		if reply, err := kinds[kind].do(b.T.Context(), b.Service, p, req, hold); err != nil || isRefused(reply) {
			b.T.Errorf("the same key again: %s, %v", reply.Body, err)
		}
	})
}

// terminate terminates the backends of the bank's clients.
func (b *bank) terminate(ctx context.Context) {
	_, err := b.Pool.Exec(ctx, `
		SELECT pg_terminate_backend(pid)
		FROM pg_stat_activity
		WHERE application_name = current_setting('search_path') || '-client'
		AND pid <> pg_backend_pid()`)
	if err != nil {
		b.T.Error(err)
	}
}

func TestRequest_BackendTerminatedAtAnyStepHasOneEffect(t *testing.T) {
	t.Parallel()
	atEveryStep(t, func(b *bank, kind string, step transfer.Step, p pair, hold uuid.UUID) {
		cfg := b.cfg
		cfg.Pool = pgtest.Pool(b.T, b.URL, "application_name="+b.schema()+"-client")
		defer cfg.Pool.Close()
		cfg.Failpoint = locktest.OnceAt(step, b.terminate)
		client, events := b.another(cfg)
		reply, err := kinds[kind].do(b.T.Context(), client, p, newRequest(p.alice), hold)
		if err != nil || isRefused(reply) {
			b.T.Errorf("%s, %v", reply.Body, err)
		}
		again, unanswered := events.Of(transfer.Retried), events.Of(transfer.Ambiguous)
		inside := step != transfer.AfterCommit && step != transfer.AfterRelease && step != transfer.BeforeAcquire
		if inside && again+unanswered == 0 {
			b.T.Error("nothing was retried: the fault did not land")
		}
		if unanswered != events.Of(transfer.Resolved) {
			b.T.Errorf("%d ambiguous, %d resolved", unanswered, events.Of(transfer.Resolved))
		}
	})
}

func TestSweep_BackendTerminatedAtAnyStepFreesTheMoneyOnce(t *testing.T) {
	t.Parallel()
	for _, step := range transfer.Steps() {
		t.Run(string(step), func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: "etcd-fenced"})
			p := b.pair(100, 0)
			hold := b.reserve(p, 20, transfer.HoldMax)
			b.lapse(hold.ID)
			cfg := b.cfg
			cfg.Pool = pgtest.Pool(t, b.URL, "application_name="+b.schema()+"-client")
			cfg.Failpoint = locktest.OnceAt(step, b.terminate)
			sweeper, _ := b.another(cfg)
			if n, err := sweeper.Sweep(t.Context()); err != nil {
				t.Errorf("swept %d, %v", n, err)
			}
			b.mustHave(p.a, 100, 0)
			b.mustHold()
		})
	}
}

func TestTransfer_WorksAgainAfterAllConnectionsBroke(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "etcd-fenced"})
	p := b.pair(100, 0)
	px, through := servertest.ProxyURL(t, b.URL)
	cfg := b.cfg
	cfg.Pool = pgtest.Pool(t, through)
	client, _ := b.another(cfg)
	b.transferred(client.Transfer(t.Context(), newRequest(p.alice), p.move(1)))
	px.Down()
	if _, err := client.Transfer(t.Context(), newRequest(p.alice), p.move(1)); !errors.Is(err, locking.ErrBusy) {
		t.Errorf("%v, want ErrBusy: nothing was done, and a retry is safe", err)
	}
	px.Up(t)
	b.transferred(client.Transfer(t.Context(), newRequest(p.alice), p.move(1)))
	b.mustHave(p.a, 98, 0)
	b.mustHold()
}

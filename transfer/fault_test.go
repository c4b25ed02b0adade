package transfer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"shop/locking"
	"shop/transfer"
)

// kinds of request that change something, each on a bank of its own: what it
// does, and what the accounts of a pair that began with 100 and 0 are after it.
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

// tried lists the strategies that a kind of request is tried with: all for
// transfers, for the others those that differ in how they get at the rows.
func tried(kind string) []string {
	if kind == "transfer" {
		return all()
	}
	return []string{"row", "etcd-fence-only", "etcd-fenced"}
}

func TestRequest_CancelledAtAnyStepIsAllOrNothing(t *testing.T) {
	t.Parallel()
	for kind, k := range kinds {
		for _, strategy := range tried(kind) {
			for _, step := range transfer.Steps() {
				t.Run(kind+"/"+strategy+"/"+string(step), func(t *testing.T) {
					t.Parallel()
					b := open(t, transfer.Config{Strategy: strategy})
					p := b.pair(100, 0)
					hold := b.reserve(p, 20, transfer.HoldMax)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					cfg := b.cfg
					cfg.Failpoint = onceAt(step, func(context.Context) { cancel() })
					left, _ := b.another(cfg)
					req := ask(p.alice)
					reply, err := k.do(ctx, left, p, req, hold.ID)
					if step == transfer.AfterCommit || step == transfer.AfterRelease {
						if err != nil || isRefused(reply) {
							t.Errorf("%s, %v: it was committed", reply.Body, err)
						}
					} else if !errors.Is(err, context.Canceled) || b.number(`SELECT count(*) FROM transfer_keys`) != 1 {
						t.Errorf("%s, %v: want it cancelled, and nothing left", reply.Body, err)
					} else {
						b.mustHave(p.a, 100, 20)
					}
					if reply, err := k.do(t.Context(), b.Service, p, req, hold.ID); err != nil || isRefused(reply) {
						t.Errorf("the same key again: %s, %v", reply.Body, err)
					}
					b.mustHave(p.a, k.a, k.held)
					b.mustHave(p.b, k.b, 0)
					b.mustHold()
				})
			}
		}
	}
}

// terminate ends the backends of the bank's clients.
func (b *bank) terminate(ctx context.Context) {
	_, err := b.pool.Exec(ctx, `
		SELECT pg_terminate_backend(pid)
		FROM pg_stat_activity
		WHERE application_name = current_setting('search_path') || '-client'
		AND pid <> pg_backend_pid()`)
	if err != nil {
		b.t.Error(err)
	}
}

func TestRequest_BackendTerminatedAtAnyStepIsOneEffect(t *testing.T) {
	t.Parallel()
	for kind, k := range kinds {
		for _, strategy := range tried(kind) {
			for _, step := range transfer.Steps() {
				t.Run(kind+"/"+strategy+"/"+string(step), func(t *testing.T) {
					t.Parallel()
					b := open(t, transfer.Config{Strategy: strategy})
					p := b.pair(100, 0)
					hold := b.reserve(p, 20, transfer.HoldMax)
					cfg := b.cfg
					cfg.Pool = newPool(t, b.url, "application_name="+b.schema()+"-client")
					cfg.Failpoint = onceAt(step, b.terminate)
					client, events := b.another(cfg)
					reply, err := k.do(t.Context(), client, p, ask(p.alice), hold.ID)
					if err != nil || isRefused(reply) {
						t.Errorf("%s, %v", reply.Body, err)
					}
					again, unanswered := events.of(transfer.Retried), events.of(transfer.Ambiguous)
					inside := step != transfer.AfterCommit && step != transfer.AfterRelease && step != transfer.BeforeAcquire
					if inside && again+unanswered == 0 {
						t.Error("nothing ran again: the fault did not land")
					}
					if unanswered != events.of(transfer.Resolved) {
						t.Errorf("%d ambiguous, %d resolved", unanswered, events.of(transfer.Resolved))
					}
					b.mustHave(p.a, k.a, k.held)
					b.mustHave(p.b, k.b, 0)
					b.mustHold()
				})
			}
		}
	}
}

func TestSweep_BackendTerminatedAtAnyStepGivesBackOnce(t *testing.T) {
	t.Parallel()
	for _, step := range transfer.Steps() {
		t.Run(string(step), func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: "etcd-fenced"})
			p := b.pair(100, 0)
			hold := b.reserve(p, 20, transfer.HoldMax)
			b.lapse(hold.ID)
			cfg := b.cfg
			cfg.Pool = newPool(t, b.url, "application_name="+b.schema()+"-client")
			cfg.Failpoint = onceAt(step, b.terminate)
			sweeper, _ := b.another(cfg)
			if n, err := sweeper.Sweep(t.Context()); err != nil {
				t.Errorf("swept %d, %v", n, err)
			}
			b.mustHave(p.a, 100, 0)
			b.mustHold()
		})
	}
}

func TestTransfer_AfterAllConnectionsBroke(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "etcd-fenced"})
	p := b.pair(100, 0)
	px := newProxy(t, b.url)
	cfg := b.cfg
	cfg.Pool = newPool(t, px.url)
	client, _ := b.another(cfg)
	b.transferred(client.Transfer(t.Context(), ask(p.alice), p.move(1)))
	px.down()
	if _, err := client.Transfer(t.Context(), ask(p.alice), p.move(1)); !errors.Is(err, locking.ErrBusy) {
		t.Errorf("%v, want ErrBusy: did nothing, come again", err)
	}
	px.up(t)
	b.transferred(client.Transfer(t.Context(), ask(p.alice), p.move(1)))
	b.mustHave(p.a, 98, 0)
	b.mustHold()
}

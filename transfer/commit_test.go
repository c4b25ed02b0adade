package transfer_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/transfer"
)

// armed opens a bank behind a proxy that hurts the first request after
// start.Store(true) at its last round trip, where COMMIT is. Encode runs just before that.
func armed(t *testing.T, strategy string, hurt func(*proxy)) (b *bank, p pair, px *proxy, start *atomic.Bool) {
	t.Helper()
	b = open(t, transfer.Config{Strategy: strategy})
	p = b.pair(1000, 0)
	px = newProxy(t, b.url)
	start = &atomic.Bool{}
	cfg := b.cfg
	cfg.Pool = newPool(t, px.url)
	cfg.Encode = func(tr transfer.Transfer, refusal error) (transfer.Reply, error) {
		if start.CompareAndSwap(true, false) {
			hurt(px)
		}
		if refusal != nil {
			return transfer.Reply{Status: 409, Body: []byte(refusal.Error())}, nil
		}
		return transfer.Reply{Status: 201, Body: []byte(tr.ID.String())}, nil
	}
	b.cfg = cfg
	b.Service, b.events = b.another(cfg)
	// Once each, so that all statements are prepared.
	if _, err := b.Transfer(t.Context(), ask(p.alice), p.move(1)); err != nil {
		t.Fatal(err)
	}
	hold := b.held(p, 1)
	if _, err := b.Post(t.Context(), ask(p.alice), hold.ID, 0); err != nil {
		t.Fatal(err)
	}
	return b, p, px, start
}

// held is reserve, whatever Encode makes of it.
func (b *bank) held(p pair, amount int64) (tr transfer.Transfer) {
	b.t.Helper()
	req := ask(p.alice)
	if _, err := b.Reserve(b.t.Context(), req, p.move(amount), time.Hour); err != nil {
		b.t.Fatal(err)
	}
	err := b.pool.QueryRow(b.t.Context(), `SELECT id FROM transfers WHERE idempotency_key = $1`, req.Key).Scan(&tr.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	return tr
}

// mustBeResolved checks that the fault landed, and what became of it.
func (b *bank) mustBeResolved(reply transfer.Reply, err error) {
	b.t.Helper()
	if err != nil || reply.Status != 201 {
		b.t.Fatalf("%+v, %v", reply, err)
	}
	if a, r := b.events.of(transfer.Ambiguous), b.events.of(transfer.Resolved); a != 1 || r != 1 {
		b.t.Errorf("%d ambiguous, %d resolved, want 1 and 1", a, r)
	}
	b.mustHold()
}

func TestCommit_WithoutAnswerIsDecidedByTheSameKey(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]fault{"request lost": cutBefore, "answer lost": cutAfter} {
		for _, strategy := range all() {
			t.Run(name+"/"+strategy, func(t *testing.T) {
				t.Parallel()
				b, p, _, start := armed(t, strategy, func(px *proxy) { px.arm(hurt) })
				start.Store(true)
				reply, err := b.Transfer(t.Context(), ask(p.alice), p.move(30))
				b.mustBeResolved(reply, err)
				b.mustHave(p.a, 968, 0)
			})
		}
	}
}

func TestCommit_OfAHoldWithoutAnswerIsDecidedToo(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]fault{"request lost": cutBefore, "answer lost": cutAfter} {
		for _, strategy := range safe() {
			t.Run(name+"/"+strategy, func(t *testing.T) {
				t.Parallel()
				b, p, _, start := armed(t, strategy, func(px *proxy) { px.arm(hurt) })
				hold := b.held(p, 30)
				start.Store(true)
				reply, err := b.Post(t.Context(), ask(p.alice), hold.ID, 20)
				b.mustBeResolved(reply, err)
				b.mustHave(p.a, 978, 0)
			})
		}
	}
}

// The answer must not be guessed from a look at the key: the first attempt's
// COMMIT is still on its way, and arrives while the second waits for its row.
func TestCommit_ThatArrivesLateIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"row", "etcd-fenced"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			ready := make(chan struct{})
			b, p, _, start := armed(t, strategy, func(px *proxy) { px.arm(cutAndDeliverLate(ready)) })
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer close(ready) // also if it does not wait
				eventually(t, "the second attempt waits for the first", func() bool { return b.waiting() > 0 })
			}()
			start.Store(true)
			reply, err := b.Transfer(t.Context(), ask(p.alice), p.move(30))
			<-done
			b.mustBeResolved(reply, err)
			if !reply.Replayed {
				t.Error("it is not the first attempt's answer")
			}
			b.mustHave(p.a, 968, 0)
		})
	}
}

// The whole write of etcd-fence-only is one message. One that arrives when the
// second attempt is done has the same fence, which passes, and the same key.
func TestCommit_ThatArrivesBehindItsSecondAttemptIsRefusedByTheKey(t *testing.T) {
	t.Parallel()
	ready, refused := make(chan struct{}), make(chan struct{})
	arrive := sync.OnceFunc(func() { close(ready) })
	b, p, px, start := armed(t, "etcd-fence-only", func(px *proxy) { px.arm(cutAndDeliverLate(ready)) })
	t.Cleanup(arrive)
	start.Store(true)
	reply, err := b.Transfer(t.Context(), ask(p.alice), p.move(30))
	b.mustBeResolved(reply, err)
	px.armAnswer(func(answer []byte, _, _ net.Conn) {
		if !bytes.Contains(answer, []byte("23505")) {
			t.Errorf("the late write was answered %q, want unique_violation", answer)
		}
		close(refused)
	})
	arrive()
	await(t, "the late write is refused", refused)
	b.mustHave(p.a, 968, 0)
	b.mustHold()
}

// spoil makes the transaction of the next COMMIT fail just before it.
type spoil struct{ armed atomic.Bool }

func (*spoil) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*spoil) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *spoil) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if queries := data.Batch.QueuedQueries; queries[0].SQL == "commit" && s.armed.CompareAndSwap(true, false) {
		_, _ = conn.Exec(ctx, "SELECT 1 / 0", pgx.QueryExecModeSimpleProtocol)
	}
	return ctx
}
func (*spoil) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*spoil) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// PostgreSQL answers the COMMIT of a failed transaction with ROLLBACK, and no error.
func TestCommit_ThatIsAnsweredRollbackDidNothingAndRunsAgain(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			cfg, s := b.cfg, &spoil{}
			settings, err := transfer.PoolConfig(b.url)
			if err != nil {
				t.Fatal(err)
			}
			settings.ConnConfig.Tracer = s
			cfg.Pool = poolOf(t, settings)
			cfg.Failpoint = onceAt(transfer.BeforeCommit, func(context.Context) { s.armed.Store(true) }) // COMMIT travels alone
			svc, events := b.another(cfg)
			b.transferred(svc.Transfer(t.Context(), ask(p.alice), p.move(30)))
			if s.armed.Load() || events.of(transfer.Retried) != 1 {
				t.Errorf("no COMMIT was spoilt, or it did not run again: %d times", events.of(transfer.Retried))
			}
			b.mustHave(p.a, 70, 0)
			b.mustHold()
		})
	}
}

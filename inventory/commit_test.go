package inventory_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/locking"
)

// armed opens a shop behind a proxy that hurts the first purchase after
// start.Store(true) at its last round trip, where COMMIT is. Encode runs just before that.
func armed(t *testing.T, strategy string, hurt func(*proxy)) (s *shop, p *proxy, start *atomic.Bool) {
	t.Helper()
	s = openWithRedis(t, inventory.Config{Strategy: "row"})
	p = newProxy(t, s.url)
	start = &atomic.Bool{}
	cfg := s.cfg
	cfg.Strategy = strategy
	cfg.Pool = newPool(t, p.url)
	cfg.Encode = func(o inventory.Order, refusal error) (inventory.Reply, error) {
		if start.CompareAndSwap(true, false) {
			hurt(p)
		}
		if refusal != nil {
			return inventory.Reply{Status: 409, Body: []byte(refusal.Error())}, nil
		}
		return inventory.Reply{Status: 201, Body: []byte(o.ID.String())}, nil
	}
	s.armedCfg = cfg
	s.Service, s.events = s.another(cfg)
	s.stock("WARM", 1)
	if _, err := s.Buy(t.Context(), ask(), one("WARM")); err != nil { // so that all statements are prepared
		t.Fatal(err)
	}
	return s, p, start
}

func TestCommit_WithoutAnswerIsDecidedByTheSameKey(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]fault{"request lost": cutBefore, "answer lost": cutAfter} {
		for _, strategy := range append(safe(), "naive", "redis-only") {
			t.Run(name+"/"+strategy, func(t *testing.T) {
				t.Parallel()
				s, _, start := armed(t, strategy, func(p *proxy) { p.arm(hurt) })
				s.stock("A", 1)
				start.Store(true)
				reply, err := s.Buy(t.Context(), ask(), one("A"))
				if err != nil || reply.Status != 201 {
					t.Fatalf("%+v, %v", reply, err)
				}
				if a, r := s.events.of(inventory.Ambiguous), s.events.of(inventory.Resolved); a != 1 || r != 1 {
					t.Errorf("%d ambiguous, %d resolved, want 1 and 1", a, r)
				}
				if got := s.left("A"); got != 0 {
					t.Errorf("%d left, want 0", got)
				}
				s.mustHold()
			})
		}
	}
}

// The answer must not be guessed from a look at the key: the first attempt's
// COMMIT is still on its way, and arrives while the second waits for its row.
func TestCommit_ThatArrivesLateIsWaitedFor(t *testing.T) {
	t.Parallel()
	ready := make(chan struct{})
	s, _, start := armed(t, "row", func(p *proxy) { p.arm(cutAndDeliverLate(ready)) })
	s.stock("A", 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		eventually(t, "the second attempt waits for the first", func() bool { return s.waiting() > 0 })
		close(ready)
	}()
	start.Store(true)
	reply, err := s.Buy(t.Context(), ask(), one("A"))
	<-done
	if err != nil || reply.Status != 201 || !reply.Replayed {
		t.Errorf("%+v, %v: want the first attempt's order, replayed", reply, err)
	}
	s.mustHold()
}

// waiting counts the backends that wait for a lock on this shop's tables.
func (s *shop) waiting() int64 {
	return s.number(`
		SELECT count(DISTINCT pid)
		FROM pg_locks l
		WHERE l.pid IN (SELECT pid FROM pg_locks WHERE relation = 'products'::regclass)
		AND NOT l.granted`)
}

func TestCommit_ThatCannotBeDecidedIsUnknownAndNothingElse(t *testing.T) {
	t.Parallel()
	s, p, start := armed(t, "row", func(p *proxy) {
		p.arm(func(request []byte, client, server net.Conn) {
			cutAfter(request, client, server)
			p.refuse()
		})
	})
	s.stock("A", 1)
	req := ask()
	start.Store(true)
	_, err := s.Buy(t.Context(), req, one("A"))
	if !errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Fatalf("%v, want ErrOutcomeUnknown", err)
	}
	for _, lie := range []error{locking.ErrBusy, locking.ErrLost, context.Canceled, context.DeadlineExceeded, inventory.ErrNotFound} {
		if errors.Is(err, lie) {
			t.Errorf("%v also says %v", err, lie)
		}
	}
	p.up(t)
	reply, err := s.Buy(t.Context(), req, one("A"))
	if err != nil || reply.Status != 201 {
		t.Errorf("the same key later: %+v, %v", reply, err)
	}
	s.mustHold()
}

// The first attempt committed, its answer was lost, and the second cannot get the
// row. What the key holds is the answer, before any doubt is told.
func TestCommit_WithoutAnswerIsLookedUpWhenTheSecondAttemptCannotRun(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 2)
	p := newProxy(t, s.url)
	letGo := func() {}
	var attempts atomic.Int32 // from -1: the first purchase prepares the statements
	attempts.Store(-1)
	cfg := s.cfg
	cfg.Pool = newPool(t, p.url, "lock_timeout=100")
	cfg.Failpoint = func(_ context.Context, step inventory.Step, _ string) {
		switch {
		case step == inventory.AfterAcquire && attempts.Add(1) == 2:
			letGo = s.holding(`SELECT FROM products WHERE sku = 'A' FOR UPDATE`) // waits for the end of the first
		case step == inventory.BeforeCommit && attempts.Load() == 1:
			p.arm(cutAfter)
		}
	}
	buyer, events := s.another(cfg)
	if _, err := buyer.Buy(t.Context(), ask(), one("A")); err != nil {
		t.Fatal(err)
	}
	reply, err := buyer.Buy(t.Context(), ask(), one("A"))
	letGo()
	if err != nil || !reply.Replayed || isRefused(reply) {
		t.Errorf("%+v, %v: want the first attempt's order, replayed", reply, err)
	}
	if a, r := events.of(inventory.Ambiguous), events.of(inventory.Resolved); a != 1 || r != 1 || attempts.Load() != 2 {
		t.Errorf("%d ambiguous, %d resolved in %d attempts, want 1 and 1 in 2", a, r, attempts.Load())
	}
	if got := s.left("A"); got != 0 {
		t.Errorf("%d left, want 0", got)
	}
	s.mustHold()
}

// The lease ends while nobody can say whether the COMMIT arrived. The row lock
// and the key decide it without the lease.
func TestCommit_IsDecidedAlsoWhenTheLeaseEndsMeanwhile(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]fault{"request lost": cutBefore, "answer lost": cutAfter} {
		store, steal := stealable(t)
		s, p, start := armed(t, "row", func(p *proxy) {
			p.arm(func(request []byte, client, server net.Conn) {
				steal(context.Background())
				p.refuse()
				hurt(request, client, server)
			})
		})
		cfg := s.armedCfg
		cfg.Strategy, cfg.Locks = "redis+row", store
		cfg.Lock.Observer = func(e locking.Event) {
			if e.Kind == locking.Lost {
				p.up(t)
			}
		}
		s.Service, s.events = s.another(cfg)
		s.stock("A", 1)
		start.Store(true)
		reply, err := s.Buy(t.Context(), ask(), one("A"))
		if err != nil || reply.Status != 201 {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
		if got := s.events.of(inventory.Resolved); got != 1 {
			t.Errorf("%s: %d resolved, want 1", name, got)
		}
		s.mustHold()
	}
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
			s := openWithRedis(t, inventory.Config{Strategy: strategy})
			s.stock("A", 3)
			settings, err := inventory.PoolConfig(s.url)
			if err != nil {
				t.Fatal(err)
			}
			cfg, spoiled := s.cfg, &spoil{}
			settings.ConnConfig.Tracer = spoiled
			if cfg.Pool, err = pgxpool.NewWithConfig(t.Context(), settings); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cfg.Pool.Close)
			cfg.Failpoint = onceAt(inventory.BeforeCommit, func(context.Context) { spoiled.armed.Store(true) }) // COMMIT travels alone
			svc, events := s.another(cfg)
			if reply, err := svc.Buy(t.Context(), ask(), one("A")); err != nil || isRefused(reply) {
				t.Fatalf("%s, %v", reply.Body, err)
			}
			if spoiled.armed.Load() || events.of(inventory.Retried) != 1 {
				t.Errorf("no COMMIT was spoilt, or it did not run again: %d times", events.of(inventory.Retried))
			}
			if got := s.left("A"); got != 2 {
				t.Errorf("%d left, want 2", got)
			}
			s.mustHold()
		})
	}
}

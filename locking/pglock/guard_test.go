package pglock

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

// write guards resource in a transaction and commits it.
func write(t *testing.T, pool *pgxpool.Pool, resource string, fence locking.Fence) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return Guard(t.Context(), tx, resource, fence)
	})
}

// seen returns the fence that the guard of resource has stored.
func seen(t *testing.T, pool *pgxpool.Pool, resource string) locking.Fence {
	t.Helper()
	return locking.Fence(number(t, pool, `SELECT COALESCE(max(fence), 0) FROM guards WHERE resource = $1`, resource))
}

func TestGuard_RefusesTheOldHolderAndAcceptsThePresentAndTheNext(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	const old, present, next = 5, 7, 8
	for _, step := range []struct {
		fence locking.Fence
		want  error
	}{
		{old, nil},
		{present, nil},
		{old, locking.ErrStale}, // continues after a pause
		{present, nil},          // writes again
		{next, nil},
		{present, locking.ErrStale},
		{old, locking.ErrStale},
		{next, nil},
	} {
		if err := write(t, pool, "a", step.fence); !errors.Is(err, step.want) {
			t.Errorf("fence %d: %v, want %v", step.fence, err, step.want)
		}
	}
	if got := seen(t, pool, "a"); got != next {
		t.Errorf("the row remembers %d, want %d", got, next)
	}
	if err := write(t, pool, "b", old); err != nil {
		t.Errorf("another resource: %v", err)
	}
}

// The second of two transactions waits at its guard until the first ends.
func TestGuard_WaitsForTheOpenTransactionAndThenDecides(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second locking.Fence
		rollback      bool
		want          error
	}{
		"equal, then newer":            {5, 6, false, nil},
		"newer, then equal to the old": {6, 5, false, locking.ErrStale},
		"equal, then equal":            {5, 5, false, nil},
		"newer rolls back, old passes": {6, 5, true, nil},
	} {
		for known, before := range map[string]locking.Fence{"row there": 5, "row new": 0} {
			t.Run(name+"/"+known, func(t *testing.T) {
				t.Parallel()
				pool := newPool(t)
				if before > 0 {
					if err := write(t, pool, "a", before); err != nil {
						t.Fatal(err)
					}
				}
				first, second := begin(t, pool, pgx.ReadCommitted), begin(t, pool, pgx.ReadCommitted)
				if err := Guard(t.Context(), first, "a", c.first); err != nil {
					t.Fatal(err)
				}
				decided := make(chan error, 1)
				go func() { decided <- Guard(t.Context(), second, "a", c.second) }()
				awaitBlocked(t, pool, second)
				end := first.Commit
				if c.rollback {
					end = first.Rollback
				}
				if err := end(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-decided; !errors.Is(err, c.want) {
					t.Errorf("the second: %v, want %v", err, c.want)
				}
			})
		}
	}
}

// The loser's snapshot is older than the winner's commit, so its guard fails with 40001
// before any fence is compared. When it runs again, with a new snapshot, it is ErrStale.
func TestGuard_UnderASnapshotALostRaceIs40001First(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		for name, fences := range map[string][2]locking.Fence{"stale": {6, 5}, "newer": {5, 6}} {
			t.Run(string(level)+"/"+name, func(t *testing.T) {
				t.Parallel()
				pool := newPool(t)
				if err := write(t, pool, "a", 1); err != nil {
					t.Fatal(err)
				}
				loser := begin(t, pool, level)
				if _, err := loser.Exec(t.Context(), `SELECT FROM guards`); err != nil { // takes the snapshot
					t.Fatal(err)
				}
				if err := write(t, pool, "a", fences[0]); err != nil {
					t.Fatal(err)
				}
				err := Guard(t.Context(), loser, "a", fences[1])
				var pg *pgconn.PgError
				if !errors.As(err, &pg) || pg.Code != "40001" || errors.Is(err, locking.ErrStale) {
					t.Errorf("%v, want 40001 and no ErrStale yet", err)
				}
				_ = loser.Rollback(t.Context())
				again := begin(t, pool, level)
				err = Guard(t.Context(), again, "a", fences[1])
				if stale := errors.Is(err, locking.ErrStale); stale != (fences[1] < fences[0]) {
					t.Errorf("again: %v", err)
				}
			})
		}
	}
}

func TestGuard_RefusesWhatGuardsNothing(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	tx := begin(t, pool, pgx.ReadCommitted)
	for _, fence := range []locking.Fence{0, -1} {
		if err := Guard(t.Context(), tx, "a", fence); !errors.Is(err, ErrUnfenced) || errors.Is(err, locking.ErrStale) {
			t.Errorf("fence %d: %v, want ErrUnfenced", fence, err)
		}
	}
	for _, resource := range []string{"", "a\x00", "\xff", string(make([]byte, 513))} {
		if err := Guard(t.Context(), tx, resource, 1); !errors.Is(err, locking.ErrKey) {
			t.Errorf("resource %.8q: %v, want ErrKey", resource, err)
		}
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := Guard(t.Context(), conn, "a", 1); !errors.Is(err, ErrUnfenced) {
		t.Errorf("in autocommit: %v, want ErrUnfenced", err)
	}
	if n := number(t, pool, `SELECT count(*) FROM guards`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
	if err := Guard(t.Context(), tx, "a", 1); err != nil {
		t.Errorf("the refusals have ended the transaction: %v", err)
	}
}

// Names that differ in case, or in a space at the end, are different resources.
func TestGuard_NeverConfusesResources(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	names := []string{"a", "A", "a ", "ä", "a/b", "a%", "{a}"}
	for i, name := range names {
		if err := write(t, pool, name, locking.Fence(100-i)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if n := number(t, pool, `SELECT count(*) FROM guards`); n != int64(len(names)) {
		t.Errorf("%d guards, want %d", n, len(names))
	}
}

package transfer_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"shop/transfer"
)

func TestMigrate_ByManyAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	url := newSchema(t)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := transfer.Migrate(t.Context(), url); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := transfer.Migrate(t.Context(), url); err != nil {
		t.Error(err)
	}
	var versions int
	if err := newPool(t, url).QueryRow(t.Context(), `SELECT count(*) FROM transfer_goose_version WHERE version_id > 0`).Scan(&versions); err != nil || versions != 1 {
		t.Errorf("%d versions, %v, want 1", versions, err)
	}
}

func TestMigrate_WithoutASchemaSaysSo(t *testing.T) {
	t.Parallel()
	if err := transfer.Migrate(t.Context(), newSchema(t)+"_nowhere"); err == nil {
		t.Error("migrated nothing, and said nothing")
	}
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	url := newSchema(t)
	pool, store := newPool(t, url), nobody{}
	unbounded, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unbounded.Close)
	for name, cfg := range map[string]transfer.Config{
		"no pool":              {},
		"a pool without end":   {Pool: unbounded, Strategy: "row"},
		"no such strategy":     {Pool: pool, Strategy: "hope"},
		"default needs a lock": {Pool: pool, Source: source},
		"… and a source":       {Pool: pool, Locks: store},
		"no lease ids":         {Pool: pool, Locks: store, Source: source, Strategy: "lease-id-fence"},
	} {
		if _, err := transfer.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := transfer.New(transfer.Config{Pool: pool, Locks: store, Source: source}); err != nil {
		t.Errorf("the default: %v", err)
	}
}

func TestStrategies_AreTheTableOfTheLesson(t *testing.T) {
	t.Parallel()
	want := []string{"naive", "etcd-unfenced", "etcd-fence-only", "lease-id-fence", "row", "serializable", "etcd-fenced"}
	if got := all(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := safe(); !slices.Equal(got, []string{"etcd-fence-only", "row", "serializable", "etcd-fenced"}) {
		t.Errorf("safe: %q", got)
	}
	for _, s := range transfer.Strategies() {
		if !slices.Contains(s.Stores, "postgres") || s.Why == "" {
			t.Errorf("%+v", s)
		}
		s.Stores[0] = "changed by a caller"
	}
	if transfer.Strategies()[0].Stores[0] != "postgres" {
		t.Error("a caller changed the table")
	}
}

func TestWith_IsTheSameServiceUnderAnotherStrategy(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{})
	p := b.pair(100, 0)
	naive, err := b.With("naive")
	if err != nil {
		t.Fatal(err)
	}
	b.transferred(naive.Transfer(t.Context(), ask(p.alice), p.move(30)))
	b.mustHave(p.a, 70, 0)
	if _, err := b.With("hope"); !errors.Is(err, transfer.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
	if _, err := b.With("etcd-fenced"); err == nil {
		t.Error("without a lock store")
	}
}

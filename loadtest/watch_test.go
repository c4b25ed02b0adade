package loadtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
)

// ownDatabase is a database for one test.
func ownDatabase(t *testing.T) *Database {
	t.Helper()
	db, err := CreateDatabase(t.Context(), postgresURL(t), fmt.Sprintf("loadtest %d %d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Drop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return db
}

func connectTo(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestWaitQuiet_ReturnsOnlyWhenNobodyElseIsConnected(t *testing.T) {
	db := ownDatabase(t)
	auditor, last := connectTo(t, db.URL), connectTo(t, db.URL)
	if err := WaitQuiet(t.Context(), auditor, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "1 connections are left") {
		t.Errorf("quiet, although somebody is connected: %v", err)
	}
	quiet := make(chan error, 1)
	go func() { quiet <- WaitQuiet(t.Context(), auditor, quietWait) }()
	if err := last.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-quiet; err != nil {
		t.Error(err)
	}
}

func TestWatch_SeesTheShelfAndTheOrdersPartWays(t *testing.T) {
	db := ownDatabase(t)
	conn := connectTo(t, db.URL)
	for _, up := range migrations(t, "inventory") {
		must(t, conn, t.Context(), up)
	}
	must(t, conn, t.Context(), honestShop)
	clock := time.Now()
	watching, stop := context.WithCancel(t.Context())
	var samples []Sample
	var looks atomic.Int32
	done := make(chan error, 1)
	go func() {
		var err error
		samples, err = watchShelves(watching, Stores{Postgres: db.URL}, func() time.Duration { looks.Add(1); return time.Since(clock) })
		done <- err
	}()
	for looks.Load() < 2 && fault.Wait(t.Context(), 5*time.Millisecond) { // the first look is over
	}
	must(t, conn, t.Context(), `UPDATE products SET stock = 9 WHERE sku = 'cup'`) // two sales are forgotten
	fault.Wait(t.Context(), 2*sampleEvery)
	stop()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	first, last := samples[0], samples[len(samples)-1]
	if first.total() != (Level{"", 13, 13}) || last.total() != (Level{"", 15, 13}) {
		t.Errorf("first %+v, last %+v; want 13 and 13, then 15 and 13", first, last)
	}
	if found := apart(samples); len(found) == 0 || len(apart(samples[:1])) != 0 {
		t.Errorf("apart: %v", found)
	}
	if n, seen := shelfAt(samples, "cup", last.At); !seen || n != 9 {
		t.Errorf("the shelf said %d (%v), want 9", n, seen)
	}
	if _, seen := shelfAt(samples, "cup", first.At-1); seen {
		t.Error("seen before the first look")
	}
}

func TestFindOversale_TellsTheSalesOfTheFirstProductThatCrossedTheLine(t *testing.T) {
	conn := openShop(t, "inventory")
	must(t, conn, t.Context(), honestShop)
	records := []Record{
		{Intent: Intent{Key: "k1"}, Attempts: []Attempt{{Key: "k1", Replica: 1, Outcome: OK, Start: 1, End: 3}}},
		{Intent: Intent{Key: "k2"}, Attempts: []Attempt{{Key: "k2", Outcome: Unknown}, {Key: "k2", Replica: 2, Outcome: OK, Start: 2, End: 4}}},
	}
	if o, err := FindOversale(t.Context(), conn, records); err != nil || o != nil {
		t.Errorf("an honest shop: %+v, %v", o, err)
	}
	must(t, conn, t.Context(), `DELETE FROM stock_movements WHERE kind = 'restock'; UPDATE stock_movements SET quantity = 2 WHERE kind = 'opening' AND sku = 'cup'`)
	o, err := FindOversale(t.Context(), conn, records)
	if err != nil || o == nil {
		t.Fatalf("%+v, %v", o, err)
	}
	if o.SKU != "cup" || o.Put != 2 || len(o.Sales) != 2 || o.crossing() != 1 {
		t.Errorf("%+v, crossing at %d; want 2 cups, 2 sales, the second beyond", o, o.crossing())
	}
	if last := o.Sales[1]; last.Key != "k2" || last.Sold != 3 || last.Attempt.Replica != 2 {
		t.Errorf("%+v", last)
	}
	if place, met := clashes(o.Sales); place != 0 || met != 2 {
		t.Errorf("clashes: at %d, met %d; want 0 and 2", place, met)
	}
}

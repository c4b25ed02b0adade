// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/judge"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
	"shop/locking/idempotency/pgtx/pgtest"
)

func TestWatch_SeesThatStockAndOrdersDiffer(t *testing.T) {
	db, err := site.CreateDatabase(t.Context(), testbed.Env(t, "SHOP_POSTGRES_URL"), fmt.Sprintf("loadtest_%d_%d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Drop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	conn := testbed.Connect(t, db.URL)
	pgtest.Migrate(t, conn, "inventory")
	testbed.Exec(t, conn, correctShop)
	clock := time.Now()
	watching, stop := context.WithCancel(t.Context())
	var samples []judge.Sample
	var looks atomic.Int32
	done := make(chan error, 1)
	go func() {
		var err error
		samples, err = judge.WatchSQL(watching, db.URL, shelvesSQL(put), func() time.Duration { looks.Add(1); return time.Since(clock) })
		done <- err
	}()
	await := func(n int32) {
		for looks.Load() < n && fault.Wait(t.Context(), 5*time.Millisecond) {
		}
	}
	await(2)                                                                                                                                                  // the first sample is taken
	testbed.Exec(t, conn, `UPDATE products SET stock = 9 WHERE sku = 'cup'; UPDATE stock_movements SET quantity = 10 WHERE sku = 'cup' AND kind = 'opening'`) // two sales are lost, and the movements claim two more units
	await(looks.Load() + 3)
	stop()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	first, last := samples[0], samples[len(samples)-1]
	if first.Total() != (judge.Level{Says: 13, True: 13}) || last.Total() != (judge.Level{Says: 15, True: 13}) {
		t.Errorf("first %+v, last %+v; want 13 and 13, then 15 and 13", first, last)
	}
	if found := judge.Apart(samples); len(found) == 0 || len(judge.Apart(samples[:1])) != 0 {
		t.Errorf("apart: %v", found)
	}
	if n, seen := shelfAt(samples, "cup", last.At); !seen || n != 9 {
		t.Errorf("the shelf said %d (%v), want 9", n, seen)
	}
	if _, seen := shelfAt(samples, "cup", first.At-1); seen {
		t.Error("seen before the first look")
	}
}

func TestFindOversale_ReturnsTheSalesOfTheFirstOversoldProduct(t *testing.T) {
	conn := violated(t, violation{})
	records := []traffic.Record{
		{Intent: traffic.Intent{Key: "k1", Action: Buy}, Outcome: traffic.OK, Made: uuid.MustParse(order1), Attempts: []traffic.Attempt{{Key: "k1", Replica: 1, Outcome: traffic.OK, Start: 1, End: 3}}},
		{Intent: traffic.Intent{Key: "k2", Action: Buy}, Outcome: traffic.OK, Made: uuid.MustParse(order2), Attempts: []traffic.Attempt{{Key: "k2", Outcome: traffic.Unknown}, {Key: "k2", Replica: 2, Outcome: traffic.OK, Start: 2, End: 4}}},
	}
	if o, err := findOversale(t.Context(), conn, records); err != nil || o != nil {
		t.Errorf("a correct shop: %+v, %v", o, err)
	}
	testbed.Exec(t, conn, `UPDATE proof_opening SET quantity = 2 WHERE sku = 'cup'`)
	o, err := findOversale(t.Context(), conn, records)
	if err != nil || o == nil {
		t.Fatalf("%+v, %v", o, err)
	}
	if o.SKU != "cup" || o.Put != 2 || len(o.Sales) != 2 || o.crossing() != 1 {
		t.Errorf("%+v, crossing at %d; want 2 cups, 2 sales, the second beyond", o, o.crossing())
	}
	if last := o.Sales[1]; last.Units != 1 || last.Sold != 3 || last.Attempt.Replica != 2 {
		t.Errorf("%+v", last)
	}
	if n := met(o.Sales); n != 2 {
		t.Errorf("%d met; want 2", n)
	}
}

// SPDX-License-Identifier: MIT

package transfer

import (
	"maps"
	"slices"
	"testing"

	"shop/loadtest"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/linear"
)

func TestEffects_AreTransfersTheirEndsAndExpiries(t *testing.T) {
	conn := testbed.Schema(t, "transfer")
	testbed.Exec(t, conn, correctAccounts)
	testbed.Exec(t, conn, `
UPDATE idempotency_keys SET body = convert_to('{"id":"`+transfer2+`","state":"posted"}', 'UTF8') WHERE key = 'post-k2';
UPDATE idempotency_keys SET body = convert_to('{"id":"`+transfer1+`","state":"posted"}', 'UTF8') WHERE key = 'k1'`)
	var a loadtest.Audited
	if err := effects(t.Context(), conn, &a); err != nil {
		t.Fatal(err)
	}
	orders := map[string]int64{}
	for _, s := range a.Effects {
		orders[s.Key] = s.Order
	}
	if keys := slices.Sorted(maps.Keys(orders)); !slices.Equal(keys, []string{"k1", "k2", "k3", "k4", "k5", "post-k2"}) || len(a.Effects) != 6 {
		t.Errorf("%+v", a.Effects)
	}
	if orders["post-k2"]-orders["k2"] != 500_000 {
		t.Errorf("posted %d microseconds after it was held, want half a second", orders["post-k2"]-orders["k2"])
	}
	if len(a.Own) != 1 || a.Own[0].Key != "expire-k4" || a.Own[0].Client != linear.Service || a.Own[0].Fate() != linear.Done || a.Own[0].Order-orders["k4"] != 1_010_000 {
		t.Errorf("%+v", a.Own)
	}
}

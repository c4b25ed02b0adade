// SPDX-License-Identifier: MIT

package transfer

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"shop/loadtest/internal/testbed"
	"shop/loadtest/judge"
	"shop/loadtest/linear"
)

func TestEffects_AreTransfersTheirEndsAndExpiries(t *testing.T) {
	conn := testbed.Schema(t, "transfer")
	testbed.Exec(t, conn, correctAccounts)
	testbed.Exec(t, conn, `
UPDATE idempotency_keys SET body = convert_to('{"id":"`+transfer2+`","state":"posted"}', 'UTF8') WHERE key = 'post-k2';
UPDATE idempotency_keys SET body = convert_to('{"id":"`+transfer1+`","state":"posted"}', 'UTF8') WHERE key = 'k1'`)
	stored, err := judge.StoredSQL(t.Context(), conn, effectsSQL)
	own, also := expiries(t.Context(), conn)
	if err := errors.Join(err, also); err != nil {
		t.Fatal(err)
	}
	orders := map[string]int64{}
	for _, s := range stored {
		orders[s.Key] = s.Order
	}
	if keys := slices.Sorted(maps.Keys(orders)); !slices.Equal(keys, []string{"k1", "k2", "k3", "k4", "k5", "post-k2"}) || len(stored) != 6 {
		t.Errorf("%+v", stored)
	}
	if orders["post-k2"]-orders["k2"] != 500_000 {
		t.Errorf("posted %d microseconds after it was held, want half a second", orders["post-k2"]-orders["k2"])
	}
	if len(own) != 1 || own[0].Key != "expire-k4" || own[0].Client != linear.Service || own[0].Fate() != linear.Done || own[0].Order-orders["k4"] != 1_010_000 {
		t.Errorf("%+v", own)
	}
}

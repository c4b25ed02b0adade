// SPDX-License-Identifier: MIT

package inventory

import (
	"slices"
	"testing"

	"shop/loadtest/internal/testbed"
	"shop/loadtest/judge"
)

func TestEffects_ArePurchasesAndCancellationsInOrder(t *testing.T) {
	conn := testbed.Schema(t, "inventory")
	testbed.Exec(t, conn, correctShop)
	testbed.Exec(t, conn, `UPDATE idempotency_keys SET body = '{"id":"`+order3+`","status":"cancelled"}' WHERE key = 'c3'`)
	stored, err := judge.StoredSQL(t.Context(), conn, effectsSQL)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(stored, func(a, b judge.Stored) int { return int(a.Order - b.Order) })
	var keys []string
	for _, s := range stored {
		keys = append(keys, s.Key)
	}
	if !slices.Equal(keys, []string{"k1", "k2", "k3", "c3"}) || string(stored[3].Answer) != `{"id": "`+order3+`"}` || stored[0].Client[15] != 0xc1 {
		t.Errorf("%+v", stored)
	}
}

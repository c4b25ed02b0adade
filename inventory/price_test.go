// SPDX-License-Identifier: MIT

package inventory_test

import (
	"bytes"
	"testing"

	"shop/inventory"
)

// Each strategy decides by the price that it sells at.
func TestBuy_AtAnotherPriceThanSeenIsRefusedByEachStrategy(t *testing.T) {
	t.Parallel()
	for _, strategy := range append(safe(), "naive", "redis-only") {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := openWithRedis(t, inventory.Config{Strategy: strategy})
			sku := "seen " + strategy // unique among tests: all schemas share advisory locks
			s.stock(sku, 2)
			at := func(price int64) []inventory.Line {
				return []inventory.Line{{SKU: sku, Quantity: 1, UnitPrice: &price}}
			}
			req := newRequest()
			refused, err := s.Buy(t.Context(), req, at(99))
			if err != nil || !isRefused(refused) || !bytes.Contains(refused.Body, []byte("price changed: 99 seen")) {
				t.Errorf("at another price: %s, %v, want a refusal", refused.Body, err)
			}
			again, err := s.Buy(t.Context(), req, at(99))
			if err != nil || !again.Replayed || !bytes.Equal(again.Body, refused.Body) {
				t.Errorf("again: %s, %v", again.Body, err)
			}
			if reply, err := s.Buy(t.Context(), newRequest(), at(100)); err != nil || isRefused(reply) {
				t.Errorf("at its price: %s, %v", reply.Body, err)
			}
			if left := s.left(sku); left != 1 {
				t.Errorf("%d left, want 1", left)
			}
			s.mustHold()
		})
	}
}

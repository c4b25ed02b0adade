// SPDX-License-Identifier: MIT

package inventory_test

import (
	"bytes"
	"testing"

	"shop/inventory"
)

func TestBuy_SellsOnceAndReplaysByteForByte(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 2)
	req := newRequest()
	first, err := s.Buy(t.Context(), req, one("A"))
	if err != nil || first.Replayed {
		t.Fatalf("first: %+v, %v", first, err)
	}
	second, err := s.Buy(t.Context(), req, one("A"))
	if err != nil || !second.Replayed || !bytes.Equal(first.Body, second.Body) {
		t.Fatalf("second: %+v, %v", second, err)
	}
	if got := s.left("A"); got != 1 {
		t.Errorf("stock %d, want 1", got)
	}
	s.mustHold()
}

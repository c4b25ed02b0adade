// SPDX-License-Identifier: MIT

package inventory_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"shop/inventory"
	"shop/locking/idempotency"
)

func TestKey_IsNotSpentByWhatIsNotStored(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	s.stock("A", 5)
	if _, err := s.AddProduct(t.Context(), inventory.Product{SKU: "YEN", Price: 1, Currency: "JPY", Stock: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddProduct(t.Context(), inventory.Product{SKU: "DEAR", Price: 1 << 62, Currency: "EUR", Stock: 5}); err != nil {
		t.Fatal(err)
	}
	req := newRequest()
	var unknown *inventory.UnknownSKUError
	for name, c := range map[string]struct {
		lines []inventory.Line
		want  error
	}{
		"no lines":          {nil, inventory.ErrInvalid},
		"21 lines":          {make([]inventory.Line, 21), inventory.ErrInvalid},
		"twice":             {[]inventory.Line{{SKU: "A", Quantity: 1}, {SKU: "A", Quantity: 1}}, inventory.ErrInvalid},
		"none of it":        {[]inventory.Line{{SKU: "A"}}, inventory.ErrInvalid},
		"less than none":    {[]inventory.Line{{SKU: "A", Quantity: -1}}, inventory.ErrInvalid},
		"NUL":               {one("A\x00"), inventory.ErrInvalid},
		"not UTF-8":         {one("\xff"), inventory.ErrInvalid},
		"mixed currencies":  {[]inventory.Line{{SKU: "A", Quantity: 1}, {SKU: "YEN", Quantity: 1}}, inventory.ErrInvalid},
		"product too large": {[]inventory.Line{{SKU: "DEAR", Quantity: 3}}, inventory.ErrInvalid},
		"sum too large":     {[]inventory.Line{{SKU: "A", Quantity: 1 << 60}, {SKU: "DEAR", Quantity: 1}}, inventory.ErrInvalid},
		"unknown":           {[]inventory.Line{{SKU: "A", Quantity: 1}, {SKU: "Z", Quantity: 1}}, inventory.ErrNotFound},
	} {
		for _, strategy := range []string{"row", "atomic", "serializable"} {
			_, err := s.BuyWith(t.Context(), strategy, req, c.lines)
			if !errors.Is(err, c.want) {
				t.Errorf("%s, %s: %v, want %v", name, strategy, err, c.want)
			}
			if c.want == inventory.ErrNotFound && (!errors.As(err, &unknown) || unknown.SKU != "Z") {
				t.Errorf("%v does not name the sku", err)
			}
		}
	}
	if reply, err := s.Buy(t.Context(), req, one("A")); err != nil || isRefused(reply) || reply.Replayed {
		t.Errorf("%+v, %v: the key was spent", reply, err)
	}
	if a, dear := s.left("A"), s.left("DEAR"); a != 4 || dear != 5 {
		t.Errorf("stock %d and %d, want 4 and 5", a, dear)
	}
	s.mustHold()
}

func TestKey_ThatCannotBeStoredIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, inventory.Config{})
	for _, key := range []string{"", "a\n"} {
		_, buyErr := s.Buy(t.Context(), requestBy(uuid.New(), key), one("A"))
		_, cancelErr := s.Cancel(t.Context(), requestBy(uuid.New(), key), uuid.New())
		if !errors.Is(buyErr, idempotency.ErrKey) || !errors.Is(cancelErr, idempotency.ErrKey) {
			t.Errorf("key %q: %v and %v, want ErrKey", key, buyErr, cancelErr)
		}
	}
}

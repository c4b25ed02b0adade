// SPDX-License-Identifier: MIT

package inventory_test

import (
	"errors"
	"testing"

	"shop/inventory"
	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx/pgtest"
)

// A batch looks up its keys under the row lock. If it gets no lock, its error says nothing about the key, which is another
// request's for good.
func TestCombined_AReusedKeyIsToldWhileTheRowIsLocked(t *testing.T) {
	t.Parallel()
	s := openWithRedis(t, inventory.Config{Strategy: "combined"})
	s.stock("A", 5)
	req := newRequest()
	s.ordered(req, one("A")...)
	cfg := s.cfg
	cfg.Pool = pgtest.Pool(t, s.URL, "lock_timeout=100")
	impatient, _ := s.another(cfg)
	t.Cleanup(impatient.Close)
	defer s.Hold(`SELECT FROM products FOR UPDATE`)()
	req.Fingerprint[0]++
	if reply, err := impatient.Buy(t.Context(), req, one("A")); !errors.Is(err, idempotency.ErrKeyReused) {
		t.Errorf("%s, %v, want ErrKeyReused", reply.Body, err)
	}
}

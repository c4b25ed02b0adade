// SPDX-License-Identifier: MIT

package transfer_test

import (
	"errors"
	"testing"

	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/transfer"
)

// A batch looks up its keys under the row locks. If it gets none, its error says nothing about the key, which is another
// request's for good.
func TestCombined_AReusedKeyIsToldWhileTheRowsAreLocked(t *testing.T) {
	t.Parallel()
	b := open(t, transfer.Config{Strategy: "combined"})
	p := b.pair(100, 0)
	req := newRequest(p.alice)
	b.transferred(b.Transfer(t.Context(), req, p.move(10)))
	cfg := b.replica()
	cfg.Pool = pgtest.Pool(t, b.URL, "lock_timeout=100")
	impatient, _ := b.another(cfg)
	b.transferred(impatient.Transfer(t.Context(), newRequest(p.alice), p.move(10))) // it knows the owner: a batch looks up the key
	defer b.Hold(`SELECT FROM accounts FOR UPDATE`)()
	req.Fingerprint[0]++
	if reply, err := impatient.Transfer(t.Context(), req, p.move(10)); !errors.Is(err, idempotency.ErrKeyReused) {
		t.Errorf("%s, %v, want ErrKeyReused", reply.Body, err)
	}
}

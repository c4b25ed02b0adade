// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"errors"
	"net"
	"testing"

	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/servertest"
)

// The COMMIT of the first transaction never arrives, and meanwhile another request takes the key. Then the first one
// certainly had no effect, and never will have: that is an answer, and not an unknown outcome.
func TestCommit_ThatNeverArrivedIsDecidedByAnotherRequestWithItsKey(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	db, e, p := d.behindProxy(nil)
	req := newRequest()
	other := req
	other.Fingerprint[0]++
	lost, _ := servertest.Nth(3, func(_ []byte, client, server net.Conn) bool {
		p.OnRequest(nil)
		server.Close() // rolls back: the row is free for the other request
		if _, err := d.Do(t.Context(), other, raise(other, "a")); err != nil {
			t.Error(err)
		}
		client.Close()
		return false
	})
	p.OnRequest(lost)
	if reply, err := db.Do(t.Context(), req, raise(req, "a")); !errors.Is(err, idempotency.ErrKeyReused) {
		t.Errorf("%+v, %v, want ErrKeyReused", reply, err)
	}
	if a, r := e.Of(pgtx.Ambiguous), e.Of(pgtx.Resolved); a != 1 || r != 1 {
		t.Errorf("%d ambiguous, %d resolved, want 1 and 1", a, r)
	}
	d.want(1)
}

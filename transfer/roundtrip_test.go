// SPDX-License-Identifier: MIT

package transfer_test

import (
	"bytes"
	"net"
	"sync/atomic"
	"testing"

	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/servertest"
	"shop/transfer"
)

// A proxy counts the round trips to PostgreSQL of one transfer, the lookup of the key
// included. The rows are locked for the last one only.
func TestTransfer_RoundTrips(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[string]int64{
		"naive": 3, "etcd-unfenced": 3, "etcd-fence-only": 3, "lease-id-fence": 4, "row": 3, "serializable": 3, "etcd-fenced": 3,
	} {
		b := open(t, transfer.Config{Strategy: strategy})
		p := b.pair(100, 0)
		px, through := servertest.ProxyURL(t, b.URL)
		var syncs atomic.Int64 // Sync messages: each ends a round trip
		px.OnRequest(func(b []byte, _, _ net.Conn) bool {
			if bytes.HasSuffix(b, []byte("S\x00\x00\x00\x04")) {
				syncs.Add(1)
			}
			return true
		})
		cfg := b.cfg
		cfg.Pool = pgtest.Pool(t, through)
		client, _ := b.another(cfg)
		got := int64(0)
		for range 2 { // the first prepares the statements
			before := syncs.Load()
			b.transferred(client.Transfer(t.Context(), newRequest(p.alice), p.move(1)))
			got = syncs.Load() - before
		}
		if got != want {
			t.Errorf("%s: %d round trips, want %d", strategy, got, want)
		}
	}
}

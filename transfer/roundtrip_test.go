package transfer_test

import (
	"testing"

	"shop/transfer"
)

// What a transfer costs in round trips to PostgreSQL, as a proxy counts them,
// the look at the key included. The rows are locked for the last one only.
func TestTransfer_RoundTrips(t *testing.T) {
	t.Parallel()
	for strategy, want := range map[string]int{
		"naive": 3, "etcd-unfenced": 3, "etcd-fence-only": 3, "lease-id-fence": 4, "row": 3, "serializable": 3, "etcd-fenced": 3,
	} {
		b := open(t, transfer.Config{Strategy: strategy})
		p := b.pair(100, 0)
		px := newProxy(t, b.url)
		cfg := b.cfg
		cfg.Pool = newPool(t, px.url)
		client, _ := b.another(cfg)
		got := 0
		for range 2 { // the first prepares the statements
			before := px.roundTrips()
			b.transferred(client.Transfer(t.Context(), ask(p.alice), p.move(1)))
			got = px.roundTrips() - before
		}
		if got != want {
			t.Errorf("%s: %d round trips, want %d", strategy, got, want)
		}
	}
}

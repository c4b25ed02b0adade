// SPDX-License-Identifier: MIT

package transfer_test

import (
	"fmt"
	"testing"
	"time"

	"shop/locking/idempotency/pgtx"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/transfer"
)

// setClock sets the database's clock, as the bank's Service sees it, ahead.
func (b *bank) setClock(ahead time.Duration) {
	b.T.Helper()
	for _, clock := range []string{"clock_timestamp", "now"} {
		_, err := b.Pool.Exec(b.T.Context(), fmt.Sprintf(`
			CREATE OR REPLACE FUNCTION %[1]s() RETURNS timestamptz LANGUAGE sql VOLATILE
			AS $$ SELECT pg_catalog.%[1]s() + interval '%[2]d seconds' $$`, clock, int(ahead.Seconds())))
		if err != nil {
			b.T.Fatal(err)
		}
	}
}

// The database's clock alone decides whether a hold is in time and a key is old, since the
// clocks of the servers differ. Here it is days ahead of the process's clock.
func TestClock_IsTheDatabases(t *testing.T) {
	t.Parallel()
	for _, strategy := range safe() {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			b := open(t, transfer.Config{Strategy: strategy})
			p := b.pair(100, 0)
			cfg := b.cfg
			cfg.Pool = pgtest.Pool(t, b.URL, "search_path="+b.schema()+",pg_catalog") // the schema's functions first
			b.cfg = cfg
			b.Service, b.events = b.another(cfg)

			const day = 24 * time.Hour
			b.setClock(10 * day)
			first := time.Now().Add(9 * day)
			post, void, late, swept := b.reserve(p, 1, time.Hour), b.reserve(p, 2, time.Hour), b.reserve(p, 3, time.Hour), b.reserve(p, 4, time.Hour)
			posted := b.transferred(b.Post(t.Context(), newRequest(p.alice), post.ID, 0))
			voided := b.transferred(b.Void(t.Context(), newRequest(p.alice), void.ID))
			for _, at := range []time.Time{post.CreatedAt, *post.ExpiresAt, *posted.EndedAt, *voided.EndedAt} {
				if at.Before(first) {
					t.Errorf("%v is by the clock of this process", at)
				}
			}
			b.setClock(11 * day)
			if reply, err := b.Post(t.Context(), newRequest(p.alice), late.ID, 0); err != nil || !isRefused(reply) {
				t.Errorf("a post after its hold has expired: %s, %v", reply.Body, err)
			}
			if n, err := b.Sweep(t.Context()); n != 1 || err != nil || b.state(swept.ID) != transfer.Expired {
				t.Errorf("swept %d, %v, want 1", n, err)
			}
			b.mustHave(p.a, 99, 0)
			b.mustHold()
			keys := b.Number(`SELECT count(*) FROM idempotency_keys`)
			if n, err := pgtx.Purge(t.Context(), cfg.Pool, day); n != keys || err != nil {
				t.Errorf("purged %d of %d keys, %v: they are days old", n, keys, err)
			}
		})
	}
}

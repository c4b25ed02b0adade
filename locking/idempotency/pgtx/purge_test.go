// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"testing"

	"shop/locking/idempotency/pgtx"
)

// Two purges share the work: what one has locked, the other leaves out.
func TestPurge_WaitsForNoKeyThatAnotherPurgeDeletes(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, nil)
	d.Exec(`
		INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body, created_at)
		SELECT gen_random_uuid(), n::text, decode(repeat('00', 32), 'hex'), 201, '', now() - interval '25 hours'
		FROM generate_series(1, 3) AS n`)
	release := d.Hold(`DELETE FROM idempotency_keys WHERE key = '1'`) // the other purge, before its COMMIT
	if n, err := pgtx.Purge(t.Context(), d.Pool, pgtx.KeysKept); n != 2 || err != nil {
		t.Errorf("purged %d, %v, want the 2 that are free", n, err)
	}
	release()
	if n, err := pgtx.Purge(t.Context(), d.Pool, pgtx.KeysKept); n != 1 || err != nil {
		t.Errorf("purged %d, %v, want the last one", n, err)
	}
}

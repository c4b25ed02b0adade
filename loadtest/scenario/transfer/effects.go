// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/judge"
	"shop/loadtest/linear"
	"shop/loadtest/traffic"
)

// effectsSQL lists payments, holds, posts and voids by their idempotency key. The service reads the
// times under the locks of both accounts, so they are in the order of the writes.
const effectsSQL = `
SELECT client_id, idempotency_key, jsonb_build_object('id', id), (extract(epoch FROM created_at) * 1000000)::bigint
FROM transfers
UNION ALL
SELECT k.client_id, k.key, jsonb_build_object('id', t.id), (extract(epoch FROM t.ended_at) * 1000000)::bigint
FROM (SELECT client_id, key, encode(body, 'escape') AS answer
      FROM idempotency_keys
      WHERE status = 201) k
JOIN transfers t ON t.id = substring(k.answer FROM '"id":"([0-9a-f-]{36})"')::uuid
WHERE t.ended_at IS NOT NULL AND k.answer ~ '"state":"(posted|voided)"' AND (t.client_id, t.idempotency_key) <> (k.client_id, k.key)`

// expiredSQL lists the holds that the service expired.
const expiredSQL = `
SELECT idempotency_key, id, from_id, to_id, (extract(epoch FROM ended_at) * 1000000)::bigint
FROM transfers
WHERE state = 'expired'
ORDER BY ended_at`

// effects reads the effects of all keys, and the service's own operations, from the database.
func effects(ctx context.Context, conn *pgx.Conn, a *loadtest.Audited) (err error) {
	if a.Effects, err = judge.StoredSQL(ctx, conn, effectsSQL); err != nil {
		return err
	}
	var (
		key          string
		id, from, to uuid.UUID
		order        int64
	)
	rows, _ := conn.Query(ctx, expiredSQL)
	_, err = pgx.ForEachRow(rows, []any{&key, &id, &from, &to, &order}, func() error {
		a.Own = append(a.Own, linear.Operation{
			Client: linear.Service, Key: "expire-" + key, Action: string(Expire), Outcome: string(traffic.Unknown),
			Effect: linear.Yes, Stored: traffic.Encode(map[string]uuid.UUID{"id": id}), Order: order,
			Objects: []string{from.String(), to.String()},
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("audit: expired holds: %w", err)
	}
	return nil
}

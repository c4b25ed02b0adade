// SPDX-License-Identifier: MIT

package inventory

// effectsSQL lists purchases and cancellations by their idempotency key. Movements are written
// under the row locks of their products, so their ids are in the order of the effects.
const effectsSQL = `
SELECT o.client_id, o.idempotency_key, jsonb_build_object('id', o.id), min(m.id)
FROM orders o
JOIN stock_movements m ON m.order_id = o.id AND m.kind = 'sale'
GROUP BY o.id
UNION ALL
SELECT k.client_id, k.key, jsonb_build_object('id', k.id), min(m.id)
FROM (SELECT client_id, key, substring(encode(body, 'escape') FROM '"id":"([0-9a-f-]{36})","status":"cancelled"')::uuid AS id
      FROM idempotency_keys
      WHERE status = 201) k
JOIN stock_movements m ON m.order_id = k.id AND m.kind = 'cancel'
GROUP BY k.client_id, k.key, k.id`

package pgtx

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/idempotency"
)

// KeysKept is the shortest time for which a reply must be replayable.
const KeysKept = 24 * time.Hour

// InsertKey is the statement that stores a key with its reply. Its first two
// parameters are the client and the key: faults recognise it in what a server is sent.
const InsertKey = `
	INSERT INTO idempotency_keys (client_id, key, fingerprint, status, body)
	VALUES ($1, $2, $3, $4, $5)`

// Lookup finds the reply that is stored under the request's key. Found is a fact.
// Not found proves nothing: the first request may be committing at this moment.
// So a Lookup may replay, and decides nothing else.
//
// The statements of more are sent in the same round trip: what else is to be
// known before a request waits for a lock. See Alongside.
func (db *DB) Lookup(ctx context.Context, req idempotency.Request, more ...*pgx.QueuedQuery) (reply idempotency.Reply, found bool, err error) {
	type row struct {
		Fingerprint []byte
		Status      int
		Body        []byte
	}
	// No lock: a reply is complete from the moment it is visible, and never changes.
	stored, rows := Alongside[row](`
		SELECT fingerprint, status, body
		FROM idempotency_keys
		WHERE client_id = $1 AND key = $2`, req.Client, req.Key)
	err = db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{}
		for _, q := range append(more, stored) {
			batch.Queue(q.SQL, q.Arguments...).Fn = q.Fn
		}
		return conn.SendBatch(ctx, batch).Close()
	})
	switch {
	case err != nil:
		return idempotency.Reply{}, false, fmt.Errorf("pgtx: look up the key: %w", err)
	case len(*rows) == 0:
		return idempotency.Reply{}, false, nil
	}
	first := (*rows)[0]
	if string(first.Fingerprint) != string(req.Fingerprint[:]) {
		return idempotency.Reply{}, false, idempotency.ErrKeyReused
	}
	return idempotency.Reply{Status: first.Status, Body: first.Body, Replayed: true}, true, nil
}

// insertKey queues the key with its reply. A plain INSERT: it waits for a
// transaction that inserts the same key, and if that one commits, 23505
// (unique_violation) ends the batch.
func (t *Tx) insertKey(reply idempotency.Reply) {
	body := reply.Body
	if body == nil {
		body = []byte{}
	}
	t.Exec(InsertKey, t.op.Client, t.op.Key, t.op.Fingerprint[:], reply.Status, body)
	t.key = t.queue[len(t.queue)-1]
}

// Purge deletes the keys older than olderThan, at least KeysKept, and returns how
// many. A key that is repeated after that is a new request. It deletes a thousand
// at a time, so that no statement is long and no request waits for it.
func Purge(ctx context.Context, pool *pgxpool.Pool, olderThan time.Duration) (purged int64, err error) {
	if olderThan < KeysKept {
		return 0, fmt.Errorf("pgtx: purge: keys are kept at least %v", KeysKept)
	}
	for {
		n, err := purgePage(ctx, pool, olderThan)
		if err != nil {
			return purged, fmt.Errorf("pgtx: purge keys: %w", err)
		}
		if purged += n; n == 0 {
			return purged, nil
		}
	}
}

func purgePage(ctx context.Context, pool *pgxpool.Pool, olderThan time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, Limit) // a silent server has no statement_timeout
	defer cancel()
	// SKIP LOCKED: two purges share the work instead of waiting for each other.
	tag, err := pool.Exec(ctx, `
		DELETE FROM idempotency_keys
		WHERE (client_id, key) IN (
			SELECT client_id, key
			FROM idempotency_keys
			WHERE created_at < now() - $1::interval
			ORDER BY created_at
			LIMIT 1000
			FOR UPDATE SKIP LOCKED)`, olderThan)
	return tag.RowsAffected(), err
}

package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

// KeysKept is the shortest time for which an answer must be replayable.
const KeysKept = 24 * time.Hour

// replay is look at the start of a request, patient with connections that broke.
func (s *Service) replay(ctx context.Context, req Request) (reply Reply, found bool, err error) {
	for try := 0; try < attemptsMax; try++ {
		if err := pause(ctx, try); err != nil {
			return Reply{}, false, err
		}
		if reply, found, err = s.look(ctx, req); !errors.Is(err, errLostConn) {
			return reply, found, err
		}
	}
	return Reply{}, false, exhausted(err)
}

// look finds the answer that was stored under the request's key. Found is a
// fact; not found proves nothing: the first may be committing right now. So it
// replays, and decides nothing else.
func (s *Service) look(ctx context.Context, req Request) (reply Reply, found bool, err error) {
	conn, err := s.connection(ctx)
	if err != nil {
		return Reply{}, false, err
	}
	defer conn.Release()
	var fingerprint []byte
	// A plain read, no lock: an answer is complete from the moment it is visible, and never changes.
	err = conn.QueryRow(ctx, `
		SELECT fingerprint, status, body
		FROM order_keys
		WHERE client_id = $1 AND key = $2`, req.Client, req.Key).Scan(&fingerprint, &reply.Status, &reply.Body)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Reply{}, false, nil
	case err != nil && ctx.Err() != nil:
		return Reply{}, false, context.Cause(ctx)
	case conn.Conn().IsClosed():
		return Reply{}, false, fmt.Errorf("%w: %w", errLostConn, err)
	case isOverload(err):
		return Reply{}, false, fmt.Errorf("%w: inventory: look key up: %w", locking.ErrBusy, err)
	case err != nil:
		return Reply{}, false, fmt.Errorf("inventory: look key up: %w", err)
	case string(fingerprint) != string(req.Fingerprint[:]):
		return Reply{}, false, ErrKeyReused
	}
	reply.Replayed = true
	return reply, true, nil
}

// storeReply queues the key with its answer, into the transaction of the
// effect. A plain INSERT: if someone else is inserting the same key it waits
// for him to end; if he committed, 23505 stops the whole pipeline, COMMIT included.
func (t *tx) storeReply(in *intent, reply Reply) {
	t.keyAt = t.batch.Len()
	t.exec(`
		INSERT INTO order_keys (client_id, key, fingerprint, status, body)
		VALUES ($1, $2, $3, $4, $5)`,
		in.req.Client, in.req.Key, in.req.Fingerprint[:], reply.Status, nonNil(reply.Body))
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Purge forgets the answers older than olderThan, at least KeysKept, and says
// how many. A key that comes back after that is a new request. It deletes in
// small bites, so that no statement is long and no purchase waits.
func Purge(ctx context.Context, pool *pgxpool.Pool, olderThan time.Duration) (int64, error) {
	if olderThan < KeysKept {
		return 0, fmt.Errorf("%w: keys are kept at least %v", ErrInvalid, KeysKept)
	}
	for purged := int64(0); ; {
		n, err := purgeSome(ctx, pool, olderThan)
		if err != nil {
			return purged, fmt.Errorf("inventory: purge keys: %w", err)
		}
		purged += n
		if n == 0 {
			return purged, nil
		}
	}
}

// purgeSome is one bite.
func purgeSome(ctx context.Context, pool *pgxpool.Pool, olderThan time.Duration) (int64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	// SKIP LOCKED: two purges share the work instead of waiting for each other.
	tag, err := pool.Exec(ctx, `
		DELETE FROM order_keys
		WHERE (client_id, key) IN (
			SELECT client_id, key
			FROM order_keys
			WHERE created_at < now() - $1::interval
			ORDER BY created_at
			LIMIT 1000
			FOR UPDATE SKIP LOCKED)`, olderThan)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return tag.RowsAffected(), err
}

package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
)

// KeysKept is the shortest time for which an answer must be replayable.
const KeysKept = 24 * time.Hour

// replay is look at the start of a request. from is the account that is to pay;
// uuid.Nil: it is not known yet. A stranger's request ends here, before it stands
// in a queue with the owner's: the owner of an account never changes.
func (s *Service) replay(ctx context.Context, req Request, from uuid.UUID) (reply Reply, found bool, err error) {
	err = patiently(ctx, func() error {
		reply, found, err = s.look(ctx, req, from)
		return err
	})
	return reply, found, err
}

// patiently repeats a read while the connections that it gets are broken ones.
func patiently(ctx context.Context, read func() error) (err error) {
	for try := 0; try < attemptsMax; try++ {
		if err := pause(ctx, try); err != nil {
			return err
		}
		if err = read(); !errors.Is(err, errLostConn) {
			return err
		}
	}
	return exhausted(err)
}

// look finds the answer that was stored under the request's key. Found is a
// fact; not found proves nothing: the first may be committing right now. So it
// replays, and decides nothing else, but whose from is.
func (s *Service) look(ctx context.Context, req Request, from uuid.UUID) (reply Reply, found bool, err error) {
	ctx, cancel := answerIn(ctx)
	defer cancel()
	conn, err := s.connection(ctx)
	if err != nil {
		return Reply{}, false, err
	}
	defer conn.Release()
	var (
		fingerprint []byte     // nil: no such key
		owner       *uuid.UUID // nil: no such account
	)
	// A plain read, no lock: an answer is complete from the moment it is visible, and never changes.
	err = conn.QueryRow(ctx, `
		SELECT k.fingerprint, COALESCE(k.status, 0), k.body, a.owner_id
		FROM (SELECT $1::uuid AS client_id, $2::text AS key) r
		LEFT JOIN transfer_keys k USING (client_id, key)
		LEFT JOIN accounts a ON a.id = $3`, req.Client, req.Key, from).Scan(&fingerprint, &reply.Status, &reply.Body, &owner)
	switch {
	case err != nil && ctx.Err() != nil:
		return Reply{}, false, context.Cause(ctx)
	case conn.Conn().IsClosed():
		return Reply{}, false, fmt.Errorf("%w: %w", errLostConn, err)
	case isOverload(err):
		return Reply{}, false, fmt.Errorf("%w: transfer: look key up: %w", locking.ErrBusy, err)
	case err != nil:
		return Reply{}, false, fmt.Errorf("transfer: look key up: %w", err)
	case fingerprint == nil && from == uuid.Nil:
		return Reply{}, false, nil
	case fingerprint == nil:
		return Reply{}, false, mayPay(req, from, owner)
	case string(fingerprint) != string(req.Fingerprint[:]):
		return Reply{}, false, ErrKeyReused
	}
	reply.Replayed = true
	return reply, true, nil
}

// storeReply queues the key with its answer, into the transaction of the
// effect. A plain INSERT: if someone else is inserting the same key it waits
// for him to end; if he committed, 23505 stops the whole pipeline, COMMIT included.
// A job that nobody asked for (a sweep) has no key.
func (t *tx) storeReply(ctx context.Context, j *job, reply Reply) error {
	if j.req.Key == "" {
		return nil
	}
	t.keyAt = t.batch.Len()
	t.exec(`
		INSERT INTO transfer_keys (client_id, key, fingerprint, status, body)
		VALUES ($1, $2, $3, $4, $5)`,
		j.req.Client, j.req.Key, j.req.Fingerprint[:], reply.Status, nonNil(reply.Body))
	return t.step(ctx, AfterKey)
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Purge forgets the answers older than olderThan, at least KeysKept, and says
// how many. A key that comes back after that is a new request. It deletes in
// small bites, so that no statement is long and no transfer waits.
func Purge(ctx context.Context, pool *pgxpool.Pool, olderThan time.Duration) (int64, error) {
	if olderThan < KeysKept {
		return 0, fmt.Errorf("%w: keys are kept at least %v", ErrInvalid, KeysKept)
	}
	for purged := int64(0); ; {
		n, err := purgeSome(ctx, pool, olderThan)
		if err != nil {
			return purged, fmt.Errorf("transfer: purge keys: %w", err)
		}
		purged += n
		if n == 0 {
			return purged, nil
		}
	}
}

func purgeSome(ctx context.Context, pool *pgxpool.Pool, olderThan time.Duration) (int64, error) {
	ctx, cancel := answerIn(ctx)
	defer cancel()
	// SKIP LOCKED: two purges share the work instead of waiting for each other.
	tag, err := pool.Exec(ctx, `
		DELETE FROM transfer_keys
		WHERE (client_id, key) IN (
			SELECT client_id, key
			FROM transfer_keys
			WHERE created_at < now() - $1::interval
			ORDER BY created_at
			LIMIT 1000
			FOR UPDATE SKIP LOCKED)`, olderThan)
	return tag.RowsAffected(), endOf(ctx, err)
}

package mysqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"shop/locking"
)

// A free key that has a row is taken, and its lease released, by one statement, without the cost of a procedure. Each is a
// transaction of its own. If it changes no row, the procedures find out why. It changes none in a session without
// autocommit: there it would be the begin of a transaction.
const (
	// The TTL counts from before a wait for the row; so does Until. The driver returns the argument of LAST_INSERT_ID.
	takeOne = `
		UPDATE locks
		SET fence = LAST_INSERT_ID(GREATEST(fence + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))),
		    owner = x'%[2]x', expires = UTC_TIMESTAMP(6) + INTERVAL %[3]d MICROSECOND
		WHERE name = x'%[1]x' AND expires <= UTC_TIMESTAMP(6) AND @@autocommit`
	// A lease is released, and the next one made.
	passOne = `
		UPDATE locks
		SET fence = LAST_INSERT_ID(GREATEST(fence + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))),
		    owner = x'%[1]x', expires = UTC_TIMESTAMP(6) + INTERVAL %[2]d MICROSECOND
		WHERE name = x'%[3]x' AND owner = x'%[4]x' AND fence = %[5]d AND expires > UTC_TIMESTAMP(6) AND @@autocommit`
	freeOne = `
		UPDATE locks SET owner = '', expires = '1970-01-01 00:00:00'
		WHERE name = x'%[1]x' AND owner = x'%[2]x' AND fence = %[3]d AND expires > UTC_TIMESTAMP(6) AND @@autocommit`
)

// grant takes all keys for owner, or none, and returns the fence. It is 0 if another owner holds one of them.
func (s *Store) grant(ctx context.Context, keys []string, owner string) (fence int64, err error) {
	if len(keys) == 1 {
		taken, fence, err := s.update(ctx, fmt.Sprintf(s.takeOne, keys[0], owner, s.ttl.Microseconds()))
		if err != nil || taken {
			return fence, err
		}
	}
	return s.call(ctx, "locks_acquire", names(keys), owner, s.ttl.Microseconds())
}

// free releases the keys of l, and returns how many of them l held.
func (s *Store) free(ctx context.Context, l locking.Lease) (held int64, err error) {
	if len(l.Keys) == 1 {
		freed, _, err := s.update(ctx, fmt.Sprintf(s.freeOne, l.Keys[0], l.Owner, int64(l.Fence)))
		if err != nil || freed {
			return 1, err
		}
	}
	return s.call(ctx, "locks_release", names(l.Keys), l.Owner, int64(l.Fence))
}

// pass ends l, and makes a lease for the next request of this process. It returns locking.ErrLost if it has done neither.
func (s *Store) pass(ctx context.Context, l locking.Lease) (locking.Lease, error) {
	owner, sent := rand.Text(), time.Now()
	passed, fence, err := s.update(ctx, fmt.Sprintf(s.passOne, owner, s.ttl.Microseconds(), l.Keys[0], l.Owner, int64(l.Fence)))
	switch {
	case errors.Is(err, locking.ErrOutcomeUnknown):
		old, next := s.removal(l.Keys, l.Owner), s.removal(l.Keys, owner)
		s.resolver.Abandon(func(ctx context.Context) error {
			if err := old(ctx); err != nil { // until then the request may still arrive
				return err
			}
			return next(ctx)
		})
	case err == nil && !passed:
		err = locking.ErrLost
	}
	return locking.Lease{Keys: l.Keys, Owner: owner, Fence: locking.Fence(fence), Until: sent.Add(s.trust)}, err
}

// update reports whether the statement changed a row, and returns the argument of its LAST_INSERT_ID.
func (s *Store) update(ctx context.Context, statement string) (changed bool, id int64, err error) {
	err = s.request(ctx, func(ctx context.Context, conn *sql.Conn) error {
		result, err := conn.ExecContext(ctx, statement)
		if err != nil {
			return err
		}
		rows, err := result.RowsAffected()
		if err != nil || rows == 0 {
			return err
		}
		changed = true
		id, err = result.LastInsertId()
		return err
	})
	return changed, id, err
}

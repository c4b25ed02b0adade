package pglock

import (
	"context"

	"shop/locking"
)

// A free key that has a row is taken, and its lease released, by one statement, without the cost of a function. Each is a
// transaction of its own. If it returns no row, the functions find out why.
const (
	// If a transaction that has just ended changed the row, PostgreSQL computes the update again from the new row, with a
	// new fence.
	takeOne = `
		UPDATE locks
		SET owner = $2, fence = nextval('locks_fence'), expires = clock_timestamp() + $3::interval, awaited = false
		WHERE key = $1 AND expires <= clock_timestamp()
		RETURNING fence`
	freeOne = `
		UPDATE locks SET owner = '', expires = '-infinity'
		WHERE key = $1 AND owner = $2 AND fence = $3 AND expires > clock_timestamp() AND NOT awaited
		RETURNING (set_config('synchronous_commit', 'off', true) = 'off')::integer`
)

// grant takes all keys for owner, or none, and returns the fence. It is 0 if another owner holds one of them. waits makes
// the release of a busy key notify.
func (s *Store) grant(ctx context.Context, keys []string, owner string, waits bool) (fence int64, err error) {
	if len(keys) == 1 && !waits { // a waiter most often finds a held key
		err = s.call(ctx, &fence, s.takeOne, keys[0], owner, s.ttl)
	}
	if err == nil && fence == 0 {
		err = s.call(ctx, &fence, `SELECT locks_acquire($1, $2, $3, $4)`, keys, owner, s.ttl, waits)
	}
	return fence, err
}

// free releases the keys of l, and returns how many of them l held. It does not wait until the disk, or a standby, has the
// release: a grant that follows waits for both. A server that crashes before may lose the release, and the lease ends by its TTL.
func (s *Store) free(ctx context.Context, l locking.Lease) (held int, err error) {
	if len(l.Keys) == 1 && s.queue.Len(l.Keys[0]) == 0 { // a waiter of this process wants a notification
		err = s.call(ctx, &held, s.freeOne, l.Keys[0], l.Owner, int64(l.Fence))
	}
	if err == nil && held == 0 {
		err = s.call(ctx, &held, `SELECT locks_release($1, $2, $3) FROM set_config('synchronous_commit', 'off', true)`, l.Keys, l.Owner, int64(l.Fence))
	}
	return held, err
}

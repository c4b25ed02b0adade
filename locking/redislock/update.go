// SPDX-License-Identifier: MIT

package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/driver"
)

// ErrConflict is returned by Update when another client has changed a key during each of
// its tries. Nothing was written.
var ErrConflict = errors.New("redislock: another client has changed a key during each try: nothing was written")

// UpdateOptions of Update. The zero value is usable.
type UpdateOptions struct {
	Tries   int             // how often fn runs at most; 0: 16
	Backoff locking.Backoff // between the tries
}

// Update changes keys without a lock. fn reads them through tx, and returns the commands
// that write; nil: nothing is to be written. Redis executes the commands all together, and
// only if no client has changed one of the keys since before fn has read them: WATCH,
// MULTI, EXEC. Otherwise fn runs again, so it must have no effect beside its result.
//
// It suits keys that rarely change. A try that meets a conflict is wasted, and the
// slowest fn meets the most: where many clients change one key, take a lock.
//
// If the answer to EXEC is lost, the error is locking.ErrOutcomeUnknown, and fn does not run
// again: the commands may have been executed. An error of a command itself (WRONGTYPE) is
// returned as it is; Redis does not undo the other commands. Names and keys are Redis'
// own: in a Cluster all must be in one slot, and so must all keys that the commands use.
func Update(ctx context.Context, client redis.UniversalClient, o UpdateOptions, keys []string, fn func(context.Context, *redis.Tx) (write func(redis.Pipeliner), err error)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("redislock: update %q: %w", keys, err)
		}
	}()
	if len(keys) == 0 {
		return fmt.Errorf("%w: none was given", locking.ErrKey)
	}
	tries := cmp.Or(o.Tries, 16)
	for n := range tries {
		if err = try(ctx, client, keys, fn); !errors.Is(err, redis.TxFailedErr) {
			return err
		}
		if n == tries-1 {
			break
		}
		select {
		case <-time.After(o.Backoff.Wait(n)):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrConflict, ctx.Err())
		}
	}
	return fmt.Errorf("%w (%d tries)", ErrConflict, tries)
}

// try runs fn once. The connection is the same from WATCH to EXEC.
func try(ctx context.Context, client redis.UniversalClient, keys []string, fn func(context.Context, *redis.Tx) (func(redis.Pipeliner), error)) error {
	return client.Watch(ctx, func(tx *redis.Tx) error {
		write, err := fn(ctx, tx)
		if err != nil || write == nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err() // nothing was sent
		}
		cmds, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { write(p); return nil })
		var reply redis.Error
		switch {
		case err == nil, errors.Is(err, redis.TxFailedErr):
			return err
		case !errors.As(err, &reply):
			// Not wrapped: before go-redis 9.20 a ClusterClient calls fn again if it finds a network error in this one.
			return driver.NoAnswer(ctx, errors.New(err.Error()))
		case errors.Is(err, redis.Nil):
			return failed(cmds)
		}
		return err
	}, keys...)
}

// failed returns the first error of commands that were executed. redis.Nil is an answer:
// GETSET of a key that did not exist.
func failed(cmds []redis.Cmder) error {
	for _, c := range cmds {
		if err := c.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}

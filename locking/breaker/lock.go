// SPDX-License-Identifier: MIT

package breaker

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"shop/locking"
)

// Lock returns a probe that acquires a lock of its own: a server that is full or read-only still answers a
// ping. ErrBusy counts as an answer, and so do the errors in answers.
func Lock(store locking.Store, answers ...error) func(context.Context) error {
	key, answers := "probe/"+uuid.NewString(), append(answers, locking.ErrBusy)
	return func(ctx context.Context) error {
		lease, err := store.TryAcquire(ctx, key)
		if err == nil {
			_ = store.Release(ctx, lease) // if it fails, the lock expires
		}
		if slices.ContainsFunc(answers, func(answer error) bool { return errors.Is(err, answer) }) {
			return nil
		}
		return err
	}
}

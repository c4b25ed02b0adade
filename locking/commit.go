// SPDX-License-Identifier: MIT

package locking

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Commit runs write on a ctx from Detach. If write fails after that ctx has ended,
// the error matches ErrOutcomeUnknown, and Do does not release the lease but lets it
// expire. write classifies every other error: a connection that broke during COMMIT is
// ErrOutcomeUnknown as well, a refusal by the server is not.
func Commit(ctx context.Context, limit time.Duration, write func(context.Context) error) error {
	detached, cancel, err := Detach(ctx, limit)
	if err != nil {
		return err
	}
	defer cancel()
	err = write(detached)
	if err != nil && detached.Err() != nil && !errors.Is(err, ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return err
}

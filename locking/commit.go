package locking

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Commit runs write on the ctx of Detach. If that ctx ends before write does,
// the error matches ErrOutcomeUnknown, so that Do leaves the lease to run out.
// Any other error is write's to classify: a connection that broke under a COMMIT
// is ErrOutcomeUnknown as well, a refusal by the server is not.
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

// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"testing"

	"shop/locking"
)

// The driver repeats a callback until its time-out. A request that is refused so often delays
// others.
func TestAttempt_IsBoundedAndTheLastIsNotRunAgain(t *testing.T) {
	t.Parallel()
	s := &Service{count: func(EventKind, string) {}}
	o, ran := &operation{}, 0
	for range attemptsMax + 5 {
		_, err := s.attempt(t.Context(), o, func(context.Context) (Reply, error) {
			ran++
			return Reply{}, nil
		})
		if err != nil && (hasLabel(err, "TransientTransactionError") || !errors.Is(toPublic(t.Context(), err), locking.ErrBusy)) {
			t.Errorf("%v, want ErrBusy, and no label that makes the driver retry", err)
		}
	}
	if ran != attemptsMax {
		t.Errorf("ran %d times, want %d", ran, attemptsMax)
	}
}

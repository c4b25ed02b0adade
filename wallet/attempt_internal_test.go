package wallet

import (
	"context"
	"errors"
	"testing"

	"shop/locking"
)

// The driver repeats a callback for as long as its time-out says. A request that is
// refused that often is in the way of others.
func TestAttempt_IsBoundedAndTheLastIsNotRunAgain(t *testing.T) {
	t.Parallel()
	s := &Service{count: func(EventKind, string) {}}
	j, ran := &job{}, 0
	for range attemptsMax + 5 {
		_, err := s.attempt(t.Context(), j, func(context.Context) (Reply, error) {
			ran++
			return Reply{}, nil
		})
		if err != nil && (hasLabel(err, "TransientTransactionError") || !errors.Is(toPublic(t.Context(), err), locking.ErrBusy)) {
			t.Errorf("%v, want busy, and no label that has it run again", err)
		}
	}
	if ran != attemptsMax {
		t.Errorf("ran %d times, want %d", ran, attemptsMax)
	}
}

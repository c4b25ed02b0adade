package locking_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

var one = []string{"account/42"}

func TestDo_RenewsEveryThirdOfTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, start := &script{}, time.Now()
		err := locking.Do(t.Context(), s, locking.Options{}, one, func(ctx context.Context, l locking.Lease) error {
			return work(ctx, 11*time.Second)
		})
		if err != nil {
			t.Errorf("got %v", err)
		}
		want := []time.Duration{2 * time.Second, 4 * time.Second, 6 * time.Second, 8 * time.Second, 10 * time.Second}
		if got := after(start, s.renewals); !slices.Equal(got, want) {
			t.Errorf("renewed at %v, want %v", got, want)
		}
		s.over(t, 1)
	})
}

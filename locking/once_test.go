// SPDX-License-Identifier: MIT

package locking_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"shop/locking"
)

// A hundred calls at once: one does the work, and the others find it done.
func TestOnce_OfManyCallsOneRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran, asked atomic.Int64
		var calls sync.WaitGroup
		store := newTable()
		for range 100 {
			calls.Go(func() {
				err := locking.Once(t.Context(), store, locking.Options{}, "report",
					func(context.Context) (bool, error) { asked.Add(1); return ran.Load() > 0, nil },
					func(context.Context, locking.Lease) error { time.Sleep(time.Second); ran.Add(1); return nil })
				if err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if ran.Load() != 1 || asked.Load() != 200 {
			t.Errorf("ran %d times, asked %d times; want 1 and 200", ran.Load(), asked.Load())
		}
	})
}

func TestOnce_TakesNoLockForWorkThatIsDone(t *testing.T) {
	err := locking.Once(t.Context(), nil, locking.Options{}, "report",
		func(context.Context) (bool, error) { return true, nil },
		func(context.Context, locking.Lease) error { t.Error("ran again"); return nil })
	if err != nil {
		t.Error(err)
	}
}

func TestOnce_WithNoWaitSkipsWhatAnotherHolderDoes(t *testing.T) {
	for name, store := range map[string]locking.Store{
		"a store":            &script{acquire: failing(0, 1, locking.ErrBusy)},
		"a store that waits": &queue{script: &script{acquire: failing(0, 1, locking.ErrBusy)}, err: errors.New("it waited")},
	} {
		t.Run(name, func(t *testing.T) {
			var kinds []locking.Kind
			o := locking.Options{NoWait: true, MaxWait: time.Minute, Observer: func(e locking.Event) { kinds = append(kinds, e.Kind) }}
			err := locking.Once(t.Context(), store, o, "report",
				func(context.Context) (bool, error) { return false, nil },
				func(context.Context, locking.Lease) error { t.Error("ran without the lock"); return nil })
			if !errors.Is(err, locking.ErrBusy) {
				t.Errorf("got %v, want ErrBusy", err)
			}
			if len(kinds) != 2 || kinds[0] != locking.Attempt || kinds[1] != locking.Busy {
				t.Errorf("events %v", kinds)
			}
		})
	}
}

func TestOnce_ReturnsTheErrorOfDone(t *testing.T) {
	for _, fails := range []int{1, 2} {
		asked := 0
		err := locking.Once(t.Context(), newTable(), locking.Options{}, "report",
			func(context.Context) (bool, error) {
				if asked++; asked == fails {
					return false, errDown
				}
				return false, nil
			},
			func(context.Context, locking.Lease) error {
				t.Error("ran, though it is unknown whether it is done")
				return nil
			})
		if !errors.Is(err, errDown) {
			t.Errorf("done fails at call %d: got %v", fails, err)
		}
	}
}

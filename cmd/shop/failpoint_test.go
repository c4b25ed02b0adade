package main

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"shop/inventory"
)

// pauses runs a failpoint n times on a clock that costs nothing.
func pauses(t *testing.T, text string, seed uint64, n int) (took []time.Duration) {
	t.Helper()
	var f failpoint
	if err := f.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h := hook([]failpoint{f}, seed)
		for range n {
			start := time.Now()
			h(t.Context(), f.step, "row")
			took = append(took, time.Since(start))
			other := time.Now()
			h(t.Context(), inventory.AfterCommit, "row")
			if time.Since(other) != 0 {
				t.Error("it happens at another step")
			}
		}
	})
	return took
}

func TestFailpoint_ExpIsExponentialAndComesFromItsSeed(t *testing.T) {
	const mean = 2 * time.Millisecond
	const n = 2000
	took := pauses(t, "after-guard=exp:2ms", 1, n)
	var sum time.Duration
	short := 0
	for _, d := range took {
		sum += d
		if d < mean*7/10 { // half of an exponential distribution lies below 0.69 of its mean
			short++
		}
	}
	if got := sum / n; got < mean*9/10 || got > mean*11/10 {
		t.Errorf("mean %v, want %v", got, mean)
	}
	if short < n*45/100 || short > n*55/100 {
		t.Errorf("%d of %d are short", short, n)
	}
	if !slices.Equal(took, pauses(t, "after-guard=exp:2ms", 1, n)) {
		t.Error("the same seed draws other pauses")
	}
	if slices.Equal(took, pauses(t, "after-guard=exp:2ms", 2, n)) {
		t.Error("another seed draws the same pauses")
	}
}

func TestFailpoint_SleepIsConstantAndEndsWithItsContext(t *testing.T) {
	if took := pauses(t, "before-commit=sleep:3s", 1, 1); took[0] != 3*time.Second {
		t.Errorf("slept %v", took[0])
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		hook([]failpoint{{step: inventory.AfterGuard, action: "sleep", pause: time.Hour}}, 1)(ctx, inventory.AfterGuard, "row")
		if took := time.Since(start); took != time.Second {
			t.Errorf("slept %v", took)
		}
	})
}

func TestFailpoint_NoneIsNil(t *testing.T) {
	if hook(nil, 1) != nil {
		t.Error("production pays for failpoints")
	}
}

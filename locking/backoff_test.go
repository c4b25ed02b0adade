// SPDX-License-Identifier: MIT

package locking_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"shop/locking"
)

// waits returns the waits after attempts 0 to n-1, where Rand always returns chance.
func waits(b locking.Backoff, chance float64, n int) (list []time.Duration) {
	b.Rand = func() float64 { return chance }
	for i := range n {
		list = append(list, b.Wait(i))
	}
	return list
}

func milliseconds(list ...int) (out []time.Duration) {
	for _, ms := range list {
		out = append(out, time.Duration(ms)*time.Millisecond)
	}
	return out
}

func TestBackoff_DoublesUpToMax(t *testing.T) {
	for name, c := range map[string]struct {
		backoff locking.Backoff
		want    []time.Duration
	}{
		"zero value":       {locking.Backoff{}, milliseconds(10, 20, 40, 80, 160, 320, 500, 500)},
		"negative is zero": {locking.Backoff{Base: -1, Max: -1}, milliseconds(10, 20, 40, 80, 160, 320, 500, 500)},
		"of the articles":  {locking.Backoff{Base: 100 * time.Millisecond, Max: time.Second}, milliseconds(100, 200, 400, 800, 1000, 1000)},
		"constant":         {locking.Backoff{Base: time.Millisecond, Max: time.Millisecond}, milliseconds(1, 1, 1)},
		"base above max":   {locking.Backoff{Base: time.Second, Max: time.Millisecond}, milliseconds(1, 1, 1)},
	} {
		if got := waits(c.backoff, 1, len(c.want)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestBackoff_IsHalfFixedAndHalfRandom(t *testing.T) {
	b := locking.Backoff{Base: 100 * time.Millisecond, Max: 400 * time.Millisecond}
	if got, want := waits(b, 0, 4), milliseconds(50, 100, 200, 200); !slices.Equal(got, want) {
		t.Errorf("shortest waits %v, want %v", got, want)
	}
	if got, want := waits(b, 0.5, 4), milliseconds(75, 150, 300, 300); !slices.Equal(got, want) {
		t.Errorf("middle waits %v, want %v", got, want)
	}
}

func TestBackoff_NeverOverflows(t *testing.T) {
	for _, b := range []locking.Backoff{{}, {Base: 1, Max: math.MaxInt64}, {Base: math.MaxInt64, Max: math.MaxInt64}, {Base: time.Hour, Max: 1}} {
		previous := time.Duration(0)
		for n := range 200 {
			wait := waits(b, 1, n+1)[n]
			if wait < previous || wait <= 0 {
				t.Fatalf("%+v: wait %v after attempt %d, %v before", b, wait, n, previous)
			}
			previous = wait
		}
	}
}

func TestBackoff_WithoutRandIsSpread(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		wait := locking.Backoff{}.Wait(10)
		if wait < 250*time.Millisecond || wait > 500*time.Millisecond {
			t.Fatalf("wait %v, want half of 500 ms to all of it", wait)
		}
		seen[wait] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d different waits among 100, want at least 50", len(seen))
	}
}

func TestBackoff_SameSeedSameWaits(t *testing.T) {
	series := func() (list []time.Duration) {
		b := locking.Backoff{Rand: rand.New(rand.NewPCG(1, 2)).Float64}
		for n := range 20 {
			list = append(list, b.Wait(n))
		}
		return list
	}
	if a, b := series(), series(); !slices.Equal(a, b) {
		t.Errorf("%v and %v", a, b)
	}
}

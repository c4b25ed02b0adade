// SPDX-License-Identifier: MIT

package locking

import (
	"math/rand/v2"
	"time"
)

// Backoff is exponential with jitter. The zero value is usable.
type Backoff struct {
	Base time.Duration  // ceiling of the first wait; 0: 10 ms
	Max  time.Duration  // ceiling of the longest wait; 0: 500 ms
	Rand func() float64 // in [0, 1), safe for concurrent use; nil: math/rand/v2. Tests set their own.
}

// Wait returns how long to wait after attempt n, counted from 0: between half of a
// ceiling and the whole of it. The ceiling doubles with each attempt, up to Max.
//
// Half of the wait is fixed, so that no wait is close to zero, and half is random, so
// that clients that collided once do not collide again. Backoff is not fair: the longer
// a client has waited, the more rarely it retries. Keep Max near the time for which the
// lock is usually held, or use a Store that is a Waiter.
func (b Backoff) Wait(n int) time.Duration {
	base, most := positive(b.Base, 10*time.Millisecond), positive(b.Max, 500*time.Millisecond)
	ceiling := most
	if n < 62 && base <= most>>n { // base<<n could overflow
		ceiling = base << n
	}
	random := b.Rand
	if random == nil {
		random = rand.Float64
	}
	fixed := ceiling / 2
	return fixed + time.Duration(random()*float64(ceiling-fixed))
}

// positive returns d, or otherwise if d is not positive.
func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

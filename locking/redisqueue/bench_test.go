// SPDX-License-Identifier: MIT

package redisqueue

import (
	"testing"
	"time"

	"shop/locking/locktest"
	"shop/locking/redislock/redistest"
)

// BenchmarkKind acquires and releases a free key of each kind of lock. BenchmarkUncontended of redislock has its peer.
func BenchmarkKind(b *testing.B) {
	for name, k := range kinds {
		b.Run(name, func(b *testing.B) {
			s, err := k.open(redistest.Shared(b), nil)(b).Open(time.Minute)
			if err != nil {
				b.Fatal(err)
			}
			once := locktest.HoldOnce(b, s, "k")
			for b.Loop() {
				if err := once(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// SPDX-License-Identifier: MIT

package redislock

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/redislock/redistest"
	"shop/locking/servertest"
)

// locker is what the benchmarks compare: a Store, and a minimal lock on Redis.
type locker interface {
	try(ctx context.Context, key string) (release func() error, err error)
}

// ours is a Store.
type ours struct{ *opened }

func (o ours) try(ctx context.Context, key string) (func() error, error) {
	lease, err := o.TryAcquire(ctx, key)
	return func() error { return o.Release(ctx, lease) }, err
}

// raw is SET NX PX and compare-and-delete: no fence, no Until, no lost answers.
type raw struct {
	*redis.Client
	prefix string
}

var rawRelease = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func (r raw) try(ctx context.Context, key string) (func() error, error) {
	owner, name := rand.Text(), r.prefix+key
	ok, err := r.SetNX(ctx, name, owner, time.Minute).Result()
	if err == nil && !ok {
		err = locking.ErrBusy
	}
	return func() error { return rawRelease.Run(ctx, r.Client, []string{name}, owner).Err() }, err
}

// rivals makes both lockers on one server, each with a connection for each of 64 goroutines.
func rivals(b *testing.B) (us, them locker) {
	b.Helper()
	prefix, pool := redistest.Prefix(b, redistest.URL(b)), redistest.URL(b)+"?pool_size=64"
	return ours{storeAt(b, pool, time.Minute, Options{Prefix: prefix})}, raw{connect(b, pool, time.Minute), prefix}
}

// BenchmarkUncontended acquires and releases a free key, in alternating series of a
// hundred with each locker, and reports the ratio of their times. Compare x-of-raw
// alone: the other figures depend on the machine.
func BenchmarkUncontended(b *testing.B) {
	us, them := rivals(b)
	turn := func(l locker) time.Duration {
		start := time.Now()
		for range 100 {
			release, err := l.try(b.Context(), "k")
			if err != nil {
				b.Fatal(err)
			}
			if err := release(); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start) / 100
	}
	turn(us)
	turn(them)
	var spentUs, spentThem time.Duration
	n := 0
	for b.Loop() {
		spentUs += turn(us)
		spentThem += turn(them)
		n++
	}
	b.ReportMetric(float64(spentUs.Microseconds())/float64(n), "us/redislock")
	b.ReportMetric(float64(spentThem.Microseconds())/float64(n), "us/raw")
	b.ReportMetric(float64(spentUs)/float64(spentThem), "x-of-raw")
}

// BenchmarkKind acquires and releases free keys on each kind of Redis.
func BenchmarkKind(b *testing.B) {
	keys := strings.Split("abcdefghijklmnop", "")
	for _, of := range []struct {
		name string
		keys []string
		on   func(testing.TB) redistest.Target
	}{
		{"single", keys[:1], redistest.Shared},
		{"single-4-keys", keys[:4], redistest.Shared},
		{"single-16-keys", keys, redistest.Shared},
		{"sentinel", keys[:1], first(redistest.Sentinels)},
		{"cluster", keys[:1], first(redistest.OneNode)},
	} {
		b.Run(of.name, func(b *testing.B) {
			s, err := target{Target: of.on(b)}.open(b).Open(time.Minute)
			if err != nil {
				b.Fatal(err)
			}
			repeat(b, locktest.HoldOnce(b, s, of.keys...))
		})
	}
}

func first(start func(testing.TB) (redistest.Target, *servertest.Server)) func(testing.TB) redistest.Target {
	return func(t testing.TB) redistest.Target { g, _ := start(t); return g }
}

// BenchmarkGuard runs a script with a guard, and the same script without.
func BenchmarkGuard(b *testing.B) {
	c, counter, guard := newGuarded(b)
	guarded, plain := NewGuard(add), redis.NewScript(add)
	for name, run := range map[string]func() error{
		"guarded": func() error { _, err := guarded.Run(b.Context(), c, guard, 1, []string{counter}, 1); return err },
		"plain":   func() error { return plain.Run(b.Context(), c, []string{counter}, 1).Err() },
	} {
		b.Run(name, func(b *testing.B) { repeat(b, run) })
	}
}

// repeat measures a request. The first one, which connects and loads the script, does not count.
func repeat(b *testing.B, request func() error) {
	b.Helper()
	err := request()
	for b.Loop() {
		err = errors.Join(err, request())
	}
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkHandoff lets 64 goroutines contend for one key and retry every millisecond,
// in alternating intervals of a quarter second with each locker. A request without an answer
// in time, on a busy machine, is no hand-off, and fails the benchmark only if there is no other.
func BenchmarkHandoff(b *testing.B) {
	us, them := rivals(b)
	const each = 250 * time.Millisecond
	handoffs := func(l locker) (n int64) {
		var all sync.WaitGroup
		var count atomic.Int64
		var failed atomic.Value
		ctx, cancel := context.WithTimeout(b.Context(), each)
		defer cancel()
		for range 64 {
			all.Go(func() {
				for ctx.Err() == nil {
					release, err := l.try(context.WithoutCancel(ctx), "k")
					switch {
					case err == nil:
						count.Add(1)
						err = release()
					case errors.Is(err, locking.ErrBusy):
						<-time.After(time.Millisecond)
						err = nil
					}
					if err != nil {
						failed.Store(err.Error())
					}
				}
			})
		}
		all.Wait()
		if count.Load() == 0 {
			b.Error("no hand-off: ", failed.Load())
		}
		return count.Load()
	}
	var sumUs, sumThem int64
	n := 0.0
	for b.Loop() {
		sumUs += handoffs(us)
		sumThem += handoffs(them)
		n++
	}
	b.ReportMetric(float64(sumUs)/n/each.Seconds(), "redislock/s")
	b.ReportMetric(float64(sumThem)/n/each.Seconds(), "raw/s")
	b.ReportMetric(float64(sumUs)/float64(sumThem), "x-of-raw")
}

// BenchmarkWait lets 64 goroutines wait for one key. It reports the hand-overs in a second, and how many those of the
// goroutine with the fewest are, in percent of those of the one with the most.
func BenchmarkWait(b *testing.B) {
	s := storeAt(b, redistest.URL(b)+"?pool_size=64", time.Minute, Options{Prefix: redistest.Prefix(b, redistest.URL(b))})
	counts, spent := make([]atomic.Int64, 64), time.Duration(0)
	for b.Loop() {
		start := time.Now()
		contend(b, s, counts, 250*time.Millisecond)
		spent += time.Since(start)
	}
	var sum int64
	fewest, most := counts[0].Load(), int64(1)
	for i := range counts {
		n := counts[i].Load()
		sum, fewest, most = sum+n, min(fewest, n), max(most, n)
	}
	if sum == 0 {
		b.Error("no hand-over")
	}
	b.ReportMetric(float64(sum)/spent.Seconds(), "handovers/s")
	b.ReportMetric(float64(100*fewest)/float64(most), "%fewest-of-most")
}

// contend counts the grants of each goroutine, for a while.
func contend(b *testing.B, s locking.Store, counts []atomic.Int64, d time.Duration) {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	var all sync.WaitGroup
	for i := range counts {
		all.Go(func() {
			for ctx.Err() == nil {
				lease, err := locking.Acquire(ctx, s, locking.Options{Backoff: locking.Backoff{Base: time.Millisecond, Max: time.Millisecond}}, "k")
				if err != nil {
					continue // ctx has ended, or no answer in time
				}
				counts[i].Add(1)
				if err := s.Release(b.Context(), lease); err != nil {
					b.Log(err)
				}
			}
		})
	}
	all.Wait()
}

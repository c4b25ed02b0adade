// SPDX-License-Identifier: MIT

package redislock

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/redislock/redistest"
	"shop/locking/servertest"
)

// counter is a number in Redis that is changed by a read and a write.
type counter struct {
	client redis.UniversalClient
	key    string
	runs   int           // of increment
	meet   func(run int) // between the read and the write; may be nil
}

func newCounter(t testing.TB) *counter {
	t.Helper()
	return &counter{client: connect(t, redistest.URL(t)+"?pool_size=64", time.Minute), key: redistest.Prefix(t, redistest.URL(t)) + "number"}
}

// increment is a function for Update.
func (c *counter) increment(ctx context.Context, tx *redis.Tx) (func(redis.Pipeliner), error) {
	n, err := tx.Get(ctx, c.key).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	if c.runs++; c.meet != nil {
		c.meet(c.runs)
	}
	return func(p redis.Pipeliner) { p.Set(ctx, c.key, n+1, 0) }, nil
}

func (c *counter) update(ctx context.Context, o UpdateOptions) error {
	return Update(ctx, c.client, o, []string{c.key}, c.increment)
}

func (c *counter) want(t *testing.T, n int) {
	t.Helper()
	if got, err := c.client.Get(t.Context(), c.key).Int(); err != nil || got != n {
		t.Errorf("the number is %d, %v, want %d", got, err, n)
	}
}

func TestUpdate_LosesNoUpdate(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			own := &counter{client: c.client, key: c.key}
			for range 10 {
				if err := own.update(t.Context(), UpdateOptions{Tries: 1000, Backoff: locking.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	c.want(t, 80)
}

// The control: without WATCH the same conflict loses an update.
func TestUpdate_WithoutWatchAnUpdateIsLost(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	c.meet = func(int) { c.client.Incr(t.Context(), c.key) }
	unwatched := func(ctx context.Context, tx *redis.Tx) (func(redis.Pipeliner), error) {
		defer tx.Unwatch(ctx)
		return c.increment(ctx, tx)
	}
	if err := Update(t.Context(), c.client, UpdateOptions{}, []string{c.key}, unwatched); err != nil {
		t.Fatal(err)
	}
	c.want(t, 1) // of two increments
}

func TestUpdate_RunsAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	c.meet = func(run int) {
		if run <= 2 {
			c.client.Incr(t.Context(), c.key)
		}
	}
	if err := c.update(t.Context(), UpdateOptions{}); err != nil || c.runs != 3 {
		t.Errorf("%d runs, %v, want the third to succeed", c.runs, err)
	}
	c.want(t, 3)
}

func TestUpdate_GivesUpAfterItsTries(t *testing.T) {
	t.Parallel()
	c := newCounter(t)
	c.meet = func(int) { c.client.Incr(t.Context(), c.key) }
	if err := c.update(t.Context(), UpdateOptions{Tries: 3, Backoff: locking.Backoff{Base: time.Millisecond}}); !errors.Is(err, ErrConflict) || c.runs != 3 {
		t.Errorf("%d runs, %v, want ErrConflict after 3", c.runs, err)
	}
	c.want(t, 3) // those of the other client

	ctx, cancel := context.WithCancel(t.Context())
	c.meet = func(int) { c.client.Incr(t.Context(), c.key); cancel() }
	if err := c.update(ctx, UpdateOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	c.want(t, 4)
}

// The answer to EXEC is lost: the commands were executed, once, and fn does not run again,
// even if the client retries by default.
func TestUpdate_LostAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"tuned": -1, "default": 0} {
		t.Run(name, func(t *testing.T) {
			p := servertest.NewFaults(t, redistest.Host(t, redistest.URL(t)), func(b []byte) bool { return bytes.Contains(b, []byte("multi")) })
			c := newCounter(t)
			direct := c.client
			o := Tune(&redis.Options{Addr: p.Addr}, time.Minute)
			o.MaxRetries = retries
			c.client = redis.NewClient(o)
			t.Cleanup(func() { _ = c.client.Close() })
			p.Lose(1)
			if err := c.update(t.Context(), UpdateOptions{}); !errors.Is(err, locking.ErrOutcomeUnknown) || c.runs != 1 {
				t.Errorf("%d runs, %v, want ErrOutcomeUnknown after 1", c.runs, err)
			}
			c.client = direct
			c.want(t, 1)
		})
	}
}

func TestUpdate_Errors(t *testing.T) {
	t.Parallel()
	c, failed := newCounter(t), errors.New("fn failed")
	run := func(write func(redis.Pipeliner), err error) error {
		return Update(t.Context(), c.client, UpdateOptions{}, []string{c.key}, func(context.Context, *redis.Tx) (func(redis.Pipeliner), error) { return write, err })
	}
	if err := run(nil, failed); !errors.Is(err, failed) {
		t.Errorf("got %v, want that of fn", err)
	}
	if err := run(nil, nil); err != nil {
		t.Errorf("nothing to write: %v", err)
	}
	if err := run(func(p redis.Pipeliner) { p.GetSet(t.Context(), c.key, "1") }, nil); err != nil {
		t.Errorf("the answer nil of a command that was executed: %v", err)
	}
	if err := run(func(p redis.Pipeliner) { p.Incr(t.Context(), c.key); p.LPush(t.Context(), c.key, "x") }, nil); !redis.HasErrorPrefix(err, "WRONGTYPE") {
		t.Errorf("got %v, want WRONGTYPE", err)
	}
	c.want(t, 2) // Redis does not undo the other command
	if err := Update(t.Context(), c.client, UpdateOptions{}, nil, c.increment); !errors.Is(err, locking.ErrKey) {
		t.Errorf("no keys: got %v, want ErrKey", err)
	}
}

// BenchmarkUpdate compares Update with each lock, while 1, 8 or 64 clients increment one number, with some work between the
// read and the write. Each iteration is a pair: both in turn, and the order alternates. x-of-lock is the median of the ratios
// of the pairs, above 1 if Update is faster; low and high leave out the smallest and the largest ratio. tries is how often
// Update read the number for each increment. For ten pairs: -benchtime 10x.
func BenchmarkUpdate(b *testing.B) {
	often := locking.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond}
	update := func(ctx context.Context, c *counter) error {
		return c.update(ctx, UpdateOptions{Tries: 1_000_000, Backoff: often})
	}
	for _, work := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} {
		for _, clients := range []int{1, 8, 64} {
			b.Run("work="+work.String()+"/"+strconv.Itoa(clients), func(b *testing.B) {
				s := storeAt(b, redistest.URL(b)+"?pool_size=64", time.Minute, Options{Prefix: redistest.Prefix(b, redistest.URL(b))})
				locked := func(ctx context.Context, c *counter) error {
					return locking.Do(ctx, s, locking.Options{Backoff: often}, []string{"k"}, func(ctx context.Context, _ locking.Lease) error {
						n, err := c.client.Get(ctx, c.key).Int()
						if err != nil && !errors.Is(err, redis.Nil) {
							return err
						}
						c.meet(0)
						return c.client.Set(ctx, c.key, n+1, 0).Err()
					})
				}
				comparePairs(b, clients, work, update, locked)
			})
		}
	}
}

// comparePairs reports how fast clients increment a number in two ways.
func comparePairs(b *testing.B, clients int, work time.Duration, update, locked func(context.Context, *counter) error) {
	increments := 256
	if work > 0 {
		increments = 128
	}
	c, turns := newCounter(b), 0
	type figures struct{ rate, p99, tries float64 }
	turn := func(increment func(context.Context, *counter) error) figures {
		var all sync.WaitGroup
		var mu sync.Mutex
		var took []float64 // of an increment, in ms
		runs, start := 0, time.Now()
		for range clients {
			all.Go(func() {
				own := &counter{client: c.client, key: c.key, meet: func(int) { time.Sleep(work) }}
				for range increments / clients {
					begun := time.Now()
					if err := increment(b.Context(), own); err != nil {
						b.Error(err)
						return
					}
					mu.Lock()
					took = append(took, float64(time.Since(begun).Microseconds())/1000)
					mu.Unlock()
				}
				mu.Lock()
				runs += own.runs
				mu.Unlock()
			})
		}
		all.Wait()
		turns++
		slices.Sort(took)
		return figures{float64(increments) / time.Since(start).Seconds(), took[len(took)*99/100], float64(runs) / float64(increments)}
	}
	var ratios []float64
	var each [2]struct{ rates, p99s, tries []float64 } // of update, and of the lock
	for pair := 0; b.Loop(); pair++ {
		var f [2]figures
		for _, n := range []int{pair % 2, 1 - pair%2} {
			f[n] = turn([]func(context.Context, *counter) error{update, locked}[n])
			each[n].rates, each[n].p99s, each[n].tries = append(each[n].rates, f[n].rate), append(each[n].p99s, f[n].p99), append(each[n].tries, f[n].tries)
		}
		ratios = append(ratios, f[0].rate/f[1].rate)
	}
	report := func(unit string, list []float64) {
		_, middle, _ := spread(list)
		b.ReportMetric(middle, unit)
	}
	report("update/s", each[0].rates)
	report("lock/s", each[1].rates)
	report("update-p99-ms", each[0].p99s)
	report("lock-p99-ms", each[1].p99s)
	report("tries", each[0].tries)
	low, middle, high := spread(ratios)
	b.ReportMetric(middle, "x-of-lock")
	b.ReportMetric(low, "low")
	b.ReportMetric(high, "high")
	b.ReportMetric(0, "ns/op") // the time of a pair says nothing
	if got := c.client.Get(b.Context(), c.key).Val(); got != strconv.Itoa(turns*increments) {
		b.Errorf("%d increments: the number is %s", turns*increments, got)
	}
}

// spread returns the median, and the range without the smallest and the largest, if there are at least three.
func spread(list []float64) (low, median, high float64) {
	slices.Sort(list)
	n := len(list)
	cut := min(1, (n-1)/2)
	return list[cut], (list[(n-1)/2] + list[n/2]) / 2, list[n-1-cut]
}

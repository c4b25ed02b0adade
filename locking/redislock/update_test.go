package redislock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
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
	return &counter{client: connect(t, redisURL(t)+"?pool_size=64", time.Minute), key: newPrefix(t, redisURL(t)) + "number"}
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
			p := locktest.NewFaults(t, hostOf(t, redisURL(t)), func(b []byte) bool { return bytes.Contains(b, []byte("multi")) })
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

// BenchmarkUpdate increments one number by 1, 8 and 64 clients, by Update, under a Store
// and under a Waiter, and reports how many increments a second each makes.
func BenchmarkUpdate(b *testing.B) {
	often := locking.Options{Backoff: locking.Backoff{Base: time.Millisecond, Max: 5 * time.Millisecond}}
	for _, clients := range []int{1, 8, 64} {
		ways := map[string]func(*counter) error{}
		add := func(name string, s locking.Store) {
			ways[name] = func(c *counter) error {
				return locking.Do(b.Context(), s, often, []string{"k"}, func(ctx context.Context, _ locking.Lease) error {
					n, _ := c.client.Get(ctx, c.key).Int()
					return c.client.Set(ctx, c.key, n+1, 0).Err()
				})
			}
		}
		ways["update"] = func(c *counter) error {
			return c.update(b.Context(), UpdateOptions{Tries: 1_000_000, Backoff: often.Backoff})
		}
		for _, way := range []string{"update", "store", "waiter", "fair"} {
			b.Run(fmt.Sprintf("%s/%d", way, clients), func(b *testing.B) {
				if way == "store" {
					add(way, storeAt(b, redisURL(b)+"?pool_size=64", time.Minute, Options{Prefix: newPrefix(b, redisURL(b))}))
				} else if open := kinds[way]; open != nil {
					s, err := open(connect(b, redisURL(b)+"?pool_size=64", time.Minute), time.Minute, Options{Prefix: newPrefix(b, redisURL(b))})
					if err != nil {
						b.Fatal(err)
					}
					b.Cleanup(s.Close)
					add(way, s)
				}
				benchmarkIncrements(b, clients, ways[way])
			})
		}
	}
}

func benchmarkIncrements(b *testing.B, clients int, increment func(*counter) error) {
	const each = 4
	c, rounds := newCounter(b), 0
	for b.Loop() {
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				own := &counter{client: c.client, key: c.key}
				for range each {
					if err := increment(own); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		rounds++
	}
	b.ReportMetric(float64(rounds*clients*each)/b.Elapsed().Seconds(), "increments/s")
	if got := c.client.Get(b.Context(), c.key).Val(); got != strconv.Itoa(rounds*clients*each) {
		b.Errorf("%d increments: the number is %s", rounds*clients*each, got)
	}
}

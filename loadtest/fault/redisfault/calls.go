package redisfault

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"shop/loadtest/fault"

	"github.com/redis/go-redis/v9"
)

// Calls counts what the clients of a server ask of it to take or give back locks, as the
// server counts it (INFO commandstats): scripts, and SET. A lock that talks to no Redis is
// found out so, whatever it says of itself.
//
// A server that is killed forgets its counts. They are read often, and what was asked
// since the last time before a kill is lost; that is less than there was.
type Calls struct {
	client redis.UniversalClient
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	life  string // run_id of the server
	lives int
	last  int64 // in this life
	total int64 // in all lives
}

const callsEvery = 50 * time.Millisecond

// CountCalls begins to count.
func CountCalls(ctx context.Context, client redis.UniversalClient) (*Calls, error) {
	c := &Calls{client: client}
	if err := c.read(ctx); err != nil {
		return nil, err
	}
	c.total = 0
	ctx, c.stop = context.WithCancel(ctx)
	c.work.Go(func() {
		for fault.Wait(ctx, callsEvery) {
			_ = c.read(ctx) // it may be down
		}
	})
	return c, nil
}

// Stop counts for the last time: all calls since the beginning, and those of a server that
// was started meanwhile.
func (c *Calls) Stop(ctx context.Context) (all, after int64, err error) {
	c.stop()
	c.work.Wait()
	if err := c.read(ctx); err != nil {
		return 0, 0, err
	}
	if c.lives > 1 {
		after = c.last
	}
	return c.total, after, nil
}

func (c *Calls) read(ctx context.Context) error {
	info, err := c.client.Info(ctx, "all").Result()
	if err != nil {
		return fmt.Errorf("calls of redis: %w", err)
	}
	life, calls := callsIn(info)
	c.mu.Lock()
	defer c.mu.Unlock()
	if life != c.life {
		c.life, c.last = life, 0
		c.lives++
	}
	c.total, c.last = c.total+calls-c.last, calls
	return nil
}

// locking are the commands that take a lock or give it back.
var locking = []string{"eval", "evalsha", "fcall", "set"}

// callsIn reads the answer of INFO.
func callsIn(info string) (life string, calls int64) {
	for line := range strings.Lines(info) {
		line = strings.TrimSpace(line)
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			life = id
		}
		for _, command := range locking {
			if counts, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
				number, _, _ := strings.Cut(counts, ",")
				n, _ := strconv.ParseInt(number, 10, 64)
				calls += n
			}
		}
	}
	return life, calls
}

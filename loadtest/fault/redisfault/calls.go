// SPDX-License-Identifier: MIT

package redisfault

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"shop/loadtest/fault"

	"github.com/redis/go-redis/v9"
)

// Calls counts the scripts that acquire, renew or release locks, as the server itself counts
// them (INFO commandstats). It exposes a lock that never calls Redis, whatever that lock
// reports about itself.
//
// A killed server loses its counts. They are read often, but the calls after the last
// reading before a kill are lost, so that the total is a lower bound.
type Calls struct {
	client redis.UniversalClient
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	life  string // run_id of the server
	lives int
	last  int64 // calls in this life of the server
	total int64 // calls in all its lives
}

const callsEvery = 50 * time.Millisecond

// CountCalls starts counting.
func CountCalls(ctx context.Context, client redis.UniversalClient) (*Calls, error) {
	c := &Calls{client: client}
	if err := c.read(ctx); err != nil {
		return nil, err
	}
	c.total = 0
	ctx, c.stop = context.WithCancel(ctx)
	c.work.Go(func() {
		for fault.Wait(ctx, callsEvery) {
			_ = c.read(ctx) // the server may be down
		}
	})
	return c, nil
}

// Stop returns all calls since the start of counting, and those since the last restart of the
// server, 0 without a restart.
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

// scripts are the commands that run a script. A master sends its replicas the effects of a script
// instead, so only the master counts them.
var scripts = []string{"eval", "evalsha", "fcall"}

// callsIn parses the reply to INFO.
func callsIn(info string) (life string, calls int64) {
	for line := range strings.Lines(info) {
		line = strings.TrimSpace(line)
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			life = id
		}
		for _, command := range scripts {
			if counts, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
				number, _, _ := strings.Cut(counts, ",")
				n, _ := strconv.ParseInt(number, 10, 64)
				calls += n
			}
		}
	}
	return life, calls
}

// SetCalls is Calls at a master and its replicas.
type SetCalls []*Calls

// CountSetCalls starts counting. The first client is that of the master.
func CountSetCalls(ctx context.Context, members []*redis.Client) (all SetCalls, err error) {
	for _, m := range members {
		c, err := CountCalls(ctx, m)
		if err != nil {
			all.end()
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// Stop returns all calls since the start of counting, and those to another master, or to the
// first one after its restart.
func (s SetCalls) Stop(ctx context.Context) (all, after int64, err error) {
	for n, c := range s {
		calls, again, failed := c.Stop(ctx)
		if n > 0 {
			again = calls
		}
		all, after, err = all+calls, after+again, errors.Join(err, failed)
	}
	return all, after, err
}

func (s SetCalls) end() {
	for _, c := range s {
		c.stop()
		c.work.Wait()
	}
}

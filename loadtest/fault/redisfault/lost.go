// Package redisfault takes locks out of Redis under their holders, and Redis away.
package redisfault

import (
	"context"
	"fmt"
	"strings"
	"time"

	"shop/loadtest/fault"

	"github.com/redis/go-redis/v9"
)

// LockLost deletes all locks with a prefix, again and again, as if every holder had been
// paused beyond its TTL, or as if the server had failed over and lost them. The holder of
// one goes on as if it held it, and the next one acquires it.
type LockLost struct {
	Client redis.UniversalClient
	Prefix string        // that the replicas were given
	Every  time.Duration // many times a second
}

// Inject counts only deletions that hit a lock. Fence counters are left alone.
func (l LockLost) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	event := fault.Event{What: "locks deleted", At: time.Now()}
	for end := event.At.Add(over); time.Now().Before(end); {
		n, err := l.sweep(ctx)
		event.Hits += n
		event.Seen = map[string]int64{"locks_deleted": event.Hits}
		event.Until = time.Now()
		if err != nil {
			return []fault.Event{event}, fmt.Errorf("delete locks: %w", err)
		}
		if !fault.Wait(ctx, l.Every) {
			break
		}
	}
	return []fault.Event{event}, ctx.Err()
}

func (l LockLost) sweep(ctx context.Context) (hits int64, err error) {
	for cursor := uint64(0); ; {
		var keys []string
		if keys, cursor, err = l.Client.Scan(ctx, cursor, lockPattern(l.Prefix), 1000).Result(); err != nil {
			return hits, err
		}
		if len(keys) > 0 {
			n, err := l.Client.Del(ctx, keys...).Result()
			if hits += n; err != nil {
				return hits, err
			}
		}
		if cursor == 0 {
			return hits, nil
		}
	}
}

// lockPattern matches the locks of redislock (PREFIX{TAG}lock:KEY) and not its
// fence counters.
func lockPattern(prefix string) string {
	quote := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
	return quote.Replace(prefix) + "{*}lock:*"
}

// Down kills a server, leaves it dead for Part of the time, and starts it again.
type Down struct {
	Name   string
	Server fault.Server
	Part   float64 // of the time; the rest shows whether the system comes back to it
}

// Inject always starts the server again, also when ctx ended meanwhile.
func (d Down) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	event := fault.Event{What: d.Name + " killed", At: time.Now(), Hits: 1, Seen: map[string]int64{d.Name + "_kills": 1}}
	whole, done := fault.Undoing(ctx) // a kill that is called off half way, and late, would undo the start
	defer done()
	if err := d.Server.Kill(whole); err != nil {
		return nil, fmt.Errorf("kill %s: %w", d.Name, err)
	}
	fault.Wait(ctx, time.Duration(float64(over)*d.Part))
	late, cancel := fault.Undoing(ctx)
	defer cancel()
	if err := d.Server.Start(late); err != nil {
		return []fault.Event{event}, fmt.Errorf("start %s again: %w", d.Name, err)
	}
	event.Until = time.Now()
	return []fault.Event{event}, ctx.Err()
}

// SPDX-License-Identifier: MIT

package replicafault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"shop/loadtest/fault"
)

// Pauses stop replicas for longer than the TTL of their locks, as a long garbage
// collection, a full disk or the migration of a virtual machine does:
//
//	replica 1   1.5, 2, 2.5 … 5 TTLs, with half a TTL between two pauses, and again from 1.5
//	replica 2   once for 5 TTLs, or for as long as the fault lasts
//	replica 3   never: one replica always answers
type Pauses struct {
	Replicas fault.Pausable
	TTL      time.Duration
	// Aim returns the locks that stopped replicas seem to hold. If there is none, the replica is
	// resumed, and stopped again a moment later. The locks that Aim returns once more after a
	// third of the TTL are those of stopped replicas. The pause has outlived them if Aim returns
	// none of them at its end. nil: the replica is stopped at any moment.
	Aim func(context.Context) ([]string, error)
	// InBatch stops replica n in a batch of several requests, and returns false if none came in time: that pause is no
	// hit. nil: the replica is stopped at any moment.
	InBatch func(ctx context.Context, n int, within time.Duration) (bool, error)
}

// batchWait bounds the wait for a batch of several requests.
const batchWait = 2 * time.Second

// The bounds of pauses, in halves of the TTL.
const (
	pauseShortest = 3
	pauseLongest  = 10
)

// Inject pauses both replicas concurrently. It begins no pause that would not end in time.
func (p Pauses) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	if p.InBatch != nil {
		over -= batchWait // a stop may come that much later
	}
	var (
		work   sync.WaitGroup
		events [2][]fault.Event
		errs   [2]error
		end    = time.Now().Add(over)
	)
	work.Go(func() { events[0], errs[0] = p.series(ctx, 0, end) })
	work.Go(func() {
		for left := over; left >= p.TTL*pauseShortest/2; left = time.Until(end) { // until it was in a batch
			e, err := p.once(ctx, 1, min(p.TTL*pauseLongest/2, left))
			if e.What != "" {
				events[1] = []fault.Event{e}
			}
			if errs[1] = err; err != nil || e.What != "" {
				return
			}
		}
	})
	work.Wait()
	return append(events[0], events[1]...), errors.Join(errs[0], errs[1], ctx.Err())
}

// series pauses replica n for longer and longer.
func (p Pauses) series(ctx context.Context, n int, end time.Time) (events []fault.Event, err error) {
	for half := time.Duration(pauseShortest); ctx.Err() == nil; half++ {
		if d := p.TTL * half / 2; half > pauseLongest || time.Until(end) < d {
			half = pauseShortest // start over
		}
		d := p.TTL * half / 2
		if time.Until(end) < d {
			return events, nil
		}
		e, err := p.once(ctx, n, d)
		if e.What != "" {
			events = append(events, e)
		}
		if err != nil {
			return events, err
		}
		fault.Wait(ctx, p.TTL/2)
	}
	return events, nil
}

// once pauses replica n. A pause that is cancelled before the lock has expired does not count.
func (p Pauses) once(ctx context.Context, n int, d time.Duration) (fault.Event, error) {
	stopped, held, err := p.stop(ctx, n)
	e := fault.Event{What: fmt.Sprintf("replica %d stopped for %.1f TTL", n+1, float64(d)/float64(p.TTL)), At: time.Now(), Replica: n + 1}
	switch {
	case !stopped:
		e.What = "" // nothing was done
	case err == nil:
		if len(held) > 0 && fault.Wait(ctx, p.TTL/3) {
			held = p.still(ctx, held)
		}
		fault.Wait(ctx, time.Until(e.At.Add(d)))
	}
	outlived := len(held) > 0 && p.gone(ctx, held)
	err = errors.Join(err, p.Replicas.Resume(n))
	e.Until = time.Now()
	if stopped && e.Until.Sub(e.At) >= p.TTL*pauseShortest/2 && err == nil {
		e.Hits, e.Seen = 1, map[string]int64{"pauses": 1}
		if outlived {
			e.Seen["outlived"] = 1
		}
	}
	if err != nil {
		err = fmt.Errorf("pause replica %d: %w", n+1, err)
	}
	return e, err
}

// still returns those of the locks that are held.
func (p Pauses) still(ctx context.Context, locks []string) []string {
	held, err := p.Aim(ctx)
	return slices.DeleteFunc(locks, func(lock string) bool { return err != nil || !slices.Contains(held, lock) })
}

// gone reports whether none of the locks is held.
func (p Pauses) gone(ctx context.Context, locks []string) bool {
	held, err := p.Aim(ctx)
	return err == nil && !slices.ContainsFunc(held, func(lock string) bool { return slices.Contains(locks, lock) })
}

// How often a replica is stopped at most to find it with a lock.
const (
	aims     = 20
	aimEvery = 20 * time.Millisecond
)

// stop stops replica n, and returns whether it did. With an Aim it tries up to aims times to stop the replica while it
// holds a lock, and returns the locks that are held.
func (p Pauses) stop(ctx context.Context, n int) (stopped bool, held []string, err error) {
	for try := 1; ; try++ {
		if p.InBatch != nil {
			stopped, err = p.InBatch(ctx, n, batchWait)
		} else {
			stopped, err = true, p.Replicas.Pause(n)
		}
		if err != nil || !stopped || p.Aim == nil {
			return stopped, nil, err
		}
		if held, _ = p.Aim(ctx); len(held) > 0 || try == aims { // after an error it aims again
			return true, held, nil
		}
		if err := p.Replicas.Resume(n); err != nil || !fault.Wait(ctx, aimEvery) {
			return true, nil, err
		}
	}
}

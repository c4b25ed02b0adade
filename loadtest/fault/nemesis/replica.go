// SPDX-License-Identifier: MIT

package nemesis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"shop/loadtest/fault"
)

// Replicas are the targets of Killed, Vanished and Paused.
type Replicas interface {
	fault.Victims
	fault.Pausable
}

// The bounds of how long a fault of a replica or a link lasts.
const (
	shortest = time.Second
	longest  = 4 * time.Second
)

// Killed kills replica n, from 0, and starts it again at the end.
func Killed(all Replicas, n int) Part {
	return Part{
		Kind: "replica killed", Name: fmt.Sprintf("replica %d killed", n+1), Replica: n + 1, Starts: true, Shortest: shortest, Longest: longest,
		Fault: killed{all, n},
	}
}

type killed struct {
	all Replicas
	n   int
}

// Inject counts the kill; the history shows whether it interrupted a request.
func (k killed) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	e := fault.Event{
		What: fmt.Sprintf("replica %d killed", k.n+1), At: time.Now(), Hits: 1, Seen: map[string]int64{"crashes": 1},
		Replica: k.n + 1, Ends: true,
	}
	late, cancel := fault.Undoing(ctx)
	defer cancel()
	err := k.all.Kill(late, k.n)
	if err == nil {
		fault.Wait(ctx, over)
	}
	err = errors.Join(err, k.all.Start(late, k.n))
	e.Until = time.Now()
	return []fault.Event{e}, err
}

// Paused stops replica n, from 0, and resumes it at the end.
func Paused(all Replicas, n int) Part {
	return Part{
		Kind: "replica stopped", Name: fmt.Sprintf("replica %d stopped", n+1), Replica: n + 1, Shortest: shortest, Longest: longest,
		Fault: paused{all, n},
	}
}

type paused struct {
	all Replicas
	n   int
}

// Inject counts the pause; the history shows whether a request had to wait.
func (p paused) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	err := p.all.Pause(p.n)
	e := fault.Event{
		What: fmt.Sprintf("replica %d stopped", p.n+1), At: time.Now(), Hits: 1, Seen: map[string]int64{"pauses": 1},
		Replica: p.n + 1,
	}
	if err == nil {
		fault.Wait(ctx, over)
	}
	err = errors.Join(err, p.all.Resume(p.n))
	e.Until = time.Now()
	return []fault.Event{e}, err
}

// SPDX-License-Identifier: MIT

package fault_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"shop/loadtest/fault"
)

// quorum are servers of which none answers until all are started.
type quorum struct {
	members        int
	slow           time.Duration // to die
	mu             sync.Mutex
	alive, started int
	all            chan struct{}
	fails          error
}

func (q *quorum) Kill(context.Context) error {
	time.Sleep(q.slow)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.alive--; q.alive == 0 {
		q.started, q.all = 0, make(chan struct{})
	}
	return q.fails
}

func (q *quorum) Start(ctx context.Context) error {
	q.mu.Lock()
	q.alive++
	if q.started++; q.started == q.members {
		close(q.all)
	}
	all := q.all
	q.mu.Unlock()
	select {
	case <-all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestAllKilled_KillsAllAtOnceAndStartsThemTogether(t *testing.T) {
	for name, c := range map[string]struct {
		slow  time.Duration
		fails error
		seen  int64
	}{
		"at once":                 {0, nil, 2},
		"one after the other":     {2 * fault.AtOnce, nil, 0},
		"one could not be killed": {0, errors.New("no such process"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &quorum{members: 3, alive: 3, slow: c.slow, fails: c.fails}
				events, err := fault.AllKilled{Servers: []fault.Server{q, q, q}, Times: 2, Dead: time.Second}.Inject(t.Context(), 20*time.Second)
				if !errors.Is(err, c.fails) || fault.Seen(events)["all_killed"] != c.seen || q.alive != 3 {
					t.Errorf("%+v, %v, %d alive", events, err, q.alive)
				}
			})
		})
	}
}

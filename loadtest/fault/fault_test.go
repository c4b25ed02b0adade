// SPDX-License-Identifier: MIT

package fault_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
)

// cancelling is a server whose kill cancels the run.
type cancelling struct {
	*testbed.Server
	cancel func()
}

func (c cancelling) Kill(ctx context.Context) error {
	defer c.cancel()
	return c.Server.Kill(ctx)
}

func TestRestart_ServerIsStartedAgainEvenIfTheRunIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &testbed.Server{}
	down := fault.Restart{Server: cancelling{s, cancel}, Name: "redis", Evidence: "redis_kills", Times: 1, Dead: 0.5}
	if events, err := down.Inject(ctx, time.Hour); !errors.Is(err, context.Canceled) || fault.Seen(events)["redis_kills"] != 1 {
		t.Errorf("%+v, error %v, want %v", events, err, context.Canceled)
	}
	if diff := cmp.Diff([]string{"kill", "start"}, s.Done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRestart_IsSpreadOverTheTimeAndTheServerStaysDeadForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		events, err := fault.Restart{Server: &testbed.Server{}, Times: 3, Dead: 0.5, Name: "redis"}.Inject(t.Context(), 30*time.Second)
		if err != nil || len(events) != 3 {
			t.Fatalf("%+v, %v", events, err)
		}
		for i, e := range events {
			if due := began.Add(time.Duration(i) * 10 * time.Second); !e.At.Equal(due) || e.Until.Sub(e.At) != 5*time.Second {
				t.Errorf("event %d: %+v", i, e)
			}
		}
	})
}

func TestRestart_ServerIsStartedAgainEvenIfTheKillFails(t *testing.T) {
	for _, fails := range []string{"kill", "start"} {
		s := &testbed.Server{Log: testbed.Log{Fails: fails}}
		if _, err := (fault.Restart{Server: s, Times: 1}).Inject(t.Context(), 0); err == nil || len(s.Done) != 2 {
			t.Errorf("%s: %v, %v", fails, err, s.Done)
		}
	}
}

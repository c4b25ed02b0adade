// SPDX-License-Identifier: MIT

package replicafault

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
)

// replicas record what is done to them.
type replicas struct{ testbed.Log }

func (r *replicas) Len() int                            { return 3 }
func (r *replicas) Kill(_ context.Context, n int) error { return r.Note(fmt.Sprint("kill ", n)) }
func (r *replicas) Start(_ context.Context, n int, extra ...string) error {
	return r.Note(strings.Join(append([]string{fmt.Sprint("start ", n)}, extra...), " "))
}

func TestCrash_StartsEachReplicaAgainBeforeTheNextKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, began := &replicas{}, time.Now()
		events, err := Crash{Victims: r, Times: 5}.Inject(t.Context(), 50*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"kill 0", "start 0", "kill 1", "start 1", "kill 2", "start 2", "kill 0", "start 0", "kill 1", "start 1"}
		if diff := cmp.Diff(want, r.Done); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for i, e := range events {
			if due := began.Add(time.Duration(i) * 10 * time.Second); e.Hits != 1 || !e.At.Equal(due) || e.Until.Before(e.At) {
				t.Errorf("event %d: %+v", i, e)
			}
		}
		if n := fault.Seen(events)["crashes"]; n != 5 || len(events) != 5 {
			t.Errorf("%d crashes, %d events", n, len(events))
		}
	})
}

func TestCrash_AReplicaThatDoesNotComeBackIsAnError(t *testing.T) {
	r := &replicas{testbed.Log{Fails: "start 1"}}
	if events, err := (Crash{Victims: r, Times: 5}).Inject(t.Context(), time.Millisecond); err == nil || len(events) != 2 {
		t.Errorf("%v, %d events; want an error, and the two kills", err, len(events))
	}
}

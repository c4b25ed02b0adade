// SPDX-License-Identifier: MIT

package traffic

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shop/loadtest/internal/testbed"
)

// decidedRun returns a Run with one key, which decided has decided, on a service that answers with problem; "" is a success.
func decidedRun(t *testing.T, decided string, problem func() string) *Run {
	t.Helper()
	bases := testbed.Serve(t, 2, func(w http.ResponseWriter, _ *http.Request) {
		if kind := problem(); kind != "" {
			testbed.Problem(w, http.StatusConflict, kind)
			return
		}
		testbed.Created(w, order1)
	})
	run, err := NewRun(t.Context(), bases, oneClient, time.Minute, classify, refusals...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	run.History.Intend(*buy("bought"))
	run.History.Add(Attempt{Key: "bought", Outcome: OK, Sends: 1}, []byte(`{"id":"`+decided+`"}`))
	return run
}

func TestReplay_ADecidedKeyThatGetsAnotherAnswerInTheEndIsNoticed(t *testing.T) {
	for decided, diverges := range map[string]bool{order1: false, order2: true} {
		run := decidedRun(t, decided, func() string { return "" })
		if n, silent := run.Replay(t.Context(), Grace); n != 1 || len(silent) != 0 {
			t.Errorf("%d replays, want 1; silent: %v", n, silent)
		}
		if r := run.History.Record("bought"); r.Diverged != diverges || diverges && !(strings.Contains(r.Differs, order1) && strings.Contains(r.Differs, order2)) {
			t.Errorf("decided %s: diverged %v, want %v with both answers: %s", decided, r.Diverged, diverges, r.Differs)
		}
	}
}

func TestReplay_BusyIsNoReplyToADecidedKey(t *testing.T) {
	var requests atomic.Int32
	run := decidedRun(t, order1, func() string {
		if requests.Add(1) == 1 {
			return "busy"
		}
		return ""
	})
	if n, silent := run.Replay(t.Context(), Grace); n != 1 || len(silent) != 0 || requests.Load() != 2 {
		t.Errorf("busy once: %d answered of 1, silent %v, requests %d times, want 2", n, silent, requests.Load())
	}
	run = decidedRun(t, order1, func() string { return "busy" })
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if n, silent := run.Replay(ctx, Grace); n != 0 || len(silent) != 1 || !strings.Contains(silent[0], "bought") {
		t.Errorf("busy for ever: %d answered, silent %v; want the key to be named", n, silent)
	}
}

func TestReplay_ASlowServiceAnswersAllInTime(t *testing.T) {
	const slow = 100 * time.Millisecond
	base := testbed.Serve(t, 1, func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-time.After(slow):
		case <-req.Context().Done():
		}
		testbed.Created(w, order1)
	})
	run, err := NewRun(t.Context(), base, oneClient, time.Minute, classify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	for i := range replays {
		run.History.Intend(*buy(fmt.Sprint("k", i)))
		run.History.Add(Attempt{Key: fmt.Sprint("k", i), Outcome: OK, Sends: 1}, []byte(`{"id":"`+order1+`"}`))
	}
	if n, silent := run.Replay(t.Context(), replays*slow/2); n != replays || len(silent) != 0 {
		t.Errorf("%d of %d answered, silent: %v", n, replays, silent)
	}
}

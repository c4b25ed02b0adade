package loadtest

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
)

func bought(at time.Duration) Record {
	return Record{Intent: Intent{Action: "buy"}, Outcome: OK, Attempts: []Attempt{{Outcome: OK, End: at}}}
}

func TestStalls_ASuccessMustComeWithinTheBoundOfEachFaultAndOfItsEnd(t *testing.T) {
	h := NewHistory()
	refused := Record{Intent: Intent{Action: "buy"}, Outcome: Rejected, Attempts: []Attempt{{Outcome: Rejected, End: 1100 * time.Millisecond}}}
	event := func(at, until time.Duration) fault.Event {
		return fault.Event{What: "redis killed", At: h.Epoch.Add(at), Until: h.Epoch.Add(until)}
	}
	const second = time.Second
	for _, c := range []struct {
		name    string
		records []Record
		event   fault.Event
		stalls  int
	}{
		{"success soon after both", []Record{bought(2 * second), bought(4 * second)}, event(1*second, 3*second), 0},
		{"on the bound", []Record{bought(3 * second)}, event(1*second, 2*second), 0},
		{"too late after the fault", []Record{bought(4 * second)}, event(1*second, 3*second), 1},
		{"only before it", []Record{bought(1 * second)}, event(2*second, 3*second), 2},
		{"nothing after its end", []Record{bought(2 * second)}, event(1*second, 3*second), 1},
		{"refusals are no sign of life", []Record{refused}, event(1*second, 1*second), 2},
		{"an end of something is no sign of life", []Record{{Intent: Intent{Ends: true}, Outcome: OK, Attempts: []Attempt{{Outcome: OK, End: 2 * second}}}}, event(1*second, 1*second), 2},
		{"nothing at all: everything 503", nil, event(1*second, 2*second), 2},
	} {
		stalls := Stalls(h, c.records, []fault.Event{c.event}, 2*second)
		if len(stalls) != c.stalls {
			t.Errorf("%s: %d stalls %v, want %d", c.name, len(stalls), stalls, c.stalls)
		}
	}
}

// decidedRun returns a Run with one decided key, on a service that answers with problem; "" is a success.
func decidedRun(t *testing.T, problem func() string) *Run {
	t.Helper()
	bases := testbed.Serve(t, 2, func(w http.ResponseWriter, _ *http.Request) {
		if kind := problem(); kind != "" {
			testbed.Problem(w, http.StatusConflict, kind)
			return
		}
		testbed.Created(w, order1)
	})
	run, err := NewRun(t.Context(), bases, oneClient, time.Minute, Classify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	run.History.Intend(*buy("bought"))
	run.History.Add(Attempt{Key: "bought", Outcome: OK, Sends: 1}, []byte(`{"id":"`+order1+`"}`))
	return run
}

func TestReplay_ADecidedKeyThatGetsAnotherAnswerInTheEndIsNoticed(t *testing.T) {
	for want, second := range map[string]string{"": order1, "bought": order2} {
		run := decidedRun(t, func() string { return "" })
		if second == order2 {
			run.History.records["bought"].Body = []byte(`{"id":"` + order2 + `"}`)
		}
		if n, silent := run.replay(t.Context()); n != 1 || len(silent) != 0 {
			t.Errorf("%d replays, want 1; silent: %v", n, silent)
		}
		if got := strings.Join(diverged(run.History.Records()), " "); got != want {
			t.Errorf("diverged: %q, want %q", got, want)
		}
	}
}

func TestReplay_BusyIsNoReplyToADecidedKey(t *testing.T) {
	var asked atomic.Int32
	run := decidedRun(t, func() string {
		if asked.Add(1) == 1 {
			return "busy"
		}
		return ""
	})
	if n, silent := run.replay(t.Context()); n != 1 || len(silent) != 0 || asked.Load() != 2 {
		t.Errorf("busy once: %d answered of 1, silent %v, asked %d times, want 2", n, silent, asked.Load())
	}
	run = decidedRun(t, func() string { return "busy" })
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if n, silent := run.replay(ctx); n != 0 || len(silent) != 1 || !strings.Contains(silent[0], "bought") {
		t.Errorf("busy for ever: %d answered, silent %v; want the key to be named", n, silent)
	}
}

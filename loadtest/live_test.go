package loadtest

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shop/loadtest/fault"
)

func bought(at time.Duration) Record {
	return Record{Intent: Intent{Action: Buy}, Outcome: OK, Attempts: []Attempt{{Outcome: OK, End: at}}}
}

func TestStalls_ASuccessMustComeWithinTheBoundOfEachFaultAndOfItsEnd(t *testing.T) {
	h := NewHistory()
	refused := Record{Intent: Intent{Action: Buy}, Outcome: Rejected, Attempts: []Attempt{{Outcome: Rejected, End: 1100 * time.Millisecond}}}
	event := func(at, until time.Duration) fault.Event {
		return fault.Event{What: "redis killed", At: h.epoch.Add(at), Until: h.epoch.Add(until)}
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
		{"nothing at all: everything 503", nil, event(1*second, 2*second), 2},
	} {
		stalls := Stalls(h, c.records, []fault.Event{c.event}, 2*second)
		if len(stalls) != c.stalls {
			t.Errorf("%s: %d stalls %v, want %d", c.name, len(stalls), stalls, c.stalls)
		}
	}
}

func TestFinale_EachProductMustTakeACancellationAndSellItAgain(t *testing.T) {
	stock := []Stock{{sku(0), 1}, {sku(1), 1}}
	v, closed := finaleShop(t, func(string) string { return "" })
	if dead := v.finale(t.Context(), stock[:1]); len(dead) != 0 {
		t.Errorf("a shop that works: %v", dead)
	}
	if dead := v.finale(t.Context(), stock[1:]); len(dead) != 1 || !strings.Contains(dead[0], "no order") {
		t.Errorf("a product that nobody ever got: %v", dead)
	}
	closed()
	v, closed = finaleShop(t, func(path string) string {
		if strings.HasSuffix(path, "/cancel") {
			return "already-cancelled"
		}
		return ""
	})
	defer closed()
	if dead := v.finale(t.Context(), stock[:1]); len(dead) != 1 || !strings.Contains(dead[0], "cancellation") {
		t.Errorf("a product whose order cannot be cancelled: %v", dead)
	}
}

func TestFinale_ALastPurchaseThatIsRefusedIsNoLife(t *testing.T) {
	v, closed := finaleShop(t, func(path string) string {
		if path == "/v1/orders" {
			return "out-of-stock"
		}
		return ""
	})
	defer closed()
	if dead := v.finale(t.Context(), []Stock{{sku(0), 1}}); len(dead) != 1 || !strings.Contains(dead[0], "purchase") {
		t.Errorf("%v", dead)
	}
}

// finaleShop is a volley after which one unit of the first product was bought,
// at a service that refuses what problem names.
func finaleShop(t *testing.T, problem func(path string) string) (*volley, func()) {
	t.Helper()
	r := newRange(t, 2, func(w http.ResponseWriter, req *http.Request) {
		if kind := problem(req.URL.Path); kind != "" {
			answer(w, http.StatusConflict, kind)
			return
		}
		created(order1)(w)
	})
	v, err := newVolley(t.Context(), r.bases, oneClient, time.Second, Classify)
	if err != nil {
		t.Fatal(err)
	}
	v.history.Intend(*buyIntent("bought", []line{{0, 1}}))
	v.history.Add(Attempt{Key: "bought", Outcome: OK, Sends: 1}, []byte(`{"id":"`+order1+`"}`))
	return v, v.close
}

func TestReplay_ADecidedKeyThatGetsAnotherAnswerInTheEndIsNoticed(t *testing.T) {
	for want, second := range map[string]string{"": order1, "bought": order2} {
		v, closed := finaleShop(t, func(string) string { return "" })
		if second == order2 {
			v.history.records["bought"].body = []byte(`{"id":"` + order2 + `"}`)
		}
		if n, silent := v.replay(t.Context()); n != 1 || len(silent) != 0 {
			t.Errorf("%d replays, want 1; silent: %v", n, silent)
		}
		if got := strings.Join(diverged(v.history.Records()), " "); got != want {
			t.Errorf("diverged: %q, want %q", got, want)
		}
		closed()
	}
}

func TestReplay_TryLaterIsNoAnswerToADecidedKey(t *testing.T) {
	var asked atomic.Int32
	v, closed := finaleShop(t, func(string) string {
		if asked.Add(1) == 1 {
			return "busy"
		}
		return ""
	})
	if n, silent := v.replay(t.Context()); n != 1 || len(silent) != 0 || asked.Load() != 2 {
		t.Errorf("busy once: %d answered of 1, silent %v, asked %d times, want 2", n, silent, asked.Load())
	}
	closed()
	v, closed = finaleShop(t, func(string) string { return "busy" })
	defer closed()
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if n, silent := v.replay(ctx); n != 0 || len(silent) != 1 || !strings.Contains(silent[0], "bought") {
		t.Errorf("busy for ever: %d answered, silent %v; want the key to be named", n, silent)
	}
}

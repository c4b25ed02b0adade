// SPDX-License-Identifier: MIT

package traffic

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shop/loadtest/internal/testbed"
)

func slotsOf(rate int, duration time.Duration, replicas int) []Slot {
	load := Load{Rate: rate, Duration: duration, Seed: 1, Replicas: replicas}
	return load.Slots(rand.New(rand.NewPCG(1, 0)), int(float64(rate)*duration.Seconds()))
}

func TestSlots_HalfOfALoadComesInBurstsOverAllReplicasAndTheRestEvenly(t *testing.T) {
	slots := slotsOf(100, 5*time.Second, 2)
	bursts, alone, sizes := map[int][]Slot{}, 0, map[int]bool{}
	for i, s := range slots {
		if i > 0 && s.At < slots[i-1].At || s.At < 0 || s.At > 5*time.Second || s.Replica < 0 || s.Replica > 1 {
			t.Fatalf("slot %d of %v: %+v", i, slots[max(0, i-1)], s)
		}
		if s.Burst == 0 {
			alone++
		} else {
			bursts[s.Burst] = append(bursts[s.Burst], s)
		}
	}
	if len(slots) != 500 || alone < 240 || alone > 250 {
		t.Errorf("%d slots, %d alone; want 500, half of them alone", len(slots), alone)
	}
	for n, burst := range bursts {
		sizes[len(burst)] = true
		replicas := [2]int{}
		for _, s := range burst {
			replicas[s.Replica]++
			if s.At != burst[0].At {
				t.Errorf("burst %d comes at %v and %v", n, burst[0].At, s.At)
			}
		}
		if len(burst) < 10 || len(burst) > 50 || max(replicas[0], replicas[1])-min(replicas[0], replicas[1]) > 1 {
			t.Errorf("burst %d: %d requests to the replicas", n, replicas)
		}
	}
	if len(sizes) < 4 {
		t.Errorf("the sizes of bursts are %v: want them drawn", sizes)
	}
	if !slices.Equal(slots, slotsOf(100, 5*time.Second, 2)) {
		t.Error("the same seed gives other slots")
	}
}

func TestSlots_AnyLoadHasAsManyAsItsIntents(t *testing.T) {
	for n := range 130 {
		if got := len((Load{Rate: 1, Duration: time.Second, Replicas: 3}).Slots(rand.New(rand.NewPCG(7, 0)), n)); got != n {
			t.Errorf("%d slots of %d intents", got, n)
		}
	}
}

func TestUneven_OneIsHotAndNoneIsLeftOut(t *testing.T) {
	random, count := rand.New(rand.NewPCG(1, 0)), make([]int, 4)
	for range 10_000 {
		count[Uneven(random, 4)]++
	}
	if count[0] < 4500 || count[0] > 5100 || count[3] < 1000 || !slices.IsSortedFunc(count, func(a, b int) int { return b - a }) {
		t.Errorf("of 10,000: %d", count)
	}
	if Uneven(random, 1) != 0 {
		t.Error("one object is not drawn")
	}
}

// connecting counts the connections that are opened to a server.
type connecting struct{ opened, served atomic.Int32 }

func (c *connecting) serve(t *testing.T) string {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			c.served.Add(1)
		}
		testbed.Created(w, order1)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			c.opened.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

func TestSend_ABurstFindsItsConnectionsOpen(t *testing.T) {
	var servers [2]connecting
	run, err := NewRun(t.Context(), []string{servers[0].serve(t), servers[1].serve(t)}, oneClient, time.Minute, classify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	var schedule []ScheduledRequest
	for i := range 30 {
		schedule = append(schedule, ScheduledRequest{At: 20 * time.Millisecond, Replica: i % 2, Intent: buy(fmt.Sprint("k", i))})
	}
	run.warm(t.Context(), schedule)
	for i := range servers {
		if n := servers[i].opened.Load(); n != 15 {
			t.Errorf("replica %d: %d connections before the load, want 15", i, n)
		}
	}
	run.Send(t.Context(), schedule)
	for i := range servers {
		if opened, served := servers[i].opened.Load(), servers[i].served.Load(); opened != 15 || served != 15 {
			t.Errorf("replica %d: %d requests over %d connections, want 15 over 15", i, served, opened)
		}
	}
	if n := len(run.History.Records()); n != 30 {
		t.Errorf("%d records, want 30: what opens connections is no request of the load", n)
	}
}

// recordOf returns the record of a key with these answers.
func recordOf(outcomes ...Attempt) Record {
	h := NewHistory()
	h.Intend(Intent{Key: "k"})
	for i, a := range outcomes {
		a.Key = "k"
		h.Add(a, fmt.Appendf(nil, "body %d", i))
	}
	return h.Record("k")
}

func TestHistory_ADuplicateSaysThatTheEffectOfAnotherRequestIsThere(t *testing.T) {
	done, again := Attempt{Outcome: OK, Status: 201}, Attempt{Outcome: OK, Status: 409, Duplicate: true}
	refused, lost := Attempt{Outcome: Rejected, Status: 422}, Attempt{Outcome: Unknown}
	for _, c := range []struct {
		name     string
		attempts []Attempt
		body     string
		status   int
		diverged string
	}{
		{"after a success", []Attempt{done, again, again}, "body 0", 201, ""},
		{"before the answer of the first", []Attempt{again, done}, "body 1", 201, ""},
		{"after a success that was not answered", []Attempt{lost, again}, "body 1", 409, ""},
		{"without any success", []Attempt{again, again}, "body 0", 409, ""},
		{"after a refusal", []Attempt{refused, again}, "body 1", 409, "422 body 0, and 409 body 1"},
		{"two successes", []Attempt{again, done, done}, "body 1", 201, "201 body 1, and 201 body 2"},
	} {
		r := recordOf(c.attempts...)
		if r.Outcome != OK || string(r.Body) != c.body || r.Status() != c.status || r.Differs != c.diverged || r.Diverged != (c.diverged != "") {
			t.Errorf("%s: %s %d %q, differs %q", c.name, r.Outcome, r.Status(), r.Body, r.Differs)
		}
	}
}

func TestRecorder_ADuplicateIsASuccessAndAMissingAnswerHasItsError(t *testing.T) {
	base := testbed.Serve(t, 1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) })
	run, err := NewRun(t.Context(), []string{base[0], "http://127.0.0.1:1"}, oneClient, time.Second, func(int, http.Header, []byte) (Outcome, string) { return Duplicate, "conflict" })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	run.end()
	for replica, key := range []string{"a", "b"} {
		run.History.Intend(*buy(key))
		_ = run.send(t.Context(), replica, *buy(key))
	}
	if a := run.History.Record("a").Last(); a.Outcome != OK || !a.Duplicate {
		t.Errorf("%+v", a)
	}
	if r := run.History.Record("b"); r.Outcome != Open || !strings.Contains(r.Last().Error, "refused") || !strings.Contains(r.Ended(), "open (no answer: dial tcp 127.0.0.1:1") {
		t.Errorf("%+v: %s", r.Last(), r.Ended())
	}
}

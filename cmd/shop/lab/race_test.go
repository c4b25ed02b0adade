// SPDX-License-Identifier: MIT

package lab

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"shop/inventory"
)

// kinds returns the kinds of event of a lane.
func (l Lane) kinds() (list []string) {
	for _, e := range l.Events {
		list = append(list, e.Kind)
	}
	return list
}

// lacks returns the kinds that a lane has no event of.
func (l Lane) lacks(kinds ...string) string {
	has := l.kinds()
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { return slices.Contains(has, kind) })
	if len(kinds) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: no event %v", l.Strategy, kinds)
}

func TestRace_NaiveOversellsAndTheDoubleLockSellsExactly(t *testing.T) {
	t.Parallel()
	s := serve(t)
	settings := Settings{Seed: 7, Strategies: []string{"naive", "redis+row"}, Clients: 24, Size: 20, Fault: NoFault}
	r := s.shows(settings, func(r Result) string {
		naive, double := r.Lanes[0], r.Lanes[1]
		last := double.Samples[len(double.Samples)-1]
		fences := map[int]bool{}
		for _, e := range double.Events {
			if e.Kind == "acquired" {
				fences[int(e.Fence)] = true
			}
		}
		switch {
		case naive.Verdict.Holds || !strings.Contains(naive.Verdict.Text, "disappointed"):
			return "naive did not oversell"
		case double.Verdict.Text != "sold 20 of 20":
			return "redis+row did not sell the stock"
		case !maps.Equal(last.Figures, double.Verdict.Figures) || last.Answered != 3*20 || last.Wait99 <= 0:
			return fmt.Sprintf("the last sample is %+v", last)
		case len(fences) < 10:
			return fmt.Sprintf("%d fences for 20 sales", len(fences))
		}
		return double.lacks("asked", "acquired", "read", "committed", "released", "done", "refused")
	})
	if r.Seed != 7 || !strings.Contains(r.Command, "--flow inventory --seed 7 --strategy naive --strategy redis+row --clients 24 --size 20 --fault none") {
		t.Errorf("seed %d, command %s", r.Seed, r.Command)
	}
}

func TestRace_WithoutItsLockRedisOnlyOversells(t *testing.T) {
	t.Parallel()
	s := serve(t)
	settings := Settings{Seed: 1, Strategies: []string{"redis-only", "redis+row"}, Clients: 24, Size: 20, Fault: Drop}
	s.shows(settings, func(r Result) string {
		switch {
		case r.Lanes[0].Verdict.Holds || !strings.Contains(r.Lanes[0].Verdict.Text, "disappointed"):
			return "redis-only did not oversell"
		case r.Lanes[1].Verdict.Text != "sold 20 of 20":
			return "redis+row did not sell the stock"
		}
		return r.Lanes[0].lacks("dropped", "lost") + r.Lanes[1].lacks("dropped", "lost")
	})
}

// Without a fault the lock suffices: that redis-only oversells above is due to the fault. A machine that stands still for
// longer than the TTL is a fault too, so a race that lost a lease shows nothing.
func TestRace_WithItsLockRedisOnlySellsExactly(t *testing.T) {
	t.Parallel()
	s := serve(t)
	settings := Settings{Seed: 1, Strategies: []string{"redis-only"}, Clients: 24, Size: 20, Fault: NoFault}
	s.shows(settings, func(r Result) string {
		l := r.Lanes[0]
		if slices.Contains(l.kinds(), "lost") {
			return "a lease was lost"
		}
		if !l.Verdict.Holds {
			t.Errorf("redis-only: %+v", l.Verdict)
		}
		if l.Verdict.Text != "sold 20 of 20" {
			return "redis-only did not sell the stock"
		}
		return ""
	})
}

func TestRace_APausedHolderLosesItsLeaseAndNoUnitIsSoldTwice(t *testing.T) {
	t.Parallel()
	s := serve(t)
	settings := Settings{Seed: 2, Strategies: []string{"redis+row", "combined"}, Clients: 16, Size: 10, Fault: Pause}
	s.shows(settings, func(r Result) string {
		for _, l := range r.Lanes {
			events := map[int][]string{}
			for _, e := range l.Events {
				events[e.Attempt] = append(events[e.Attempt], e.Kind)
			}
			held := false
			for _, kinds := range events {
				paused, lost := slices.Index(kinds, "paused"), slices.Index(kinds, "lost")
				held = held || slices.Contains(kinds, "acquired") && paused >= 0 && paused < lost && !slices.Contains(kinds, "committed")
			}
			if !held {
				return l.Strategy + ": no holder lost its lease by a pause and wrote nothing"
			}
		}
		return ""
	})
}

// The strategies that the tests above do not run.
func TestRace_TheOtherSafeStrategiesSellExactly(t *testing.T) {
	t.Parallel()
	for _, pair := range [][]string{{"row", "atomic"}, {"optimistic", "serializable"}, {"advisory", "advisory-try"}} {
		t.Run(strings.Join(pair, ","), func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			s.shows(Settings{Seed: 3, Strategies: pair, Clients: 24, Size: 8, Fault: Drop}, func(r Result) string {
				for _, l := range r.Lanes {
					if l.Verdict.Text != "sold 8 of 8" {
						return l.Strategy + " did not sell the stock"
					}
				}
				return ""
			})
		})
	}
}

// Kleppmann's late write: the paused holder has sent it before its lease ended, and it arrives after the next holders
// have written.
func TestRace_ALateWriteMovesMoneyTwiceUnlessItIsFenced(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.shows(Settings{Seed: 1, Flow: "transfer", Clients: 16, Size: 32}, func(r Result) string {
		unfenced, fenced := r.Lanes[0], r.Lanes[1]
		switch {
		case r.Fault != Pause || unfenced.Strategy != "etcd-unfenced" || fenced.Strategy != "etcd-fence-only":
			t.Fatalf("the default is %+v", r.Settings)
		case unfenced.Verdict.Holds || !strings.HasPrefix(unfenced.Verdict.Text, "money moved twice: "):
			return "etcd-unfenced moved no money twice"
		case fenced.Verdict.Figures["paid"] != fenced.Verdict.Figures["debited"] || !strings.HasPrefix(fenced.Verdict.Text, "paid "):
			t.Errorf("etcd-fence-only: %+v", fenced.Verdict)
		case !slices.ContainsFunc(unfenced.Events, func(e Event) bool { return e.Kind == "committed" && e.Note == "arrived late" }):
			return "no late write of etcd-unfenced arrived"
		}
		return unfenced.lacks("asked", "acquired", "read", "paused", "lost", "resumed", "done") + fenced.lacks("acquired", "paused", "lost", "released", "stale")
	})
}

// Without a fault the lease suffices: that etcd-unfenced loses money above is due to the late write.
func TestRace_WithItsLeaseEtcdUnfencedMovesMoneyOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.shows(Settings{Seed: 1, Flow: "transfer", Strategies: []string{"etcd-unfenced"}, Clients: 8, Size: 12, Fault: NoFault}, func(r Result) string {
		l := r.Lanes[0]
		if slices.Contains(l.kinds(), "lost") {
			return "a lease was lost"
		}
		if !l.Verdict.Holds {
			t.Errorf("etcd-unfenced: %+v", l.Verdict)
		}
		if l.Verdict.Text != "paid 1200.00 EUR, each payment debited once" || l.Samples[len(l.Samples)-1].Wait99 <= 0 {
			return "etcd-unfenced did not make all payments"
		}
		return ""
	})
}

func TestRace_NaiveLosesCreditsAndLockidNone(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.shows(Settings{Seed: 1, Flow: "wallet", Clients: 16, Size: 24}, func(r Result) string {
		naive, lockid := r.Lanes[0], r.Lanes[1]
		switch {
		case r.Fault != NoFault || naive.Strategy != "naive" || lockid.Strategy != "lockid":
			t.Fatalf("the default is %+v", r.Settings)
		case naive.Verdict.Holds || !strings.Contains(naive.Verdict.Text, "lost: "):
			return "naive lost no credit"
		case lockid.Verdict.Text != "24 credits, each of them in the balance; no bonus asked for twice":
			return "lockid did not make all credits"
		}
		return naive.lacks("read", "called", "committed") + lockid.lacks("acquired", "read", "called", "committed", "released", "done")
	})
}

func TestRace_TxnCallsTheBonusServiceTwice(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.shows(Settings{Seed: 1, Flow: "wallet", Strategies: []string{"txn", "combined"}, Clients: 16, Size: 24, Fault: NoFault}, func(r Result) string {
		txn, combined := r.Lanes[0].Verdict, r.Lanes[1].Verdict
		switch {
		case txn.Holds || txn.Broken["side-effects (W-SIDE)"] < 1 || !strings.Contains(txn.Text, "the bonus service was called twice for "):
			return "txn called the bonus service once for each credit"
		case txn.Figures["lost"] != 0:
			t.Errorf("txn: %+v", txn)
		case combined.Figures["applied"] != 24:
			return "combined did not make all credits"
		}
		return ""
	})
}

// The audit of a race is the last that needs MongoDB, which may be gone by then.
func TestRace_AnAuditWithoutMongoDBIsAnError(t *testing.T) {
	t.Parallel()
	s := serve(t)
	race, err := Open(t.Context(), s.cfg, Settings{Flow: "wallet", Clients: 2, Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer race.Close()
	l, network := race.lanes[0], &link{}
	scene := l.scene.(*credit)
	if scene.db, err = scene.connect(l, network); err != nil {
		t.Fatal(err)
	}
	network.cut(time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if found, text, err := scene.audit(ctx, Figures{}); err == nil || found != nil || text != "" {
		t.Errorf("got %v %q, %v", found, text, err)
	}
}

// Each strategy, under the faults of its flow.
func TestRace_OfTheOtherStrategiesTheSafeOnesHoldAndOnlyTheWrongBreak(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flow  string
		fault Fault
		names []string
		has   string // an event of the last
	}{
		{"inventory", Cut, []string{"combined", "redis+row"}, "cut"},
		{"transfer", Drop, []string{"etcd-unfenced", "etcd-fenced"}, "stale"},
		{"transfer", Cut, []string{"naive", "etcd-fenced"}, "cut"},
		{"transfer", Pause, []string{"combined", "etcd-fenced"}, "resumed"},
		{"transfer", NoFault, []string{"lease-id-fence", "row"}, "done"},
		{"transfer", NoFault, []string{"serializable"}, "done"},
		{"wallet", Pause, []string{"naive", "lockid"}, "resumed"},
		{"wallet", Cut, []string{"lock-late", "lockid"}, "cut"},
		{"wallet", NoFault, []string{"constant-lock", "inc"}, "called"},
	} {
		t.Run(c.flow+" "+string(c.fault)+" "+strings.Join(c.names, ","), func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			s.shows(Settings{Seed: 3, Flow: c.flow, Strategies: c.names, Clients: 16, Size: 24, Fault: c.fault}, func(r Result) string {
				for _, l := range r.Lanes {
					if !l.Safe && l.Verdict.Holds && l.Strategy != "lock-late" {
						return l.Strategy + " broke nothing"
					}
				}
				return r.Lanes[len(r.Lanes)-1].lacks(c.has)
			})
		})
	}
}

func TestRace_TheStreamEndsWithTheVerdictAndOneRunsAtATime(t *testing.T) {
	t.Parallel()
	s := serve(t)
	settings := Settings{Seed: 1, Strategies: []string{"naive", "row"}, Clients: 32, Size: 20, Fault: NoFault}
	const body = `{"seed":1,"strategies":["naive","row"],"clients":32,"size":20,"fault":"none"}`
	path := s.start(settings)
	var refusal struct{ Error string }
	if res := s.send("POST", "/lab/races", body, &refusal); res.StatusCode != http.StatusConflict || !strings.Contains(refusal.Error, "is running") {
		t.Errorf("a second race: %s %q", res.Status, refusal.Error)
	}
	if _, err := Open(t.Context(), s.cfg, settings); err == nil || !strings.Contains(err.Error(), ErrRunning.Error()) {
		t.Errorf("a second race from another process: %v", err)
	}
	kinds, last := s.stream(path+"/events", "")
	if len(kinds) < 5 || kinds[0] != "progress" || kinds[len(kinds)-1] != "verdict" || !strings.Contains(last, `"text":"sold `) {
		t.Errorf("%d messages %v, the last %s", len(kinds), kinds, last)
	}
	if again, verdict := s.stream(path+"/events", "2"); len(again) != len(kinds)-3 || verdict != last {
		t.Errorf("after the third message there are %d of %d", len(again), len(kinds))
	}
	for _, foreign := range []string{"9223372036854775807", "100000", "-1"} { // not an id of this run
		if again, verdict := s.stream(path+"/events", foreign); len(again) != len(kinds) || verdict != last {
			t.Errorf("after message %s there are %d of %d", foreign, len(again), len(kinds))
		}
	}
	settings.Clients, settings.Size = 2, 1
	s.stream(s.start(settings)+"/events", "") // a client that has the verdict may start the next race
}

func TestLab_StopEndsARace(t *testing.T) {
	t.Parallel()
	s := serve(t)
	path := s.start(Settings{Seed: 1, Strategies: []string{"row"}, Clients: 2, Size: 200, Fault: NoFault})
	s.lab.Stop()
	if kinds, last := s.stream(path+"/events", ""); kinds[len(kinds)-1] != "failed" || !strings.Contains(last, "stopped") {
		t.Errorf("%v, the last %s", kinds, last)
	}
}

func TestLab_BadRequestsGetAClearAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const good = `{"seed":1,"strategies":["naive","row"],"clients":16,"size":20,"fault":"none"}`
	for wrong, want := range map[string]string{
		strings.Replace(good, "naive", "hope", 1):                                                               `no strategy "hope"`,
		strings.Replace(good, `"naive",`, `"row","row",`, 1):                                                    "3 strategies",
		strings.Replace(good, `"seed":1`, `"flow":"x"`, 1):                                                      `no flow "x"`,
		strings.Replace(good, `"seed"`, `"flow":"wallet","seed"`, 1):                                            `no strategy "row"`,
		strings.Replace(good, "none", "drop", 1)[:1] + `"flow":"wallet","strategies":["naive"],"fault":"drop"}`: `no fault "drop"`,
		strings.Replace(good, "16", "1000", 1):                                                                  "1000 clients, want 2 to 64",
		strings.Replace(good, "20", "-1", 1):                                                                    "a size of -1",
		strings.Replace(good, "none", "fire", 1):                                                                `no fault "fire"`,
		strings.Replace(good, `"seed":1`, `"seed":-1`, 1):                                                       "seed",
		strings.Replace(good, "size", "sizes", 1):                                                               "sizes",
		"{":                                    "invalid settings",
		good[:10] + strings.Repeat(" ", 8<<10): "too large",
	} {
		var answer struct{ Error string }
		if res := s.send("POST", "/lab/races", wrong, &answer); res.StatusCode != http.StatusBadRequest || !strings.Contains(answer.Error, want) {
			t.Errorf("%.60s: %s %q, want %q", wrong, res.Status, answer.Error, want)
		}
	}
	for _, path := range []string{"/lab/races/none", "/lab/races/none/events"} {
		if res := s.send("GET", path, "", nil); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), "POST", s.url+"/lab/races", strings.NewReader(good))
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	renamed, _ := http.NewRequestWithContext(t.Context(), "POST", s.url+"/lab/races", strings.NewReader(good))
	renamed.Host = "example.com" // a name of another site that leads to 127.0.0.1
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, foreign := range []*http.Request{req, renamed} {
		res, err := client.Do(foreign)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden {
			t.Errorf("another site's page: %s", res.Status)
		}
	}
}

// PostgreSQL cuts a long name off, and the tables of a race could be those of another schema.
func TestOpen_RefusesASchemaWhoseNameWouldBeCutOff(t *testing.T) {
	t.Parallel()
	s := serve(t)
	if _, err := makeTables(t.Context(), site{Config: s.cfg, name: strings.Repeat("s", nameMax+1)}, inventory.Migrate); err == nil || !strings.Contains(err.Error(), "63") {
		t.Errorf("got %v", err)
	}
}

func TestLab_ThePageMayLoadNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, path := range []string{"/", "/lab/lab.js", "/lab/lab.css", "/lab/uplot/uPlot.iife.min.js", "/lab/uplot/uPlot.min.css"} {
		res := s.send("GET", path, "", nil)
		policy := res.Header.Get("Content-Security-Policy")
		if res.StatusCode != http.StatusOK || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %s %q", path, res.Status, policy)
		}
	}
}

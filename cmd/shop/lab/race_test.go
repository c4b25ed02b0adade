package lab

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// oversold recounts in the tables of a lane, with SQL of its own.
func (s *served) oversold(lane int) (n int64) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.cfg.PostgresURL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(s.t.Context())
	var schema string
	if err := conn.QueryRow(s.t.Context(), `SELECT current_schema()`).Scan(&schema); err != nil {
		s.t.Fatal(err)
	}
	prefix := pgx.Identifier{fmt.Sprintf("%s_race_%d", schema, lane)}.Sanitize()
	err = conn.QueryRow(s.t.Context(), `
		SELECT (SELECT count(*) FROM `+prefix+`.orders) - (SELECT sum(quantity) FROM `+prefix+`.stock_movements WHERE kind = 'opening')`).Scan(&n)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

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
	settings := Settings{Seed: 7, Strategies: []string{"naive", "redis+row"}, Clients: 24, Stock: 20, Fault: NoFault}
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
		case naive.Verdict.Holds || naive.Verdict.Oversold < 1 || !strings.Contains(naive.Verdict.Text, "disappointed"):
			return "naive did not oversell"
		case double.Verdict.Text != "sold 20 of 20":
			return "redis+row did not sell the stock"
		case last.Stock != double.Verdict.Stock || last.Answered != demand*20 || last.Wait99 <= 0:
			return fmt.Sprintf("the last sample is %+v", last)
		case len(fences) < 10:
			return fmt.Sprintf("%d fences for 20 sales", len(fences))
		}
		return double.lacks("asked", "acquired", "read", "committed", "released", "sold", "refused")
	})
	if r.Seed != 7 || !strings.Contains(r.Command, "--seed 7 --strategy naive --strategy redis+row --clients 24 --stock 20 --fault none") {
		t.Errorf("seed %d, command %s", r.Seed, r.Command)
	}
}

func TestRace_WithoutItsLockRedisOnlyOversells(t *testing.T) {
	t.Parallel()
	s := serve(t)
	settings := Settings{Seed: 1, Strategies: []string{"redis-only", "redis+row"}, Clients: 24, Stock: 20, Fault: Drop}
	s.shows(settings, func(r Result) string {
		switch {
		case r.Lanes[0].Verdict.Holds || r.Lanes[0].Verdict.Oversold < 1:
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
	settings := Settings{Seed: 1, Strategies: []string{"redis-only"}, Clients: 24, Stock: 20, Fault: NoFault}
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
	settings := Settings{Seed: 2, Strategies: []string{"redis+row", "combined"}, Clients: 16, Stock: 10, Fault: Pause}
	s.shows(settings, func(r Result) string {
		for _, l := range r.Lanes {
			events := map[int][]string{}
			for _, e := range l.Events {
				events[e.Purchase] = append(events[e.Purchase], e.Kind)
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
			s.shows(Settings{Seed: 3, Strategies: pair, Clients: 24, Stock: 8, Fault: Drop}, func(r Result) string {
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

func TestRace_TheStreamEndsWithTheVerdictAndOneRunsAtATime(t *testing.T) {
	t.Parallel()
	s := serve(t)
	settings := Settings{Seed: 1, Strategies: []string{"naive", "row"}, Clients: 32, Stock: 20, Fault: NoFault}
	const body = `{"seed":1,"strategies":["naive","row"],"clients":32,"stock":20,"fault":"none"}`
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
	settings.Clients, settings.Stock = 2, 1
	s.stream(s.start(settings)+"/events", "") // a client that has the verdict may start the next race
}

func TestLab_StopEndsARace(t *testing.T) {
	t.Parallel()
	s := serve(t)
	path := s.start(Settings{Seed: 1, Strategies: []string{"row"}, Clients: 2, Stock: 200, Fault: NoFault})
	s.lab.Stop()
	if kinds, last := s.stream(path+"/events", ""); kinds[len(kinds)-1] != "failed" || !strings.Contains(last, "stopped") {
		t.Errorf("%v, the last %s", kinds, last)
	}
}

func TestLab_BadRequestsGetAClearAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const good = `{"seed":1,"strategies":["naive","row"],"clients":16,"stock":20,"fault":"none"}`
	for wrong, want := range map[string]string{
		strings.Replace(good, "naive", "hope", 1):            `no strategy "hope"`,
		strings.Replace(good, `"naive",`, `"row","row",`, 1): "3 strategies",
		strings.Replace(good, `"naive","row"`, "", 1):        "0 strategies",
		strings.Replace(good, "16", "1000", 1):               "1000 clients, want 2 to 64",
		strings.Replace(good, "20", "0", 1):                  "a stock of 0",
		strings.Replace(good, "none", "fire", 1):             `no fault "fire"`,
		strings.Replace(good, `"seed":1`, `"seed":-1`, 1):    "seed",
		strings.Replace(good, "stock", "stocks", 1):          "stocks",
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
	pool, err := openPool(t.Context(), s.cfg.PostgresURL, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := makeTables(t.Context(), pool, s.cfg.PostgresURL, strings.Repeat("s", nameMax+1)); err == nil || !strings.Contains(err.Error(), "63") {
		t.Errorf("got %v", err)
	}
}

func TestLab_ThePageMayLoadNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for _, path := range []string{"/", "/lab/lab.js", "/lab/lab.css"} {
		res := s.send("GET", path, "", nil)
		policy := res.Header.Get("Content-Security-Policy")
		if res.StatusCode != http.StatusOK || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %s %q", path, res.Status, policy)
		}
	}
}

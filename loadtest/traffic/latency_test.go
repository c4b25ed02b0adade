// SPDX-License-Identifier: MIT

package traffic

import (
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest/internal/testbed"
)

func TestPercentiles_AreValuesOfTheListAndNotEstimates(t *testing.T) {
	var all []time.Duration
	for ms := 1000; ms >= 1; ms-- { // not sorted
		all = append(all, time.Duration(ms)*time.Millisecond)
	}
	for _, c := range []struct {
		name string
		of   []time.Duration
		want Percentiles
	}{
		{"none", nil, Percentiles{}},
		{"one", []time.Duration{7 * time.Millisecond}, Percentiles{1, 7, 7, 7, 7, 7}},
		{"two", []time.Duration{9 * time.Millisecond, time.Millisecond}, Percentiles{2, 1, 9, 9, 9, 9}},
		{"a thousand", all, Percentiles{1000, 500, 900, 990, 999, 1000}},
		{"and one more", append(all[:1000:1000], time.Minute), Percentiles{1001, 501, 901, 991, 1000, 60000}},
	} {
		if diff := cmp.Diff(c.want, percentiles(c.of)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// answered is an attempt that ended at a time, in milliseconds, with an outcome.
func answered(start, end int, outcome Outcome, status int) Attempt {
	return Attempt{Start: time.Duration(start) * time.Millisecond, End: time.Duration(end) * time.Millisecond, Outcome: outcome, Status: status, Sends: 1}
}

func TestLatency_CountsFromThePlannedStartToTheDecision(t *testing.T) {
	planned := func(i Intent, outcome Outcome, attempts ...Attempt) Record {
		return Record{Intent: i, Planned: 100 * time.Millisecond, Outcome: outcome, Attempts: attempts}
	}
	for _, c := range []struct {
		name   string
		record Record
		want   Latency
	}{
		{
			"sent late, refused a connection, then busy, then done, then asked again",
			planned(Intent{}, OK, answered(110, 112, Open, 0), answered(150, 160, Open, 503), answered(300, 400, OK, 201), answered(900, 910, OK, 201)),
			Latency{Decided: one(300), FirstAnswer: one(60), Lag: one(10)},
		},
		{
			"a duplicate that was decided first",
			planned(Intent{}, OK, answered(101, 140, Open, 409), answered(100, 170, OK, 201), answered(100, 180, OK, 201)),
			Latency{Decided: one(70), FirstAnswer: one(40), Lag: one(0)},
		},
		{
			"undecided: it took until the end at least",
			planned(Intent{}, Unknown, answered(100, 700, Unknown, 0)),
			Latency{Decided: one(900), Lag: one(0)},
		},
		{"never sent", planned(Intent{}, Open), Latency{Decided: one(900)}},
		{"given up", planned(Intent{GivesUp: true}, Open, answered(100, 120, Open, 503)), Latency{FirstAnswer: one(20), Lag: one(0)}},
		{"a read", planned(Intent{Reads: true}, OK, answered(100, 105, OK, 200)), Latency{Reads: one(5), Lag: one(0)}},
	} {
		if diff := cmp.Diff(c.want, LatencyOf([]Record{c.record}, time.Second)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// one is a list with one value.
func one(ms float64) Percentiles { return Percentiles{1, ms, ms, ms, ms, ms} }

func TestLagging_ALateGeneratorMakesARunInconclusive(t *testing.T) {
	const second = 1000
	for lag, want := range map[Percentiles]int{
		{}: 0,
		{P50: 900, P99: 1 * second, Max: 9 * second}: 0,
		{P50: 1, P99: 1*second + 1}:                  1,
	} {
		if got := Lagging(lag); len(got) != want {
			t.Errorf("%+v: %q, want %d reasons", lag, got, want)
		}
	}
}

// The start of each key is planned before the first request is sent, and does not change when the
// generator is late.
func TestRun_LatenciesOfASlowServiceCountFromThePlannedTime(t *testing.T) {
	const planned = 50 * time.Millisecond
	var n atomic.Int64
	bases := testbed.Serve(t, 2, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Idempotency-Key") == "first" && n.Add(1) <= 2 {
			testbed.Problem(w, http.StatusServiceUnavailable, "busy")
			return
		}
		testbed.Created(w, order1)
	})
	run, err := NewRun(t.Context(), bases, oneClient, time.Minute, classify, refusals...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	run.Follow = func(r Record) []ScheduledRequest {
		if r.Key == "first" {
			return []ScheduledRequest{{planned, 0, buy("follow-up")}}
		}
		return nil
	}
	first := buy("first")
	before := run.History.Now()
	sent := run.Send(t.Context(), []ScheduledRequest{{0, 0, first}, {0, 1, first}, {planned, 0, buy("second")}})
	if len(sent) != 3 {
		t.Errorf("vegeta sent %d requests, want 3: its file is of the plan's requests alone", len(sent))
	}
	records := map[string]Record{}
	for _, r := range run.History.Records() {
		records[r.Key] = r
		if started, was := r.started(); !was || started < r.Planned {
			t.Errorf("%s: sent at %v, planned for %v", r.Key, started, r.Planned)
		}
	}
	if first := records["first"]; first.Planned < before || len(first.Attempts) < 3 || first.DecidedAt(0) <= first.Attempts[2].Start {
		t.Errorf("busy twice: %+v; want it to be planned at the beginning, and decided by its third answer", first)
	}
	if d := records["second"].Planned - records["first"].Planned; d != planned {
		t.Errorf("the second is planned %v after the first, want %v", d, planned)
	}
	if d := records["follow-up"].Planned - records["first"].DecidedAt(0); d < planned {
		t.Errorf("the follow-up is planned %v after the answer that gave rise to it, want %v", d, planned)
	}
}

// The control of the lag: requests that are sent after their planned time.
func TestRun_AGeneratorThatIsLateIsMeasured(t *testing.T) {
	bases := testbed.Serve(t, 1, func(w http.ResponseWriter, _ *http.Request) { testbed.Created(w, order1) })
	run, err := NewRun(t.Context(), bases, oneClient, time.Second, classify, refusals...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	run.Send(t.Context(), []ScheduledRequest{{-3 * time.Second, 0, buy("late")}})
	lag := LatencyOf(run.History.Records(), run.History.Now()).Lag
	if lag.N != 1 || lag.P99 < 3000 || len(Lagging(lag)) != 1 {
		t.Errorf("%+v, want 3 s at least, and the run to show nothing", lag)
	}
}

// The page of the report and docs/results.md define p50 and p99.
func TestLatency_IsDefinedWhereItIsShown(t *testing.T) {
	for _, page := range []string{"../report/report.html", "../../docs/results.md"} {
		text, err := os.ReadFile(page)
		if err != nil || !strings.Contains(string(text), "from the planned start of a key to its decision") {
			t.Errorf("%s does not say from when to when latencies are (%v)", page, err)
		}
	}
}

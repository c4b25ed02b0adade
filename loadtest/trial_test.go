// SPDX-License-Identifier: MIT

package loadtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/judge"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
)

func TestTrial_ARefusalThatTheFlowStoresMustBeTheSameAgain(t *testing.T) {
	var sent atomic.Int64
	bases := testbed.Serve(t, 1, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintf(w, `{"type":"/problems/seat-taken","seat":%d}`, sent.Add(1))
	})
	r := &Trial{
		Scenario: Scenario{Flow: &Flow{Answers: Answers{Stored: []string{"seat-taken"}}}}, proof: &Proof{}, Clients: []Credentials{{}},
		Replicas: site.At(strings.TrimPrefix(bases[0], "http://")), duration: time.Minute,
	}
	if err := r.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	seat := buyOne("k")
	r.Settle(t.Context(), 0, seat)
	r.Again(t.Context(), seat)
	r.Wait()
	if got := r.History.Record("k"); got.Outcome != traffic.Rejected || !got.Diverged || len(got.Attempts) != 2 {
		t.Errorf("%s after %d attempts, diverged %v; want %s and another seat to be noticed", got.Outcome, len(got.Attempts), got.Diverged, traffic.Rejected)
	}
}

func TestTrial_EachSuccessThatIsMissingBreaksLiveness(t *testing.T) {
	h := traffic.NewHistory()
	r := &Trial{
		Scenario: Scenario{Flow: &Flow{}}, proof: &Proof{}, Run: &traffic.Run{History: h}, silent: []string{"a silent key"},
		events: []fault.Event{{What: "a fault", At: h.Epoch, Until: h.Epoch}},
	}
	found := strings.Join(r.lifeless([]traffic.Record{{Intent: traffic.Intent{Key: "an open key"}, Outcome: traffic.Open}}), "; ")
	for _, sign := range []string{"a fault", "a silent key", "an open key"} {
		if !strings.Contains(found, sign) {
			t.Errorf("%q is not in %q", sign, found)
		}
	}
}

// A fault that fails has not done what the scenario is about: its run is void, the proof continues, and what a fault
// leaves behind does not count as a violation.
func TestTrial_AFaultThatFailsIsAReasonForASecondRun(t *testing.T) {
	bases := testbed.Serve(t, 1, http.NotFound)
	r := &Trial{
		Scenario: Scenario{Fault: "crash", Flow: &Flow{
			Watch: func(context.Context, *Trial) ([]judge.Sample, error) { return nil, nil },
		}},
		proof: &Proof{Tick: func(string) {}}, Clients: []Credentials{{}}, fault: failing{},
		Replicas: site.At(strings.TrimPrefix(bases[0], "http://")),
	}
	if err := r.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.load(t.Context()); err != nil {
		t.Fatal("the proof is over: ", err)
	}
	result := r.result(nil, nil)
	if want := []string{"fault crash: EOF"}; !slices.Equal(result.Missed[len(result.Missed)-1:], want) || len(result.Missed) != len(result.Inconclusive) {
		t.Errorf("missed %q, inconclusive %q; want %q last in both", result.Missed, result.Inconclusive, want)
	}
	if len(r.events) != 1 || r.events[0].Until.IsZero() {
		t.Errorf("%+v, want one event with an end", r.events)
	}
}

// failing is a fault that fails after it has done something.
type failing struct{}

func (failing) Inject(context.Context, time.Duration) ([]fault.Event, error) {
	return []fault.Event{{What: "a kill", At: time.Now()}}, errors.New("EOF")
}

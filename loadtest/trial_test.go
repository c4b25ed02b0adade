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
	"shop/locking/invariant"
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
		events: []fault.Event{{What: "a fault", At: h.Epoch, Until: h.Epoch}}, Replicas: site.At(),
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
	result := r.result(nil, nil, nil)
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

// What an experiment does not show is no reason for a second run: only what did not happen is.
func TestTrial_AnExperimentHasAReplicaWithoutLoadAndReasonsOfItsOwn(t *testing.T) {
	var addrs []string
	for _, base := range testbed.Serve(t, 3, http.NotFound) {
		addrs = append(addrs, strings.TrimPrefix(base, "http://"))
	}
	flow := &Flow{Name: "f", Plan: func(l traffic.Load) traffic.Plan { return traffic.Plan{Clients: l.Replicas} }}
	s := Scenario{Flow: flow, Experiment: experiment{}}
	proof := &Proof{Load: traffic.Load{Replicas: 3}, LockTTL: map[string]time.Duration{"f": time.Second}}
	load := proof.loadOf(s)
	if plan := s.plan(load); load.Duration != 7*time.Second || plan.Clients != 2 || plan.Given != "supplied" {
		t.Errorf("load %+v, plan %+v", load, plan)
	}
	r := &Trial{Scenario: s, proof: proof, Clients: []Credentials{{}}, Replicas: site.At(addrs...), Tried: "a result"}
	if err := r.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if len(r.Bases) != 2 || r.Victim() != 2 {
		t.Errorf("load on %q, the victim is %d", r.Bases, r.Victim())
	}
	result := r.result(nil, nil, []string{"a reason"})
	if slices.Contains(result.Missed, "a reason") || !slices.Contains(result.Inconclusive, "a reason") || result.Cells != "a result" {
		t.Errorf("missed %q, inconclusive %q, found %v", result.Missed, result.Inconclusive, result.Cells)
	}
}

type experiment struct{}

func (experiment) Lasts(ttl time.Duration) time.Duration                   { return 7 * ttl }
func (experiment) Supply(p *traffic.Plan)                                  { p.Given = "supplied" }
func (experiment) Judge(Verdict, any) (f invariant.Findings, why []string) { return f, why }

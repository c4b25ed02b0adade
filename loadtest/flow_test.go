// SPDX-License-Identifier: MIT

package loadtest

import (
	"net/http"
	"testing"
	"time"

	"shop/loadtest/judge"
	"shop/loadtest/traffic"
)

// lessons has the refusals of all three lessons.
var lessons = &Flow{Answers: Answers{Stored: []string{"out-of-stock", "already-cancelled", "insufficient-funds", "expired", "already-settled"}}}

// anyClient has headers with nothing but the idempotency key.
var anyClient = traffic.Headers{Key: "Idempotency-Key", Clients: []http.Header{{}}}

func buyOne(key string) *traffic.Intent {
	return &traffic.Intent{Key: key, Action: "buy", Method: http.MethodPost, Path: "/v1/orders", Body: []byte(`{}`), Contends: []string{"a cup"}}
}

// A new flow needs no change of the engine: its own refusals decide a key of its own service only.
func TestClassify_AFlowsOwnRefusalsAreFinalForItAlone(t *testing.T) {
	header := http.Header{"Content-Type": {"application/problem+json; charset=utf-8"}}
	body := []byte(`{"type":"/problems/seat-taken","title":"x","status":409}`)
	seats := &Flow{Answers: Answers{Stored: []string{"seat-taken"}}}
	if got, kind := seats.Classify(http.StatusConflict, header, body); got != traffic.Rejected || kind != "seat-taken" {
		t.Errorf("a stored refusal of the flow: %s %q, want %s", got, kind, traffic.Rejected)
	}
	if got, _ := lessons.Classify(http.StatusConflict, header, body); got != traffic.Unknown {
		t.Errorf("of another flow: %s, want %s", got, traffic.Unknown)
	}
}

func TestPace_AFaultMayHaveBoundsOfItsOwn(t *testing.T) {
	const ttl = time.Second
	flow := &Flow{Faults: []FaultSpec{{Fault: Crash, Recovery: time.Second, CatchUp: time.Minute}, {Fault: Nemesis, CatchUp: time.Minute}}}
	const second = time.Second
	for fault, want := range map[Fault]judge.Pace{
		NoFault: {Lull: 4 * second, Recover: 7 * second, After: second}, // LiveMargin and RecoverMargin are 3 s each
		Crash:   {Lull: 5 * second, Recover: 8 * second, After: time.Minute},
		Nemesis: {Lull: 4 * second, Recover: 7 * second, After: 4 * second},
	} {
		if got := flow.pace(fault, ttl); got != want {
			t.Errorf("%s: %+v, want %+v", fault, got, want)
		}
	}
}

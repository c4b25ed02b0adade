// SPDX-License-Identifier: MIT

package loadtest

import (
	"net/http"
	"testing"
)

const (
	ordered       = "00000000-0000-0000-0000-000000000001"
	orderedBefore = "00000000-0000-0000-0000-000000000002"
)

// lessons has the refusals of all three lessons.
var lessons = &Flow{Stored: []string{"out-of-stock", "already-cancelled", "insufficient-funds", "expired", "already-settled"}}

// anyClient has headers with nothing but the idempotency key.
var anyClient = Headers{"Idempotency-Key", []http.Header{{}}}

func buyOne(key string) *Intent {
	return &Intent{Key: key, Action: "buy", Method: http.MethodPost, Path: "/v1/orders", Body: []byte(`{}`), Contends: []string{"a cup"}}
}

// A new flow needs no change of the engine: its own refusals decide a key of its own service only.
func TestClassify_AFlowsOwnRefusalsAreFinalForItAlone(t *testing.T) {
	header := http.Header{"Content-Type": {"application/problem+json; charset=utf-8"}}
	body := []byte(`{"type":"/problems/seat-taken","title":"x","status":409}`)
	seats := &Flow{Stored: []string{"seat-taken"}}
	if got, kind := seats.Classify(http.StatusConflict, header, body); got != Rejected || kind != "seat-taken" {
		t.Errorf("a stored refusal of the flow: %s %q, want %s", got, kind, Rejected)
	}
	if got, _ := lessons.Classify(http.StatusConflict, header, body); got != Unknown {
		t.Errorf("of another flow: %s, want %s", got, Unknown)
	}
}

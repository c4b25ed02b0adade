// SPDX-License-Identifier: MIT

package traffic

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// refusals are those that a service stores with the key, and classify is the classification of its answers.
var refusals = []string{"out-of-stock", "already-cancelled", "insufficient-funds", "expired", "already-settled"}

func classify(status int, header http.Header, body []byte) (Outcome, string) {
	outcome, problem := Classify(status, header, body)
	if slices.Contains(refusals, problem) {
		outcome = Rejected
	}
	return outcome, problem
}

func problemBody(kind string, status int) (http.Header, []byte) {
	header := http.Header{"Content-Type": {"application/problem+json; charset=utf-8"}}
	return header, fmt.Appendf(nil, `{"type":"/problems/%s","title":"x","status":%d}`, kind, status)
}

func TestClassify_ByProblemTypeNeverByStatusAlone(t *testing.T) {
	for _, c := range []struct {
		status int
		kind   string
		want   Outcome
	}{
		{409, "out-of-stock", Rejected},
		{409, "already-cancelled", Rejected},
		{409, "insufficient-funds", Rejected},
		{409, "expired", Rejected},
		{409, "already-settled", Rejected},
		{503, "fence-epoch", Open},
		{409, "in-progress", Unknown}, // the same status, but the request may have happened
		{503, "busy", Open},
		{503, "lost", Open},
		{503, "stale", Open},
		{429, "rate-limited", Open},
		{503, "outcome-unknown", Unknown},
		{504, "timeout", Unknown},
		{500, "internal", Unknown},
		{422, "idempotency-key-reused", Rejected},
		{422, "invalid-request", Rejected},
		{404, "not-found", Rejected},
		{400, "malformed", Rejected},
		{401, "unauthorized", Rejected},
		{403, "forbidden", Rejected},
		{409, "something-new", Unknown}, // an unknown type is not final
	} {
		header, body := problemBody(c.kind, c.status)
		if got, kind := classify(c.status, header, body); got != c.want || kind != c.kind {
			t.Errorf("%d %s: got %s %q, want %s", c.status, c.kind, got, kind, c.want)
		}
	}
}

func TestClassify_AnswersWithoutAProblemAreOKOrUnknown(t *testing.T) {
	plain := http.Header{"Content-Type": {"text/plain"}}
	for status, want := range map[int]Outcome{200: OK, 201: OK, 404: Unknown, 409: Unknown, 502: Unknown, 503: Unknown} {
		if got, _ := classify(status, plain, []byte(`{"type":"/problems/out-of-stock"}`)); got != want {
			t.Errorf("%d: got %s, want %s", status, got, want)
		}
	}
	header, _ := problemBody("busy", 503)
	if got, _ := classify(503, header, []byte(`{"type":`)); got != Unknown {
		t.Errorf("a problem that cannot be read: got %s, want %s", got, Unknown)
	}
}

func TestClassifyByStatus_TrustsOnlyWhatCanMeanNothingElse(t *testing.T) {
	for status, want := range map[int]Outcome{200: OK, 404: Rejected, 409: Unknown, 429: Open, 408: Unknown, 500: Unknown, 503: Unknown} {
		if got, _ := ClassifyByStatus(status, http.Header{}, nil); got != want {
			t.Errorf("%d: got %s, want %s", status, got, want)
		}
	}
	header, body := problemBody("idempotency-key-reused", 409) // a type takes precedence
	if got, _ := ClassifyByStatus(http.StatusConflict, header, body); got != Rejected {
		t.Errorf("409 idempotency-key-reused: got %s, want %s", got, Rejected)
	}
	header, body = problemBody("of-another-service", 409)
	if got, problem := ClassifyByStatus(http.StatusConflict, header, body); got != Unknown || problem != "of-another-service" {
		t.Errorf("409 of an unknown type: got %s, %s", got, problem)
	}
}

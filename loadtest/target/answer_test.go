// SPDX-License-Identifier: MIT

package target

import (
	"net/http"
	"testing"

	"shop/loadtest/traffic"
)

func TestAnswers_MeanWhatTheFileSaysAndElseWhatTheirStatusCertainlyMeans(t *testing.T) {
	f := parsed(t, small+`answers:
  field: error.code
  ok: [409 done-before]
  rejected: [409 sold-out, 402]
  open: [503]
  unknown: [400 maybe]
`)
	for _, c := range []struct {
		status int
		body   string
		want   traffic.Outcome
		said   string
	}{
		{200, `{}`, traffic.OK, ""},
		{409, `{"error": {"code": "sold-out"}}`, traffic.Rejected, "sold-out"},
		{409, `{"error": {"code": "done-before"}}`, traffic.OK, "done-before"},
		{409, `{"error": {"code": "in-progress"}}`, traffic.Unknown, "in-progress"},
		{409, `{"error": "text"}`, traffic.Unknown, ""},
		{409, `not JSON`, traffic.Unknown, ""},
		{402, `{"error": {"code": 17}}`, traffic.Rejected, "17"},
		{503, ``, traffic.Open, ""},
		{400, `{"error": {"code": "maybe"}}`, traffic.Unknown, "maybe"},
		{400, `{"error": {"code": "bad"}}`, traffic.Rejected, "bad"},
		{429, ``, traffic.Open, ""},
		{500, ``, traffic.Unknown, ""},
	} {
		got, said := f.classify(c.status, http.Header{}, []byte(c.body))
		if got != c.want || said != c.said {
			t.Errorf("%d %s: %s %q, want %s %q", c.status, c.body, got, said, c.want, c.said)
		}
	}
}

func TestAnswers_WithoutAFieldTheProblemTypeTellsThemApart(t *testing.T) {
	f := parsed(t, small+"answers: {rejected: [409 no-seat-left]}\n")
	header := http.Header{"Content-Type": {"application/problem+json"}}
	if got, said := f.classify(409, header, []byte(`{"type": "https://example.org/problems/no-seat-left"}`)); got != traffic.Rejected || said != "no-seat-left" {
		t.Errorf("%s %q", got, said)
	}
	if got, said := f.classify(409, header, []byte(`{"type": "/problems/try-again"}`)); got != traffic.Unknown || said != "try-again" {
		t.Errorf("%s %q", got, said)
	}
}

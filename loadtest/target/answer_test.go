// SPDX-License-Identifier: MIT

package target

import (
	"net/http"
	"testing"

	"shop/loadtest"
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
		want   loadtest.Outcome
		said   string
	}{
		{200, `{}`, loadtest.OK, ""},
		{409, `{"error": {"code": "sold-out"}}`, loadtest.Rejected, "sold-out"},
		{409, `{"error": {"code": "done-before"}}`, loadtest.OK, "done-before"},
		{409, `{"error": {"code": "in-progress"}}`, loadtest.Unknown, "in-progress"},
		{409, `{"error": "text"}`, loadtest.Unknown, ""},
		{409, `not JSON`, loadtest.Unknown, ""},
		{402, `{"error": {"code": 17}}`, loadtest.Rejected, "17"},
		{503, ``, loadtest.Open, ""},
		{400, `{"error": {"code": "maybe"}}`, loadtest.Unknown, "maybe"},
		{400, `{"error": {"code": "bad"}}`, loadtest.Rejected, "bad"},
		{429, ``, loadtest.Open, ""},
		{500, ``, loadtest.Unknown, ""},
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
	if got, said := f.classify(409, header, []byte(`{"type": "https://example.org/problems/no-seat-left"}`)); got != loadtest.Rejected || said != "no-seat-left" {
		t.Errorf("%s %q", got, said)
	}
	if got, said := f.classify(409, header, []byte(`{"type": "/problems/try-again"}`)); got != loadtest.Unknown || said != "try-again" {
		t.Errorf("%s %q", got, said)
	}
}

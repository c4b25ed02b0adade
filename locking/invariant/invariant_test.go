// SPDX-License-Identifier: MIT

package invariant

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const file = `-- A header that the parser ignores: it has a colon.
-- invariant: S1 stock-balance: the stock is right

-- name: S1 lines
-- finds: product
-- A remark.
SELECT 1;

-- name: none lost
SELECT 2
WHERE true;
-- number: oversold
-- finds: units
SELECT 3;
SELECT 4`

func TestParse_NamesQueriesAndAssignsThemToTheirInvariant(t *testing.T) {
	want := Set{
		Invariants: []Invariant{{"S1", "stock-balance", "the stock is right"}},
		Checks: []Check{
			{Name: "S1 lines", Invariant: "S1", Means: "product", Query: "SELECT 1"},
			{Name: "none lost", Invariant: "none lost", Query: "SELECT 2\nWHERE true"},
			{Name: "query 3", Invariant: "query 3", Query: "SELECT 4"},
		},
		Numbers: []Check{{Name: "oversold", Invariant: "oversold", Means: "units", Query: "SELECT 3"}},
	}
	if diff := cmp.Diff(want, Parse(file)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParse_ReadsAScriptOfMongoshToo(t *testing.T) {
	want := []Check{{Name: "M1", Invariant: "M1", Means: "wallet", Query: "db.wallets.aggregate([\n])"}}
	if diff := cmp.Diff(want, Parse("// name: M1\n// finds: wallet\ndb.wallets.aggregate([\n]);\n").Checks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFind_ReturnsTheNameOrElseTheCode(t *testing.T) {
	list := Parse(file).Invariants
	for code, want := range map[string]string{"S1": "stock-balance (S1)", "I-ONCE": "once-per-key (I-ONCE)", "none lost": "none lost"} {
		if got := Find(list, code).String(); got != want {
			t.Errorf("%s is called %q, want %q", code, got, want)
		}
	}
}

func TestRun_CountsAnIDOnceAndReturnsTheErrorOfAQuery(t *testing.T) {
	checks := []Check{{Name: "S1 a", Invariant: "S1", Query: "a"}, {Name: "S1 b", Invariant: "S1", Query: "b"}, {Name: "S2", Invariant: "S2"}}
	answers := map[string][]string{"a": {"y", "x"}, "b": {"x", "z"}}
	findings, err := Run(t.Context(), checks, func(_ context.Context, c Check) ([]string, error) { return answers[c.Query], nil })
	if diff := cmp.Diff(Findings{"S1": {3, []string{"x", "y", "z"}}, "S2": {0, nil}}, findings); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	down := errors.New("no answer")
	if _, err := Run(t.Context(), checks, func(context.Context, Check) ([]string, error) { return nil, down }); !errors.Is(err, down) {
		t.Errorf("error %v, want %v", err, down)
	}
}

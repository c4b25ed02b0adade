// SPDX-License-Identifier: MIT

package report

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"shop/loadtest"
	"shop/loadtest/judge"
	"shop/loadtest/scenario/money"
	"shop/loadtest/scenario/transfer"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

const (
	account1 = "00000000-0000-0000-0000-0000000000a1"
	account2 = "00000000-0000-0000-0000-0000000000a2"
)

// bothFlows is exampleReport with a control of transfer that was caught.
func bothFlows() loadtest.Report {
	r := exampleReport()
	const ms = time.Millisecond
	paid := func(action traffic.Action, outcome traffic.Outcome, problem string) traffic.Record {
		return traffic.Record{
			Intent: traffic.Intent{Key: "k", Action: action, Of: &transfer.Move{}}, Outcome: outcome,
			Attempts: []traffic.Attempt{{Outcome: outcome, Problem: problem, Start: 5 * ms, End: 9 * ms, Sends: 1}},
		}
	}
	naive := loadtest.NewResult(transfer.New().Controls[0], 3)
	naive.Verdict, naive.AsExpected = loadtest.Violated, true
	naive.Requests = 5
	naive.Violations = map[string]int64{"T3": 2, "T1": 0, "drift": 60}
	naive.Evidence = map[string]int64{"overlaps": 2, "late_refused": 12, "crash_after-key": 1}
	naive.Detail = loadtest.Detail{
		Scenario: naive.Scenario,
		Findings: invariant.Findings{"T3": {Count: 2, IDs: []string{account1, account2}}}, Epoch: r.When, Loaded: 5,
		Records: []traffic.Record{
			paid(transfer.Pay, traffic.OK, ""), paid(transfer.Pay, traffic.Rejected, "insufficient-funds"), paid(transfer.Reserve, traffic.OK, ""),
			paid(transfer.PostHold, traffic.OK, ""), paid(transfer.VoidHold, traffic.Rejected, "already-settled"),
			paid(transfer.Pay, traffic.OK, ""), // of the postcheck
		},
		Samples: []judge.Sample{
			{At: 0, Levels: []judge.Level{{Name: "EUR", Says: 100, True: 100}, {Name: money.DriftLevel, Says: 0}}},
			{At: 500 * ms, Levels: []judge.Level{{Name: "EUR", Says: 70, True: 100}, {Name: money.DriftLevel, Says: 60}}},
		},
	}
	r.Scenarios = append(r.Scenarios, naive)
	r.Bound["transfer"] = 5 * time.Second
	return r
}

func TestTable_EachFlowHasItsOwnWithItsOwnNumber(t *testing.T) {
	var table strings.Builder
	if err := Table(&table, bothFlows()); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(table.String(), "\n\n")
	if len(parts) != 2 || !strings.HasPrefix(parts[0], "inventory\n") || !strings.HasPrefix(parts[1], "transfer\n") {
		t.Fatalf("%s", table.String())
	}
	if !strings.Contains(parts[0], "oversold") || strings.Contains(parts[0], "drift") || !strings.Contains(parts[1], "drift") || strings.Contains(parts[1], "oversold") {
		t.Errorf("%s", table.String())
	}
}

func TestSentence_OfTheMoney(t *testing.T) {
	want := "violated: 2 moved, 1 refused for lack of funds, 1 holds, balances are off by 60 in all, 12 late writes refused; broken: account-balance (T3)"
	if diff := cmp.Diff(want, bothFlows().Scenarios[2].Sentence()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHTML_ShowsBothFlows(t *testing.T) {
	page := renderHTML(t, bothFlows())
	last := -1
	for _, piece := range []string{
		"3 scenarios, 8 operations, 1 fault: no violation in 1 safe one, both known-bad ones caught.",
		"transfer must succeed again within 5s", "<h2", "inventory", "oversold", "<h2", "transfer", "drift", `<span class="over">60</span>`,
		`id="transfer-naive-none"`, "in transfer", "balances are off by 60", `"name":"drift","color":"bad"`, "Minor units by which balances differ",
		account1, "a failpoint killed at after-key", "of these, refused by PostgreSQL: an SQL error, or no row matched",
	} {
		at := strings.Index(page[last+1:], piece)
		if at < 0 {
			t.Fatalf("%q is not on the page, or not where it should be", piece)
		}
		last += 1 + at
	}
	if strings.Contains(page, "ZgotmplZ") || strings.Contains(page, "NaN") {
		t.Error("the page is broken")
	}
}

func TestDrift_IsALineThatIsRedWhereMoneyIsLost(t *testing.T) {
	r := result{bothFlows().Scenarios[2]}
	for drift, color := range map[int64]string{60: "bad", 0: "ok"} {
		r.Violations["drift"] = drift
		if diff := cmp.Diff([]line{{Name: "drift", Color: color, Values: []any{int64(0), int64(60)}}}, r.Levels().Lines); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

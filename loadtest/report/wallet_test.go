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
	"shop/loadtest/scenario/wallet"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// threeFlows is bothFlows with a control of wallet that was caught.
func threeFlows() loadtest.Report {
	r := bothFlows()
	const ms = time.Millisecond
	asked := func(action traffic.Action, outcome traffic.Outcome, problem string) traffic.Record {
		return traffic.Record{
			Intent: traffic.Intent{Key: "k", Action: action, Of: wallet.Move{}}, Outcome: outcome,
			Attempts: []traffic.Attempt{{Outcome: outcome, Problem: problem, Start: 5 * ms, End: 9 * ms, Sends: 1}},
		}
	}
	txn := loadtest.NewResult(wallet.New(wallet.Environment{}).Controls[1], 3)
	txn.Verdict, txn.AsExpected = loadtest.Violated, true
	txn.Requests = 5
	txn.Violations = map[string]int64{"W-SIDE": 2, "M1": 0, "M2": 0, "drift": 0}
	txn.Evidence = map[string]int64{"overlaps": 2, "asked_again": 12, "conflict": 40}
	txn.Detail = loadtest.Detail{
		Scenario: txn.Scenario,
		Findings: invariant.Findings{"W-SIDE": {Count: 2, IDs: []string{"request r called the bonus service again for operation o"}}}, Epoch: r.When, Loaded: 5,
		Records: []traffic.Record{
			asked(wallet.Credit, traffic.OK, ""), asked(wallet.Credit, traffic.OK, ""), asked(wallet.Debit, traffic.Rejected, "insufficient-funds"),
			asked(wallet.Pay, traffic.OK, ""), asked(wallet.Debit, traffic.Rejected, "idempotency-key-reused"),
			asked(wallet.Debit, traffic.OK, ""), // of the postcheck
		},
		Samples: []judge.Sample{{Levels: []judge.Level{{Name: "balances", Says: 100, True: 100}, {Name: money.DriftLevel}}}},
	}
	r.Scenarios = append(r.Scenarios, txn)
	r.Bound["wallet"] = 5 * time.Second
	return r
}

func TestSentence_OfTheWallets(t *testing.T) {
	r := threeFlows().Scenarios[3]
	want := "violated: 2 credits, 0 debits, 1 payments, 1 refused for lack of funds, 12 more calls of the bonus service than credits; broken: side-effects (W-SIDE)"
	if diff := cmp.Diff(want, r.Sentence()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.Violations["drift"] = 30
	if line := r.Sentence(); !strings.Contains(line, ", balances are off by 30 in all") {
		t.Errorf("a drift: %s", line)
	}
}

func TestHTML_ShowsThreeFlows(t *testing.T) {
	page := renderHTML(t, threeFlows())
	last := -1
	for _, piece := range []string{
		"4 scenarios, 13 operations, 1 fault: no violation in 1 safe one, all 3 known-bad ones caught.",
		"wallet must succeed again within 5s", `id="wallet-txn-none"`, "request r called the bonus service again for operation o",
		"of these, more than there are credits",
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

func TestTable_WalletsHaveTheirOwn(t *testing.T) {
	var table strings.Builder
	if err := Table(&table, threeFlows()); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(table.String(), "\n\n")
	if len(parts) != 3 || !strings.HasPrefix(parts[2], "wallet\n") || !strings.Contains(parts[2], "drift") {
		t.Errorf("%s", table.String())
	}
}

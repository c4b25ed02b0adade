package loadtest

import (
	"strings"
	"testing"
	"time"

	"shop/locking/invariant"

	"github.com/google/go-cmp/cmp"
)

// bothFlows is exampleReport with a control of the money that was caught.
func bothFlows() Report {
	r := exampleReport()
	const ms = time.Millisecond
	paid := func(action Action, outcome Outcome, problem string) Record {
		return Record{
			Intent: Intent{Key: "k", Action: action, Move: &Move{}}, Outcome: outcome,
			Attempts: []Attempt{{Outcome: outcome, Problem: problem, Start: 5 * ms, End: 9 * ms, Sends: 1}},
		}
	}
	naive := newResult(moneyControl("naive", NoFault), 3)
	naive.Verdict, naive.AsExpected = Violated, true
	naive.Requests = 5
	naive.Violations = map[string]int64{"T3": 2, "T1": 0, "drift": 60}
	naive.Evidence = map[string]int64{"overlaps": 2, "late_refused": 12, "crash_after-key": 1}
	naive.Detail = Detail{
		Findings: invariant.Findings{"T3": {Count: 2, IDs: []string{account1, account2}}}, Epoch: r.When,
		Records: []Record{
			paid(Pay, OK, ""), paid(Pay, Rejected, "insufficient-funds"), paid(Reserve, OK, ""),
			paid(PostHold, OK, ""), paid(VoidHold, Rejected, "already-settled"),
			paid(Pay, OK, ""), // of the finale
		},
		Samples: []Sample{
			{0, []Level{{"EUR", 100, 100}, {driftLevel, 0, 0}}},
			{500 * ms, []Level{{"EUR", 70, 100}, {driftLevel, 60, 0}}},
		},
	}
	r.Scenarios = append(r.Scenarios, naive)
	r.Bound["transfer"] = 5 * time.Second
	return r
}

func TestTable_EachFlowHasItsOwnWithItsOwnNumber(t *testing.T) {
	var table strings.Builder
	if err := bothFlows().Table(&table); err != nil {
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
	want := "violated: 2 moved, 1 refused for lack of funds, 1 holds, balances are off by 60 in all, 12 late writes refused; broken: T3"
	if diff := cmp.Diff(want, bothFlows().Scenarios[2].sentence()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHTML_ShowsBothFlows(t *testing.T) {
	page := renderHTML(t, bothFlows())
	last := -1
	for _, piece := range []string{
		"Nothing was sold twice, and no money was lost or made, except where it had to be.",
		"transfer has to succeed again within 5s", "<h2", "inventory", "oversold", "<h2", "transfer", "drift", `<span class="over">60</span>`,
		`id="transfer-naive-none"`, "in transfer", "balances are off by 60", `class="loss"`, "Minor units by which balances differ",
		account1, "killed themselves at after-key", "of these, refused by the guard",
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

func TestDrift_IsALineWithinItsPlot(t *testing.T) {
	r := bothFlows().Scenarios[2]
	c := r.Levels()
	within(t, c)
	if diff := cmp.Diff([]string{"line true"}, classes(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if top := c.YTicks[len(c.YTicks)-1].Label; top != "60" {
		t.Errorf("the scale ends at %s, want 60", top)
	}
}

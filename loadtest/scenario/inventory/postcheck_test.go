// SPDX-License-Identifier: MIT

package inventory

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"shop/loadtest/internal/testbed"
	"shop/loadtest/traffic"
)

func TestBuyAgain_EachProductMustTakeACancellationAndSellItAgain(t *testing.T) {
	stock := []Stock{priced(0, 1), priced(1, 1)}
	run := boughtRun(t, func(string) string { return "" })
	if dead := buyAgain(t.Context(), run, stock[:1]); len(dead) != 0 {
		t.Errorf("a shop that works: %v", dead)
	}
	if dead := buyAgain(t.Context(), run, stock[1:]); len(dead) != 1 || !strings.Contains(dead[0], "no order") {
		t.Errorf("a product that was never bought: %v", dead)
	}
	run = boughtRun(t, func(path string) string {
		if strings.HasSuffix(path, "/cancel") {
			return "already-cancelled"
		}
		return ""
	})
	if dead := buyAgain(t.Context(), run, stock[:1]); len(dead) != 1 || !strings.Contains(dead[0], "cancellation") {
		t.Errorf("a product whose order cannot be cancelled: %v", dead)
	}
}

func TestBuyAgain_ARefusedLastPurchaseBreaksLiveness(t *testing.T) {
	run := boughtRun(t, func(path string) string {
		if path == "/v1/orders" {
			return "out-of-stock"
		}
		return ""
	})
	if dead := buyAgain(t.Context(), run, []Stock{priced(0, 1)}); len(dead) != 1 || !strings.Contains(dead[0], "purchase") {
		t.Errorf("%v", dead)
	}
}

// boughtRun is a run in which one unit of the first product was bought. Its service refuses the
// paths for which problem returns a name.
func boughtRun(t *testing.T, problem func(path string) string) *traffic.Run {
	t.Helper()
	bases := testbed.Serve(t, 2, func(w http.ResponseWriter, req *http.Request) {
		if kind := problem(req.URL.Path); kind != "" {
			testbed.Problem(w, http.StatusConflict, kind)
			return
		}
		testbed.Created(w, order1)
	})
	headers := traffic.Headers{Key: "Idempotency-Key", Clients: slices.Repeat([]http.Header{{}}, clients)}
	run, err := traffic.NewRun(t.Context(), bases, headers, time.Second, New().Classify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	run.History.Intend(*buyIntent("bought", 0, priced(0, 1)))
	run.History.Add(traffic.Attempt{Key: "bought", Outcome: traffic.OK, Sends: 1}, []byte(`{"id":"`+order1+`"}`))
	return run
}

func TestBuyAgain_AnOrderThatTheLoadCancelledIsNotCancelledAgain(t *testing.T) {
	run := boughtRun(t, func(string) string { return "" })
	run.History.Intend(*cancelIntent("twice-a-bought", 0, run.History.Record("bought")))
	before := len(run.History.Records())
	if dead := buyAgain(t.Context(), run, []Stock{priced(0, 1)}); len(dead) != 0 {
		t.Errorf("a product that was sold is dead: %v", dead)
	}
	if after := len(run.History.Records()); after != before {
		t.Errorf("%d more requests, want none", after-before)
	}
}

// Offend attacks the first order, which must still be confirmed.
func TestBuyAgain_CancelsTheLastOrderOfAProduct(t *testing.T) {
	run := boughtRun(t, func(string) string { return "" })
	run.History.Intend(*buyIntent("later", 0, priced(0, 1)))
	run.History.Add(traffic.Attempt{Key: "later", Outcome: traffic.OK, Sends: 1}, []byte(`{"id":"`+order2+`"}`))
	buyAgain(t.Context(), run, []Stock{priced(0, 1)})
	if first, last := run.History.Record("cancel-bought").Outcome, run.History.Record("cancel-later").Outcome; first != "" || last != traffic.OK {
		t.Errorf("the first order: %q, the last one: %q", first, last)
	}
}

// Each kind of forbidden request must find a service that allows everything.
func TestOffend_EachKindIsSentAndMustBeRefused(t *testing.T) {
	run := boughtRun(t, func(string) string { return "" })
	buyAgain(t.Context(), run, []Stock{priced(0, 1)})
	run.Offend(t.Context(), nil, attacks)
	kinds := 0
	for _, r := range run.History.Records() {
		if len(r.Refusals) > 0 {
			kinds++
			if r.Outcome != traffic.OK || len(r.Contends) > 0 || r.GivesUp {
				t.Errorf("%+v", r)
			}
		}
	}
	if kinds != 6 {
		t.Errorf("%d kinds, want 6", kinds)
	}
}

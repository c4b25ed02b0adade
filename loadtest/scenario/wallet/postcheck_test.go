// SPDX-License-Identifier: MIT

package wallet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/internal/testbed"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
)

// cashier is a service with wallets in memory, and with one named mistake, if any.
type cashier struct {
	mu    sync.Mutex
	money map[string]int64
	keys  map[string]string // key → path
	wrong string
}

func (c *cashier) serve(w http.ResponseWriter, req *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.HasSuffix(req.URL.Path, "/payments") {
		if c.wrong == "it lets strangers in" {
			testbed.Created(w, operation1)
			return
		}
		testbed.Problem(w, http.StatusForbidden, "forbidden")
		return
	}
	id, _, debit := strings.Cut(strings.TrimPrefix(req.URL.Path, "/v1/wallets/"), "/debits")
	if !debit {
		n := c.money[id]
		if c.wrong == "it shows too much" {
			n++
		}
		fmt.Fprintf(w, `{"id":%q,"balance":%d}`, id, n)
		return
	}
	key := req.Header.Get("Idempotency-Key")
	if path, used := c.keys[key]; used && path != req.URL.Path && c.wrong != "it forgets what a key was for" {
		testbed.Problem(w, http.StatusUnprocessableEntity, traffic.KeyReused)
		return
	}
	c.keys[key] = req.URL.Path
	var m struct{ Amount int64 }
	_ = json.NewDecoder(req.Body).Decode(&m)
	if c.money[id] < m.Amount && c.wrong != "it spends what is not there" {
		testbed.Problem(w, http.StatusConflict, "insufficient-funds")
		return
	}
	c.money[id] -= m.Amount
	testbed.Created(w, operation1)
}

func cashierWith(t *testing.T, wrong string) (*traffic.Run, []money.Account) {
	t.Helper()
	wallets := []money.Account{{ID: uuid.New(), Opening: 100}, {ID: uuid.New()}}
	c := &cashier{money: map[string]int64{wallets[0].ID.String(): 100}, keys: map[string]string{}, wrong: wrong}
	bases := testbed.Serve(t, 2, c.serve)
	run, err := traffic.NewRun(t.Context(), bases, traffic.Headers{Key: "Idempotency-Key", Clients: []http.Header{{}}}, time.Second, New(Environment{}).Classify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	return run, wallets
}

func TestEmptyWallet_SpendsTheWholeBalanceAndNotOneMore(t *testing.T) {
	for wrong, want := range map[string]string{
		"":                            "",
		"it shows too much":           "it has 101, but spending all of it ended as rejected (409 insufficient-funds)",
		"it spends what is not there": "after all 100 were spent, spending 1 more ended as ok (201 )",
	} {
		run, wallets := cashierWith(t, wrong)
		if got := emptyWallet(t.Context(), run, 0, wallets, wallets[0]); got != want {
			t.Errorf("%q: %q, want %q", wrong, got, want)
		}
	}
}

func TestEmptyWallet_AnEmptyWalletRefusesOneUnit(t *testing.T) {
	run, wallets := cashierWith(t, "")
	if got := emptyWallet(t.Context(), run, 1, wallets, wallets[1]); got != "" || len(run.History.Records()) != 1 {
		t.Errorf("%q, %d requests; want no error and one request", got, len(run.History.Records()))
	}
}

func TestReuse_AKeyStaysWithItsFirstWallet(t *testing.T) {
	for wrong, ends := range map[string]string{"": "", "it forgets what a key was for": "ended as rejected (409 insufficient-funds)"} {
		run, wallets := cashierWith(t, wrong)
		for i, w := range wallets {
			emptyWallet(t.Context(), run, i, wallets, w)
		}
		if got := reuseKey(t.Context(), run, wallets, wallets[0], wallets[1]); ends == "" && got != "" || !strings.HasSuffix(got, ends) {
			t.Errorf("%q: %q, want %q", wrong, got, ends)
		}
	}
}

func TestTrespass_AStrangerIsRefused(t *testing.T) {
	for wrong, want := range map[string]string{"": "", "it lets strangers in": "a payment by another client ended as ok (201 )"} {
		run, wallets := cashierWith(t, wrong)
		if got := trespass(t.Context(), run, wallets, wallets[0], wallets[1]); got != want {
			t.Errorf("%q: %q, want %q", wrong, got, want)
		}
	}
}

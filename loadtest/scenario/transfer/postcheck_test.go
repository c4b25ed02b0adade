// SPDX-License-Identifier: MIT

package transfer

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

// bank is a service with accounts in memory, and with one named mistake, if any.
type bank struct {
	mu    sync.Mutex
	money map[string]int64
	wrong string
}

func (b *bank) serve(w http.ResponseWriter, req *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id, read := strings.CutPrefix(req.URL.Path, "/v1/accounts/"); read {
		n := b.money[id]
		if b.wrong == "it shows too much" {
			n++
		}
		if b.wrong == "an empty account owes" && n == 0 {
			n = -1
		}
		fmt.Fprintf(w, `{"id":%q,"available":%d}`, id, n)
		return
	}
	var m struct {
		From, To string
		Amount   int64
	}
	_ = json.NewDecoder(req.Body).Decode(&m)
	if b.money[m.From] < m.Amount && b.wrong != "it spends what is not there" {
		testbed.Problem(w, http.StatusConflict, "insufficient-funds")
		return
	}
	b.money[m.From] -= m.Amount
	b.money[m.To] += m.Amount
	testbed.Created(w, transfer1)
}

func bankOf(t *testing.T, wrong string) (*traffic.Run, []money.Account) {
	t.Helper()
	accounts := []money.Account{{ID: uuid.New(), Opening: 100}, {ID: uuid.New(), Client: 1}}
	b := &bank{money: map[string]int64{accounts[0].ID.String(): 100}, wrong: wrong}
	bases := testbed.Serve(t, 2, b.serve)
	run, err := traffic.NewRun(t.Context(), bases, traffic.Headers{Key: "Idempotency-Key", Clients: []http.Header{{}, {}}}, time.Second, New().Classify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	return run, accounts
}

func TestSpendAll_SpendsTheAvailableAmountAndNotOneMore(t *testing.T) {
	for wrong, want := range map[string]string{
		"":                            "",
		"it shows too much":           "it has 101, but spending all of it ended as rejected (409 insufficient-funds)",
		"it spends what is not there": "after all 100 were spent, spending 1 more ended as ok (201 )",
	} {
		run, accounts := bankOf(t, wrong)
		if got := spendAll(t.Context(), run, 0, accounts[:1], accounts[1:]); got[0] != want {
			t.Errorf("%q: %q, want %q", wrong, got, want)
		}
	}
}

func TestSpendAll_AnEmptyAccountRefusesOneUnit(t *testing.T) {
	run, accounts := bankOf(t, "")
	if got := spendAll(t.Context(), run, 1, accounts[1:], accounts[:1]); got[0] != "" || len(run.History.Records()) != 1 {
		t.Errorf("%q, %d requests; want no error and one request", got, len(run.History.Records()))
	}
}

// Accounts that are spent at the same moment are judged separately.
func TestSpendAll_NamesTheAccountOfARowThatCannotBeSpent(t *testing.T) {
	run, accounts := bankOf(t, "an empty account owes")
	others := []money.Account{{ID: uuid.New(), Client: 1}, {ID: uuid.New(), Client: 1}}
	if got := spendAll(t.Context(), run, 0, accounts, others); got[0] != "" || got[1] != "it has a negative amount: -1" {
		t.Errorf("%q", got)
	}
	if n := len(run.History.Records()); n != 2 {
		t.Errorf("%d requests; want all of the first account, and one more", n)
	}
}

func TestWronglyRefused_AnAmpleAccountMustNotBeRefused(t *testing.T) {
	accounts := []money.Account{{ID: uuid.New(), Ample: true}, {ID: uuid.New()}}
	refusal := func(account int, problem string) traffic.Record {
		return traffic.Record{Intent: traffic.Intent{Key: problem, Of: &Move{From: accounts[account].ID}}, Outcome: traffic.Rejected, Attempts: []traffic.Attempt{{Outcome: traffic.Rejected, Problem: problem}}}
	}
	found := money.WronglyRefused([]traffic.Record{refusal(0, "insufficient-funds"), refusal(1, "insufficient-funds"), refusal(0, "already-settled")}, accounts, payer)
	if len(found) != 1 || !strings.Contains(found[0], "insufficient-funds") {
		t.Errorf("%v, want the refusal of the first alone", found)
	}
}

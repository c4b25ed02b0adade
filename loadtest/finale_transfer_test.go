package loadtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// till is a bank in memory: it answers as a service does, but for what is wrong with it.
type till struct {
	mu    sync.Mutex
	money map[string]int64
	wrong string
}

func (b *till) serve(w http.ResponseWriter, req *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id, read := strings.CutPrefix(req.URL.Path, "/v1/accounts/"); read {
		n := b.money[id]
		if b.wrong == "it shows too much" {
			n++
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
		answer(w, http.StatusConflict, "insufficient-funds")
		return
	}
	b.money[m.From] -= m.Amount
	b.money[m.To] += m.Amount
	created(order1)(w)
}

func bankOf(t *testing.T, wrong string) (*volley, []Account) {
	t.Helper()
	accounts := []Account{{ID: uuid.New(), Opening: 100}, {ID: uuid.New(), Client: 1}}
	b := &till{money: map[string]int64{accounts[0].ID.String(): 100}, wrong: wrong}
	r := newRange(t, 2, b.serve)
	v, err := newVolley(t.Context(), r.bases, Headers{"Idempotency-Key", []http.Header{{}, {}}}, time.Second, Classify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.close)
	return v, accounts
}

func TestSpendAll_WhatIsAvailableCanBeSentAndNotOneMore(t *testing.T) {
	for wrong, want := range map[string]string{
		"":                            "",
		"it shows too much":           "101 are available, and to send them ended as rejected (409 insufficient-funds)",
		"it spends what is not there": "all 100 were sent, and 1 more ended as ok (201 )",
	} {
		v, accounts := bankOf(t, wrong)
		if got := v.spendAll(t.Context(), 0, accounts[0], accounts[1]); got != want {
			t.Errorf("%q: %q, want %q", wrong, got, want)
		}
	}
}

func TestSpendAll_AnEmptyAccountIsAskedForOneAndRefuses(t *testing.T) {
	v, accounts := bankOf(t, "")
	if got := v.spendAll(t.Context(), 1, accounts[1], accounts[0]); got != "" || len(v.history.Records()) != 1 {
		t.Errorf("%q, %d requests; want nothing wrong, and one request", got, len(v.history.Records()))
	}
}

func TestWronglyRefused_WhoHasEnoughMustNotBeRefused(t *testing.T) {
	accounts := []Account{{Ample: true}, {}}
	refusal := func(client int, problem string) Record {
		return Record{Intent: Intent{Client: client, Key: problem}, Outcome: Rejected, Attempts: []Attempt{{Outcome: Rejected, Problem: problem}}}
	}
	found := wronglyRefused([]Record{refusal(0, "insufficient-funds"), refusal(1, "insufficient-funds"), refusal(0, "already-settled")}, accounts)
	if len(found) != 1 || !strings.Contains(found[0], "insufficient-funds") {
		t.Errorf("%v, want the refusal of the first alone", found)
	}
}

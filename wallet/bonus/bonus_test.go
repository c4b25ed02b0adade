// SPDX-License-Identifier: MIT

package bonus

import (
	"bytes"
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	"github.com/google/uuid"
)

func openBonus(t *testing.T) *Service {
	t.Helper()
	b, err := Serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// client keeps no connection: each test closes its own service.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// callBonus calls the service as a replica does.
func callBonus(t *testing.T, b *Service, question any) (status int, bonus int64) {
	t.Helper()
	text, err := json.Marshal(question)
	if err != nil {
		t.Error(err)
		return 0, 0
	}
	res, err := client.Post(b.URL()+"/v1/bonuses", "application/json", bytes.NewReader(text))
	if err != nil {
		t.Error(err)
		return 0, 0
	}
	defer res.Body.Close()
	var answer struct{ Bonus int64 }
	if res.StatusCode == http.StatusOK {
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
			t.Error(err)
		}
	}
	return res.StatusCode, answer.Bonus
}

func questionAbout(operation uuid.UUID, attempt int) map[string]any {
	return map[string]any{"operation": operation, "request": uuid.New(), "attempt": attempt, "wallet": operation, "amount": 100}
}

func TestBonus_AnOperationWithAnotherWalletOrAmountIsRefused(t *testing.T) {
	b := openBonus(t)
	operation := uuid.New()
	_, first := callBonus(t, b, questionAbout(operation, 1))
	for name, value := range map[string]any{"wallet": uuid.New(), "amount": 101} {
		other := questionAbout(operation, 1)
		other[name] = value
		if status, bonus := callBonus(t, b, other); status != http.StatusConflict || bonus != 0 {
			t.Errorf("another %s: %d, a bonus of %d", name, status, bonus)
		}
	}
	if _, again := callBonus(t, b, questionAbout(operation, 2)); again != first {
		t.Errorf("%d at first, %d afterwards", first, again)
	}
	if calls := b.Calls(); len(calls) != 4 || calls[0].Refused || !calls[1].Refused || !calls[2].Refused || calls[3].Refused {
		t.Errorf("%+v", calls)
	}
}

func TestBonus_AnOperationIsAppliedOnceAndGetsTheSameAgain(t *testing.T) {
	b := openBonus(t)
	one, other := uuid.New(), uuid.New()
	_, first := callBonus(t, b, questionAbout(one, 1))
	_, second := callBonus(t, b, questionAbout(other, 1))
	_, again := callBonus(t, b, questionAbout(one, 2))
	if first < 1 || first == second || first != again {
		t.Errorf("bonuses %d and %d, and %d when the first is repeated", first, second, again)
	}
	calls := b.Calls()
	if len(calls) != 3 || !calls[0].First || !calls[1].First || calls[2].First {
		t.Fatalf("%+v; want three calls, of which the last applied nothing", calls)
	}
	c := calls[2]
	if c.Operation != one || c.Request == calls[0].Request || c.Attempt != 2 || c.Amount != 100 || c.Bonus != first || c.Wallet == uuid.Nil || c.At.Before(calls[0].At) {
		t.Errorf("recorded as %+v", c)
	}
}

func TestBonus_ConcurrentCallsForOneOperationApplyItOnce(t *testing.T) {
	b := openBonus(t)
	operation := uuid.New()
	got := make([]int64, 16)
	var callers sync.WaitGroup
	for i := range got {
		callers.Go(func() { _, got[i] = callBonus(t, b, questionAbout(operation, i)) })
	}
	callers.Wait()
	firsts := 0
	for i, c := range b.Calls() {
		if c.First {
			firsts++
		}
		if got[i] != got[0] {
			t.Errorf("bonuses %v", got)
		}
	}
	if firsts != 1 {
		t.Errorf("applied %d times", firsts)
	}
}

func TestBonus_AnInvalidCallIsNeitherAppliedNorRecorded(t *testing.T) {
	b := openBonus(t)
	for _, question := range []any{"no question", map[string]any{"amount": 1}, map[string]any{"operation": uuid.New()}, map[string]any{"operation": uuid.New(), "amount": -5}} {
		if status, _ := callBonus(t, b, question); status != http.StatusBadRequest {
			t.Errorf("%v: %d, want 400", question, status)
		}
	}
	if calls := b.Calls(); len(calls) != 0 {
		t.Errorf("recorded %+v", calls)
	}
}

func TestClose_StopsTheService(t *testing.T) {
	b, err := Serve()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := client.Post(b.URL()+"/v1/bonuses", "application/json", http.NoBody); err == nil {
		t.Error("it still answers")
	}
}

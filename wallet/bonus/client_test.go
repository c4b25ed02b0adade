// SPDX-License-Identifier: MIT

package bonus_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/locking/idempotency"
	"shop/wallet"
	"shop/wallet/bonus"
	"shop/wallet/bonus/bonustest"
)

func newClient(t *testing.T, url string) *bonus.Client {
	t.Helper()
	client := bonus.NewClient(url, nil)
	t.Cleanup(client.Close)
	return client
}

func question() wallet.BonusRequest {
	return wallet.BonusRequest{Operation: uuid.New(), Request: uuid.New(), Attempt: 2, Wallet: uuid.New(), Amount: 100}
}

func TestBonus_SendsTheWholeRequestAndGetsTheSameAgain(t *testing.T) {
	service := bonustest.Serve(t)
	client := newClient(t, service.URL())
	a := question()
	first, err := client.Call(t.Context(), a)
	if err != nil || first < 1 {
		t.Fatalf("%d, %v", first, err)
	}
	if again, err := client.Call(t.Context(), a); again != first || err != nil {
		t.Errorf("%d, %v; want %d", again, err, first)
	}
	for i, call := range service.Calls() {
		got := wallet.BonusRequest{Operation: call.Operation, Request: call.Request, Attempt: call.Attempt, Wallet: call.Wallet, Amount: call.Amount}
		if got != a || call.First != (i == 0) {
			t.Errorf("it heard %+v, want %+v", call, a)
		}
	}
}

func TestBonus_AnotherWalletOrAmountUnderTheSameOperationIsErrKeyReused(t *testing.T) {
	service := bonustest.Serve(t)
	client := newClient(t, service.URL())
	a := question()
	first, err := client.Call(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	otherWallet, otherAmount := a, a
	otherWallet.Wallet, otherAmount.Amount = uuid.New(), 101
	for _, other := range []wallet.BonusRequest{otherWallet, otherAmount} {
		if bonus, err := client.Call(t.Context(), other); bonus != 0 || !errors.Is(err, idempotency.ErrKeyReused) {
			t.Errorf("%d, %v, want ErrKeyReused", bonus, err)
		}
	}
	if again, err := client.Call(t.Context(), a); again != first || err != nil {
		t.Errorf("%d, %v; want %d as before", again, err, first)
	}
	if calls := service.Calls(); len(calls) != 4 || calls[0].Refused || !calls[1].Refused || !calls[2].Refused || calls[2].First || calls[3].Refused {
		t.Errorf("it heard %+v", calls)
	}
}

func TestBonus_OneConnectionIsUsedAgain(t *testing.T) {
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"bonus":1}`) }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	client := newClient(t, server.URL)
	for range 20 {
		if _, err := client.Call(t.Context(), question()); err != nil {
			t.Fatal(err)
		}
	}
	if n := opened.Load(); n > 5 { // on a busy machine net/http sometimes abandons a connection
		t.Errorf("%d connections for 20 requests", n)
	}
}

// A reply that cannot be read is an error, and not a bonus of 0.
func TestBonus_AnythingElseIsAnError(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"bonus":1}`, 500) },
		"201": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); fmt.Fprint(w, `{"bonus":1}`) },
		"204": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/v1/bonuses", http.StatusTemporaryRedirect)
		},
		"nothing":    func(http.ResponseWriter, *http.Request) {},
		"no JSON":    func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `bonus: 1`) },
		"no bonus":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) },
		"null":       func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"bonus":null}`) },
		"a fraction": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"bonus":1.5}`) },
		"a text":     func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"bonus":"1"}`) },
		"two":        func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"bonus":1}{"bonus":2}`) },
		"too long":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", 2<<10)+`{"bonus":1}`) },
		"cut off":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests++
				answer(w, r)
			}))
			bonus, err := newClient(t, server.URL).Call(t.Context(), question())
			server.Close()
			if err == nil || bonus != 0 || requests != 1 {
				t.Errorf("bonus %d, %v, %d requests", bonus, err, requests)
			}
		})
	}
}

func TestBonus_WaitsNoLongerThanItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := newClient(t, bonustest.Silent(t)).Call(ctx, question()); err == nil || ctx.Err() == nil {
		t.Errorf("%v", err)
	}
}

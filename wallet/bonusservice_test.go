// SPDX-License-Identifier: MIT

package wallet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/locking/idempotency"
	"shop/wallet"
)

// bonusService is a bonus service on a real HTTP server. It applies each operation once, gives
// the same answer to repeated calls, refuses an operation that it knows for another wallet or
// amount, and records each call.
type bonusService struct {
	client *http.Client
	url    string

	mu       sync.Mutex
	given    map[uuid.UUID]wallet.BonusRequest // by operation: what it was applied for
	requests []wallet.BonusRequest
	fails    int // so many of the next calls get 500, after they were applied
}

func newBonusService(t testing.TB) *bonusService {
	o := &bonusService{given: map[uuid.UUID]wallet.BonusRequest{}}
	server := httptest.NewServer(http.HandlerFunc(o.serve))
	o.client, o.url = server.Client(), server.URL
	t.Cleanup(server.Close)
	return o
}

func (o *bonusService) serve(w http.ResponseWriter, r *http.Request) {
	var a wallet.BonusRequest
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests = append(o.requests, a)
	is, known := o.given[a.Operation]
	if !known {
		o.given[a.Operation], is = a, a
	}
	if is.Wallet != a.Wallet || is.Amount != a.Amount {
		http.Error(w, "known for another", http.StatusConflict)
		return
	}
	if o.fails > 0 {
		o.fails--
		http.Error(w, "applied, and then something broke", http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(a.Amount / 10)
}

// call calls the service. It is a wallet.BonusFunc.
func (o *bonusService) call(ctx context.Context, a wallet.BonusRequest) (bonus int64, err error) {
	body, err := json.Marshal(a)
	if err != nil {
		return 0, err
	}
	ctx = context.WithoutCancel(ctx) // a stall of the machine is not a silent service
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusConflict {
		return 0, idempotency.ErrKeyReused
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("bonus service: %s", resp.Status)
	}
	err = json.NewDecoder(resp.Body).Decode(&bonus)
	return bonus, err
}

// bonusTakes is how long a slow service takes.
const bonusTakes = 10 * time.Millisecond

// slow is call of a slow service.
func (o *bonusService) slow(ctx context.Context, a wallet.BonusRequest) (int64, error) {
	time.Sleep(bonusTakes)
	return o.call(ctx, a)
}

// calls counts the calls, and their different operations.
func (o *bonusService) calls() (calls, operations int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.requests), len(o.given)
}

// twice counts the requests that called more than once: W-SIDE.
func (o *bonusService) twice() (requests int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := map[uuid.UUID]int{}
	for _, a := range o.requests {
		if n[a.Request]++; n[a.Request] == 2 {
			requests++
		}
	}
	return requests
}

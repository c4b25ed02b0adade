// SPDX-License-Identifier: MIT

// Package bonus is a bonus service for the lab and the proofs of package wallet. It is a real
// server, whose effects no transaction rolls back, as with a payment provider.
package bonus

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Service gives bonuses for credits. It applies each operation once, gives the same answer to
// repeated calls, refuses an operation that it knows with another wallet or amount, and
// records every call.
type Service struct {
	server   *http.Server
	listener net.Listener
	served   chan error

	mu    sync.Mutex
	given map[uuid.UUID]Call // by operation: the call that applied it
	calls []Call
}

// Call is one request that was answered.
type Call struct {
	Operation, Request, Wallet uuid.UUID
	Attempt                    int
	Amount, Bonus              int64
	First                      bool // this call applied the operation
	Refused                    bool // the operation is known with another wallet or amount
	At                         time.Time
}

const (
	headerTimeout = 10 * time.Second
	bodyMax       = 1 << 20
)

// bonuses is the number of different bonuses. It is a prime, so that the bonus of an operation
// does not depend on its place in a burst.
const bonuses = 97

// Serve starts a service on a loopback port.
func Serve() (*Service, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &Service{listener: listener, served: make(chan error, 1), given: map[uuid.UUID]Call{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/bonuses", b.answer)
	b.server = &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}
	go func() { b.served <- b.server.Serve(listener) }()
	return b, nil
}

// URL returns the base URL of the service.
func (b *Service) URL() string { return "http://" + b.listener.Addr().String() }

// Close stops the service, and breaks off the calls under way.
func (b *Service) Close() error {
	err := b.server.Close()
	if served := <-b.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Calls returns all calls so far, in the order of their answers.
func (b *Service) Calls() []Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

func (b *Service) answer(w http.ResponseWriter, req *http.Request) {
	var request struct {
		Operation uuid.UUID `json:"operation"`
		Request   uuid.UUID `json:"request"`
		Attempt   int       `json:"attempt"`
		Wallet    uuid.UUID `json:"wallet"`
		Amount    int64     `json:"amount"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, bodyMax)).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if request.Operation == uuid.Nil || request.Amount < 1 {
		http.Error(w, "operation and amount are required", http.StatusBadRequest)
		return
	}
	call := b.apply(Call{
		Operation: request.Operation, Request: request.Request, Wallet: request.Wallet,
		Attempt: request.Attempt, Amount: request.Amount, At: time.Now(),
	})
	if call.Refused {
		http.Error(w, "the operation is known with another wallet or amount", http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]int64{"bonus": call.Bonus}) // the client may be gone: applied is applied
}

// apply sets a bonus for an operation that it does not know yet. The bonus depends on how many
// were applied before, so that an operation that is applied under two ids gets two bonuses.
func (b *Service) apply(call Call) Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch is, known := b.given[call.Operation]; {
	case !known:
		call.Bonus, call.First = 1+int64(len(b.given)%bonuses), true
		b.given[call.Operation] = call
	case is.Wallet != call.Wallet || is.Amount != call.Amount:
		call.Refused = true
	default:
		call.Bonus = is.Bonus
	}
	b.calls = append(b.calls, call)
	return call
}

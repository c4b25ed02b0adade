// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// SetKeyClock gives the keyring another clock, before the first request.
func (s *Server) SetKeyClock(now func() time.Time) { s.keyring.now = now }

// LookupsMax bounds the lookups of keys that were never valid here.
const LookupsMax = lookupsMax

// KeysFull reports whether a client has too many stored keys of orders and transfers.
func (s *Server) KeysFull(ctx context.Context, client uuid.UUID) bool {
	return s.stored.full(ctx, keysOf{client: client}, s.keys)
}

// Reading counts the bodies that are being read.
func (s *Server) Reading() int {
	s.reading.mu.Lock()
	defer s.reading.mu.Unlock()
	return len(s.reading.conns)
}

// UnknownKeysLeft returns how many lookups of unknown keys an address has left; if negative, it must wait.
func (s *Server) UnknownKeysLeft(remote string) float64 {
	return s.keyring.failures.bucket(network(remote)).Tokens()
}

// CheckEachProbe makes each probe of /readyz a check of its own.
func (s *Server) CheckEachProbe() { s.readiness.kept = 0 }

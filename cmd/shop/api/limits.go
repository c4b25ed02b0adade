// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"shop/locking/idempotency/pgtx"
)

// admit bounds the requests in flight of all clients together. It refuses instead of
// queueing: queued requests would wait until their clients time out. It runs after the
// body was read, so that a client that sends slowly occupies no slot.
func (s *Server) admit(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if operationOf(c).public {
			return next(c)
		}
		select {
		case s.room <- struct{}{}:
			defer func() { <-s.room }()
			return next(c)
		default:
			return errFull
		}
	}
}

// shares bounds the concurrent requests of each client, from authentication to the reply,
// and thereby the memory for the bodies of one client.
type shares struct {
	each  int
	mu    sync.Mutex
	taken map[uuid.UUID]int
}

func newShares(each int) *shares {
	return &shares{each: each, taken: map[uuid.UUID]int{}}
}

func (s *shares) limit(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if operationOf(c).public {
			return next(c)
		}
		client := callerOf(c.Request().Context()).ID
		if !s.take(client) {
			return errShare
		}
		defer s.give(client)
		return next(c)
	}
}

func (s *shares) take(client uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[client] >= s.each {
		return false
	}
	s.taken[client]++
	return true
}

func (s *shares) give(client uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[client]--; s.taken[client] == 0 {
		delete(s.taken, client)
	}
}

// deadline bounds the context of the request. It does not interrupt the handler, so that
// no other goroutine writes the response.
func (s *Server) deadline(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := context.WithTimeout(c.Request().Context(), s.cfg.Limits.Request)
		defer cancel()
		c.SetRequest(c.Request().WithContext(ctx))
		return withCause(c.Request(), next(c))
	}
}

// withCause adds the cause that a driver's error does not name: the deadline, the
// client's disconnect, or, for a read, an unavailable database. Without it each would be
// a 500.
func withCause(r *http.Request, err error) error {
	if err == nil {
		return nil
	}
	typ, ended := kindOf(err).typ, r.Context().Err()
	read := r.Method == http.MethodGet
	cancelled := errors.Is(ended, context.Canceled) && (typ == TypeInternal || typ == TypeOutcomeUnknown)
	switch {
	case cancelled && read: // no effect could be unknown
		return fmt.Errorf("%w: %w: %w", errAway, ended, err)
	case cancelled:
		return &detailed{err: fmt.Errorf("%w: %w", ended, err), detail: gone}
	case typ != TypeInternal:
		return err
	case ended != nil:
		return fmt.Errorf("%w: %w", ended, err)
	case read && pgtx.Unavailable(err):
		return fmt.Errorf("%w: %w", errAway, err)
	default:
		return err
	}
}

// bucketsMax bounds the buckets in memory. At that number all buckets are dropped, which
// allows each client a new burst.
const bucketsMax = 4096

// rates holds one token bucket for each K: a client, or a remote address.
type rates[K comparable] struct {
	perSecond float64 // 0: no limit
	mu        sync.Mutex
	buckets   map[K]*rate.Limiter
}

func newRates[K comparable](perSecond float64) *rates[K] {
	return &rates[K]{perSecond: perSecond, buckets: map[K]*rate.Limiter{}}
}

// bucket allows a burst of one second's rate.
func (r *rates[K]) bucket(of K) *rate.Limiter {
	if r.perSecond == 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[of]
	if b == nil {
		if len(r.buckets) >= bucketsMax {
			clear(r.buckets)
		}
		b = rate.NewLimiter(rate.Limit(r.perSecond), int(math.Ceil(r.perSecond)))
		r.buckets[of] = b
	}
	return b
}

// limitClients allows each client its rate.
func limitClients(r *rates[uuid.UUID]) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if !operationOf(c).public && !r.bucket(callerOf(c.Request().Context()).ID).Allow() {
				return errRateLimited
			}
			return next(c)
		}
	}
}

package api

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"
)

// admit bounds the requests in flight. Refusing at the door is kinder than a
// queue in which everybody waits until nobody is interested any more. The
// probes always get in: a full server is alive.
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

// deadline ends the context of the request, not the handler: who works with the
// context comes back by itself, and no other goroutine ever writes the response.
func (s *Server) deadline(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := context.WithTimeout(c.Request().Context(), s.cfg.Limits.Request)
		defer cancel()
		c.SetRequest(c.Request().WithContext(ctx))
		return withCause(ctx, next(c))
	}
}

// withCause adds that the time was over, or the client gone, where an error of
// some driver does not say so: otherwise it would be a 500.
func withCause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || kindOf(err).typ != TypeInternal {
		return err
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// rates holds one token bucket for each client. Clients are rows that an
// operator made, so there are not many, and none is forgotten.
type rates struct {
	perSecond float64 // 0: no limit
	mu        sync.Mutex
	buckets   map[uuid.UUID]*rate.Limiter
}

func newRates(perSecond float64) *rates {
	return &rates{perSecond: perSecond, buckets: map[uuid.UUID]*rate.Limiter{}}
}

// limit allows a burst of one second's worth, and then the rate.
func (r *rates) limit(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if r.perSecond > 0 && !operationOf(c).public && !r.bucket(callerOf(c.Request().Context()).ID).Allow() {
			return errRateLimited
		}
		return next(c)
	}
}

func (r *rates) bucket(client uuid.UUID) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[client]
	if b == nil {
		b = rate.NewLimiter(rate.Limit(r.perSecond), int(math.Ceil(r.perSecond)))
		r.buckets[client] = b
	}
	return b
}

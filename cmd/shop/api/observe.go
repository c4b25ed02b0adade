// SPDX-License-Identifier: MIT

package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
)

const headerRequestID = "X-Request-Id"

// requestIDForm is the accepted form of a request id. Other values are replaced, so that
// clients cannot inject text into the log.
var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// headers sets the headers of every reply: no reply is a page or may be cached.
func (s *Server) headers(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Request().Header.Get(headerRequestID)
		if !requestIDForm.MatchString(id) {
			id = uuid.NewString()
		}
		h := c.Response().Header()
		h.Set(headerRequestID, id)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		return next(c)
	}
}

// observe logs and counts each request. It also writes the reply for an error, so that
// the logged status is the one that was sent and an error is logged once.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := time.Now()
		s.metrics.inFlight.Inc()
		defer s.metrics.inFlight.Dec()
		err := next(c)
		if err != nil {
			s.answer(err, c)
		}
		took := time.Since(start)
		s.metrics.observe(c, took, err)
		s.logRequest(c, took, err)
		return nil
	}
}

// logRequest never writes a key, a body or a query.
func (s *Server) logRequest(c echo.Context, took time.Duration, err error) {
	r, w := c.Request(), c.Response()
	attrs := []slog.Attr{
		slog.String("method", methodOf(r)), slog.String("route", routeOf(c)), slog.Int("status", w.Status),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000), slog.String("request_id", w.Header().Get(headerRequestID)),
	}
	if client := callerOf(r.Context()); client.ID != uuid.Nil {
		attrs = append(attrs, slog.String("client", client.ID.String()))
	}
	if key, err := parseKey(r.Header.Get(headerKey)); err == nil {
		attrs = append(attrs, slog.String("key_sha256", keyHash(key)))
	}
	if w.Header().Get(headerReplayed) != "" {
		attrs = append(attrs, slog.Bool("replayed", true))
	}
	level := slog.LevelInfo
	if op, ok := c.Get(ctxOperation).(*operation); ok && op.public {
		level = slog.LevelDebug // probes are frequent
	}
	if err != nil {
		attrs = append(attrs, slog.String("problem", string(kindOf(err).typ)))
	}
	if w.Status == http.StatusUnauthorized || w.Status == http.StatusForbidden || errors.Is(err, errUnknownKeys) {
		attrs = append(attrs, slog.String("remote", c.RealIP()))
	}
	if err != nil && w.Status >= 500 {
		level = slog.LevelWarn
		attrs = append(attrs, slog.Any("error", err))
	}
	if w.Status == http.StatusInternalServerError {
		level = slog.LevelError
	}
	if p, ok := err.(*panicError); ok {
		attrs = append(attrs, slog.String("stack", p.stack))
	}
	s.log.LogAttrs(r.Context(), level, "request", attrs...)
}

// panicError is a recovered panic of a handler, which becomes a 500.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// recoverPanic turns a panic into an error, except http.ErrAbortHandler, which net/http
// handles.
func recoverPanic(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p)
			default:
				err = &panicError{value: p, stack: string(debug.Stack())}
			}
		}()
		return next(c)
	}
}

// SPDX-License-Identifier: MIT

package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
)

// bodyRest bounds the rest of a body after the reply was sent, or while the server is
// closing. Without it a slow body delays its connection's end, and a shutdown, by the
// connection's read timeout.
const bodyRest = time.Second

// endBody bounds the rest of a body, on every route. It closes the connection after a
// chunked body: net/http ignores a Content-Length beside Transfer-Encoding, but a proxy
// that does not would read other requests from the connection (RFC 9112, 6.3).
func endBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if len(r.TransferEncoding) > 0 {
			c.Response().Header().Set("Connection", "close")
		}
		sent := r.ContentLength != 0 // -1: of unknown length
		err := next(c)
		if sent {
			_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(bodyRest))
		}
		return err
	}
}

// body reads the whole body, within its limit and the request's deadline. It refuses a
// body on a route that takes none.
func (s *Server) body(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		op, r := operationOf(c), c.Request()
		if !op.body {
			if r.ContentLength != 0 {
				return withDetail(errMalformed, "This route takes no body.")
			}
			return next(c)
		}
		data, err := s.read(c)
		if err != nil {
			return err
		}
		if err := checkJSON(r.Header, data); err != nil && (len(data) > 0 || !op.empty) {
			return err
		}
		data = integers(data)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
		return next(c)
	}
}

func (s *Server) read(c echo.Context) ([]byte, error) {
	r, limit := c.Request(), s.cfg.Limits.Body
	if r.ContentLength > limit {
		return nil, withDetail(errTooLarge, "A body has at most %d bytes.", limit)
	}
	deadline, _ := r.Context().Deadline()
	conn := http.NewResponseController(c.Response())
	s.reading.begin(conn, deadline)
	data, err := io.ReadAll(http.MaxBytesReader(c.Response().Writer, r.Body, limit))
	closing := s.reading.end(conn)
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil:
		return data, nil
	case tooLarge:
		return nil, withDetail(errTooLarge, "A body has at most %d bytes.", limit)
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return nil, withDetail(errMalformed, "The body ended early.")
	case closing:
		return nil, fmt.Errorf("%w: the server is closing: %w", errAway, err)
	default:
		return nil, fmt.Errorf("%w: %w", errSlowBody, err)
	}
}

// reading is the set of connections whose body is being read. Only a deadline ends a
// read from a connection; a context does not.
type reading struct {
	mu      sync.Mutex
	conns   map[*http.ResponseController]struct{}
	closing bool
}

// begin sets the deadline of a body's read. SetReadDeadline fails if the request has
// no connection, as in a benchmark.
func (r *reading) begin(conn *http.ResponseController, deadline time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rest := time.Now().Add(bodyRest); r.closing && rest.Before(deadline) {
		deadline = rest
	}
	_ = conn.SetReadDeadline(deadline)
	r.conns[conn] = struct{}{}
}

// end reports whether the server is closing. net/http clears the deadline itself at the
// end of a body.
func (r *reading) end(conn *http.ResponseController) (closing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
	return r.closing
}

// close bounds current and later reads to bodyRest.
func (r *reading) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
	for conn := range r.conns {
		_ = conn.SetReadDeadline(time.Now().Add(bodyRest))
	}
}

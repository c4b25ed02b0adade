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

// bodyRest is the time for what a client still sends of a body when the request
// has its answer, or the server is closing. Without it a slow body keeps its
// connection, and a shutdown, for the read timeout of the connection.
const bodyRest = time.Second

// endBody is for every request, found or not. A body without a length ends its
// connection: net/http ignores a Content-Length beside Transfer-Encoding, and a
// proxy that does not would take the rest of the connection for something else (RFC 9112, 6.3).
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

// body reads the whole body, within its limit and the request's deadline, and
// only what an operation takes.
func (s *Server) body(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		op, r := operationOf(c), c.Request()
		if !op.body {
			if r.ContentLength != 0 {
				return explain(errMalformed, "This route takes no body.")
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
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
		return next(c)
	}
}

func (s *Server) read(c echo.Context) ([]byte, error) {
	r, limit := c.Request(), s.cfg.Limits.Body
	if r.ContentLength > limit {
		return nil, explain(errTooLarge, "At most %d bytes, please.", limit)
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
		return nil, explain(errTooLarge, "At most %d bytes, please.", limit)
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return nil, explain(errMalformed, "The body ended early.")
	case closing:
		return nil, fmt.Errorf("%w: the server is closing: %w", errAway, err)
	default:
		return nil, fmt.Errorf("%w: %w", errSlowBody, err)
	}
}

// reading are the connections whose bodies are being read. A read from a
// connection ends with its deadline only, not with a context.
type reading struct {
	mu      sync.Mutex
	conns   map[*http.ResponseController]struct{}
	closing bool
}

// begin lets a body be read until the deadline. An error means that the request
// came over no connection, as in a benchmark.
func (r *reading) begin(conn *http.ResponseController, deadline time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rest := time.Now().Add(bodyRest); r.closing && rest.Before(deadline) {
		deadline = rest
	}
	_ = conn.SetReadDeadline(deadline)
	r.conns[conn] = struct{}{}
}

// end says whether the server is closing. At the end of a body net/http takes
// the deadline away by itself.
func (r *reading) end(conn *http.ResponseController) (closing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
	return r.closing
}

// close ends the reads that go on, and those that begin later, after bodyRest.
func (r *reading) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
	for conn := range r.conns {
		_ = conn.SetReadDeadline(time.Now().Add(bodyRest))
	}
}

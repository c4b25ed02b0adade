// SPDX-License-Identifier: MIT

package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"shop/inventory"
	"shop/locking/locktest"
)

// A client that disconnects cancels its request's context. Wherever that happens, the
// order is complete or does not exist, and the key shows which.
func TestDisconnect_LeavesNoHalfState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step     inventory.Step
		happened bool
	}{
		{inventory.AfterAcquire, false},
		{inventory.AfterGuard, false},
		{inventory.BeforeCommit, false},
		{inventory.AfterCommit, true},
	} {
		t.Run(string(c.step), func(t *testing.T) {
			gone, noticed := make(chan struct{}), make(chan struct{})
			var once sync.Once
			s := open(t, at(c.step, func(ctx context.Context) {
				once.Do(func() {
					close(gone)
					<-ctx.Done() // the server has noticed
					close(noticed)
				})
			}))
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				<-gone
				leave()
			}()
			if _, err := s.try(ctx, "POST", "/v1/orders", good, "Idempotency-Key: k"); !errors.Is(err, context.Canceled) {
				t.Fatalf("the client did not go away: %v", err)
			}
			<-noticed
			locktest.Eventually(t, "the request has ended", func() bool { return s.inFlight() == 0 })
			s.wantOrders(map[bool]int{true: 1, false: 0}[c.happened])
			again := s.do("POST", "/v1/orders", good, "Idempotency-Key: k").want(t, 201, "")
			if replayed := again.header.Get("Idempotency-Replayed") == "true"; replayed != c.happened {
				t.Errorf("replayed: %t, want %t", replayed, c.happened)
			}
			s.wantOrders(1)
			s.wantStock("coffee", 99)
		})
	}
}

// Some clients end their side of the connection once the request is sent. net/http reports that as a disconnect.
func TestDisconnect_AHalfClosedClientIsToldThatTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	var once sync.Once
	s := open(t, at(inventory.AfterAcquire, func(ctx context.Context) {
		once.Do(func() {
			close(arrived)
			<-ctx.Done()
		})
	}))
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.api, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/orders HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s",
		s.keys["alice"], len(good), good)
	<-arrived
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 503") || !strings.Contains(string(answer), "/problems/outcome-unknown") ||
		!strings.Contains(string(answer), "closed its side") || !strings.Contains(string(answer), "\r\nRetry-After: 1\r\n") {
		t.Errorf("%v\n%s", err, answer)
	}
	s.do("POST", "/v1/orders", good, "Idempotency-Key: k").want(t, 201, "")
	s.wantOrders(1)
}

// wantOrders checks the number of orders, lines, movements and keys: all exist or none.
func (s *shop) wantOrders(want int) {
	s.t.Helper()
	for _, table := range []string{"orders", "order_lines", "idempotency_keys", "stock_movements WHERE kind = 'sale'"} {
		var n int
		if err := s.pool.QueryRow(s.t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != want {
			s.t.Errorf("%s: %d rows, want %d (%v)", table, n, want, err)
		}
	}
}

func (s *shop) inFlight() float64 {
	s.t.Helper()
	return s.metric("http_requests_in_flight")
}

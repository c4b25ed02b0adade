// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"shop/locking/locktest"
)

// serving is a lifecycle under test, with a handler that replies when it is released.
type serving struct {
	url  string
	in   chan struct{}      // a request has arrived
	out  chan struct{}      // releases the reply
	stop context.CancelFunc // acts as SIGTERM
	end  chan error         // the result of run
}

func startServing(t *testing.T, life lifecycle) *serving {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := &serving{url: "http://" + listener.Addr().String(), in: make(chan struct{}), out: make(chan struct{}), stop: stop, end: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("/now", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		s.in <- struct{}{}
		select {
		case <-s.out:
		case <-r.Context().Done():
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	})
	life.log, life.request, life.closing = slog.New(slog.NewTextHandler(io.Discard, nil)), time.Minute, func() {}
	go func() { s.end <- life.run(ctx, newConnections(listener, connLimits{100, 100}, life.log), mux) }()
	return s
}

// get uses a new connection.
func (s *serving) get(path string) (int, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(s.url + path)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

type result struct {
	status int
	err    error
}

func (s *serving) getSlow() chan result {
	answered := make(chan result, 1)
	go func() {
		status, err := s.get("/slow")
		answered <- result{status, err}
	}()
	<-s.in
	return answered
}

func TestLifecycle_DrainsFirstThenClosesTheListenerThenLetsRequestsEnd(t *testing.T) {
	var s *serving
	drained := make(chan result, 1)
	s = startServing(t, lifecycle{timeout: time.Minute, drain: func() {
		status, err := s.get("/now") // still served while the load balancer drains
		drained <- result{status, err}
	}})
	slow := s.getSlow()
	s.stop()
	if r := <-drained; r.status != 200 || r.err != nil {
		t.Errorf("while draining: %+v", r)
	}
	locktest.Eventually(t, "no new connections", func() bool {
		_, err := s.get("/now")
		return err != nil
	})
	select {
	case err := <-s.end:
		t.Fatalf("ended before its request: %v", err)
	default:
	}
	close(s.out)
	if r := <-slow; r.status != 200 || r.err != nil {
		t.Errorf("request in flight: %+v", r)
	}
	if err := <-s.end; err != nil {
		t.Error(err)
	}
}

func TestLifecycle_ARequestThatDoesNotEndIsCancelledAndReported(t *testing.T) {
	s := startServing(t, lifecycle{timeout: 20 * time.Millisecond, drain: func() {}})
	slow := s.getSlow()
	s.stop()
	if err := <-s.end; err == nil {
		t.Error("no log line says that a request was cancelled")
	}
	if r := <-slow; r.status != http.StatusGatewayTimeout {
		t.Errorf("its answer: %+v", r)
	}
}

func TestLifecycle_ALostListenerEndsTheServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	life := lifecycle{log: slog.New(slog.NewTextHandler(io.Discard, nil)), drain: func() {}, closing: func() {}, timeout: time.Second, request: time.Second}
	if err := life.run(t.Context(), newConnections(listener, connLimits{1, 1}, life.log), http.NotFoundHandler()); err == nil {
		t.Error("served without a listener")
	}
}

func TestServe_TooLongHeadersAreRefused(t *testing.T) {
	s := startServing(t, lifecycle{drain: func() {}, timeout: time.Minute})
	defer func() {
		s.stop()
		if err := <-s.end; err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for length, want := range map[int]int{headerBytesMax / 2: 200, 2 * headerBytesMax: 431} { // net/http allows 4 KiB more
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/now", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Long", strings.Repeat("x", length))
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("a header of %d bytes: %d, want %d", length, res.StatusCode, want)
		}
	}
}

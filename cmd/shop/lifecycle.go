// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// lifecycle runs an HTTP server and shuts it down in steps:
//
//	serving ──ctx ends──▶ draining ──delay──▶ closing ──all requests ended──▶ closed
//	        /readyz 503, still serving   no new connections      └─timeout─▶ requests cancelled, cut after a second
type lifecycle struct {
	log     *slog.Logger
	drain   func()
	closing func()        // called when the listener closes
	delay   time.Duration // between draining and closing
	timeout time.Duration // for the requests in flight
	request time.Duration // limit of one request
	idle    time.Duration // limit between two requests of a connection
}

// Timeouts of one connection, so that a silent client cannot hold it.
const (
	headerWait     = 5 * time.Second
	metricsIdle    = 2 * time.Minute // longer than the usual interval of a scrape
	headerBytesMax = 16 << 10
	cutWait        = time.Second // between cancelling requests and cutting them off
)

// run serves until ctx ends, then stops as drawn above. It returns nil if every request
// got its reply.
func (l lifecycle) run(ctx context.Context, listener *connections, handler http.Handler) error {
	requests, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRequests()
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerWait,
		ReadTimeout:       headerWait + l.request,
		WriteTimeout:      headerWait + 2*l.request,
		IdleTimeout:       l.idle,
		ConnState:         listener.state,
		MaxHeaderBytes:    headerBytesMax,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(l.log.Handler(), slog.LevelWarn),
	}
	server.RegisterOnShutdown(l.closing)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	l.log.Info("draining", "delay", l.delay)
	l.drain()
	wait(l.delay)
	err := l.close(server, cancelRequests)
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err == nil {
		l.log.Info("stopped: every request got its answer")
	}
	return err
}

// close waits for the requests to end, then cancels them, then closes their connections.
func (l lifecycle) close(server *http.Server, cancelRequests func()) error {
	err := shutdown(server, l.timeout)
	if err == nil {
		return nil
	}
	l.log.Warn("requests did not end in time and were cancelled", "timeout", l.timeout)
	cancelRequests()
	if shutdown(server, cutWait) != nil {
		_ = server.Close()
	}
	return fmt.Errorf("requests in flight did not end within %v: %w", l.timeout, err)
}

func shutdown(server *http.Server, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return server.Shutdown(ctx)
}

func wait(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

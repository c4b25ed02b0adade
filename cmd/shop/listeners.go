// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// listeners are opened before any connection to a store.
type listeners struct {
	api     net.Listener
	metrics net.Listener // nil: none
}

// open binds the ports. From then on the kernel queues connections until the server
// accepts them. The error for a port in use says what to do.
func (f listenerFlags) open() (*listeners, error) {
	l := &listeners{}
	var err error
	if l.api, err = net.Listen("tcp", f.Listen); err != nil {
		return nil, fmt.Errorf("%w\nis another shop running? choose another --listen (SHOP_LISTEN), and another --metrics-listen (SHOP_METRICS_LISTEN)", err)
	}
	if l.metrics, err = listenMetrics(f.MetricsListen); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// listenMetrics returns nil without an address.
func listenMetrics(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w\nis another shop running? choose another --metrics-listen (SHOP_METRICS_LISTEN), or an empty one", err)
	}
	return l, nil
}

// close is for a start that fails before the server serves. It may be called twice.
func (l *listeners) close() {
	_ = l.api.Close()
	if l.metrics != nil {
		_ = l.metrics.Close()
	}
}

// addressOf returns the address of a listener for the log.
func addressOf(l net.Listener) string {
	if l == nil {
		return "off"
	}
	return l.Addr().String()
}

// serveMetrics serves until stop is called. serve calls it after the API has stopped, so that
// the last requests can still be scraped. Without a listener it serves nothing.
func serveMetrics(l net.Listener, log *slog.Logger, handler http.Handler) (stop func()) {
	if l == nil {
		return func() {}
	}
	conns := newConnections(l, connLimits{connsMetrics, connsMetrics}, log)
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerWait, ReadTimeout: headerWait, WriteTimeout: time.Minute, IdleTimeout: metricsIdle, ConnState: conns.state,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(conns); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the metrics listener failed", "error", err)
		}
	}()
	return func() {
		if shutdown(server, cutWait) != nil {
			_ = server.Close()
		}
		<-done
	}
}

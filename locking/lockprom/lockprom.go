// SPDX-License-Identifier: MIT

// Package lockprom counts the events of package locking for Prometheus.
//
//	locking_events_total{store,kind}  events by kind, see locking.Kind
//	locking_wait_seconds{store}       from the first attempt to the grant, or to the time-out
//	locking_hold_seconds{store}       from the grant to the end of fn
//	locking_renew_lag_seconds{store}  from when a renewal was due to its confirmation
//
// Keys are not a label: there may be one for each customer, and each would be a time
// series for ever. Log them with locking.Log.
//
// What to watch, each as a rate over some minutes:
//
//	(timed_out + failed) / (acquired + timed_out + failed)   failure rate: alert above 5 %
//	failed, renew_failed                                     the store fails or does not answer
//	lost                                                     work continued for a moment without its lock
//	left                                                     keys stay taken until their TTL
//	hold_seconds, 99th percentile                            alert above 3 times the expected value
//	renew_lag_seconds, 99th percentile                       two thirds of the TTL: the lease is lost
package lockprom

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"shop/locking"
)

// kinds are the kinds whose series exist from the start: a rate needs an initial zero.
var kinds = []locking.Kind{
	locking.Attempt, locking.Busy, locking.Acquired, locking.TimedOut, locking.Failed,
	locking.Renewed, locking.RenewFailed, locking.Lost, locking.Released, locking.Left,
}

// New registers the metrics with reg, and returns the Observer that updates them for
// the named store. Several stores, and several calls for one store, share the metrics.
func New(reg prometheus.Registerer, store string) (locking.Observer, error) {
	events, err1 := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "locking_events_total",
		Help: "Events of locks, by store and kind.",
	}, []string{"store", "kind"}))
	waits, err2 := register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "locking_wait_seconds",
		Help:    "Time from the first attempt to the grant, or to the time-out.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16), // 0.5 ms to 16 s
	}, []string{"store"}))
	holds, err3 := register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "locking_hold_seconds",
		Help:    "Time from the grant to the end of the work.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 18), // 0.5 ms to 66 s
	}, []string{"store"}))
	lags, err4 := register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "locking_renew_lag_seconds",
		Help:    "Time from when a renewal was due to its confirmation.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9), // 0.5 ms to 33 s
	}, []string{"store"}))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	return observe(events.MustCurryWith(prometheus.Labels{"store": store}),
		waits.WithLabelValues(store), holds.WithLabelValues(store), lags.WithLabelValues(store)), nil
}

// observe looks up each series once, so that an event costs a map read and an atomic add.
func observe(events *prometheus.CounterVec, waits, holds, lags prometheus.Observer) locking.Observer {
	counters := make(map[locking.Kind]prometheus.Counter, len(kinds))
	for _, kind := range kinds {
		counters[kind] = events.WithLabelValues(string(kind))
	}
	return func(e locking.Event) {
		if counter, ok := counters[e.Kind]; ok {
			counter.Inc()
		}
		switch e.Kind {
		case locking.Acquired, locking.TimedOut: // without the time-outs, long waits would be missing
			waits.Observe(e.Wait.Seconds())
		case locking.Released, locking.Left:
			holds.Observe(e.Held.Seconds())
		case locking.Renewed:
			lags.Observe(e.Wait.Seconds())
		}
	}
}

// register registers c and returns it, or the same collector if it is registered already.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) (C, error) {
	err := reg.Register(c)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if existing, ok := before.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	if err != nil {
		return c, fmt.Errorf("lockprom: %w", err)
	}
	return c, nil
}

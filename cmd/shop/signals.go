// SPDX-License-Identifier: MIT

package main

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"shop/locking"
	"shop/locking/lockprom"
)

// signals are what a command reports while it runs.
type signals struct {
	log     *slog.Logger
	metrics *prometheus.Registry
	traces  *tracer // nil: off
}

// observer counts, logs and traces the locks of a store.
func (s signals) observer(store string) (locking.Observer, error) {
	count, err := lockprom.New(s.metrics, store)
	if err != nil {
		return nil, err
	}
	return locking.Observers(count, locking.Log(s.log), s.traces.observer(store)), nil
}

// SPDX-License-Identifier: MIT

package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"shop/inventory"
	"shop/transfer"
	"shop/wallet"
)

// newRegistry returns a registry with the metrics of the Go runtime and the process.
func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

var (
	stockKinds = []inventory.EventKind{
		inventory.GuardTripped, inventory.Retried, inventory.Degraded, inventory.Bypassed, inventory.Shed, inventory.Ambiguous, inventory.Resolved,
	}
	moneyKinds = []transfer.EventKind{
		transfer.FenceRefused, transfer.GuardTripped, transfer.Retried, transfer.Ambiguous, transfer.Resolved,
		transfer.Unavailable, transfer.Swept,
	}
	walletKinds = []wallet.EventKind{
		wallet.Retried, wallet.Conflict, wallet.Transient, wallet.Expired, wallet.Ambiguous, wallet.Resolved,
		wallet.GuardTripped, wallet.QueueFull, wallet.Unavailable,
	}
)

// countEvents registers the event counter of a flow. All series exist from the start, so
// that a rate over them has no gap.
func countEvents[K ~string](reg prometheus.Registerer, flow string, kinds []K, strategies []string) func(K, string) {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: flow + "_events_total", Help: "Events by kind and strategy: guard_tripped must stay 0 with a safe strategy.",
	}, []string{"kind", "strategy"})
	reg.MustRegister(events)
	for _, strategy := range strategies {
		for _, kind := range kinds {
			events.WithLabelValues(string(kind), strategy)
		}
	}
	return func(kind K, strategy string) {
		events.WithLabelValues(string(kind), strategy).Inc()
	}
}

// showBreaker exports the state of a circuit breaker as a metric.
func showBreaker(reg prometheus.Registerer, server string, open func() bool) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "breaker_open", Help: "1 while requests are not sent to this server, because it gives no answer.",
		ConstLabels: prometheus.Labels{"server": server},
	}, func() float64 {
		if open() {
			return 1
		}
		return 0
	}))
}

// metricsHandler serves only /metrics. Its own errors are counted there too.
func metricsHandler(reg *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	return mux
}

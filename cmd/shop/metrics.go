package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"shop/inventory"
)

// newRegistry holds the metrics of this process, and those of Go and the system.
func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

var kinds = []inventory.EventKind{
	inventory.GuardTripped, inventory.Retried, inventory.Degraded, inventory.Shed, inventory.Ambiguous, inventory.Resolved,
}

// countEvents gives inventory its counter.
func countEvents(reg prometheus.Registerer) func(inventory.EventKind, string) {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "inventory_events_total", Help: "What is worth counting, by strategy: guard_tripped must stay 0 with a safe one.",
	}, []string{"kind", "strategy"})
	reg.MustRegister(events)
	for _, s := range inventory.Strategies() { // a 0 that can be seen is worth more than nothing
		for _, kind := range kinds {
			events.WithLabelValues(string(kind), s.Name)
		}
	}
	return func(kind inventory.EventKind, strategy string) {
		events.WithLabelValues(string(kind), strategy).Inc()
	}
}

// metricsHandler serves /metrics alone. Its own errors are counted there too.
func metricsHandler(reg *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
	return mux
}

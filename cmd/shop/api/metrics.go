// SPDX-License-Identifier: MIT

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the requests. Labels come from openapi.yaml, not from the request: an
// arbitrary path must not create a time series.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
	refused  *prometheus.CounterVec
	problems *prometheus.CounterVec
	replays  prometheus.Counter
}

// limits maps the label of a refusal to its error; doc.go lists them.
var limits = map[string]error{
	"unknown_keys": errUnknownKeys, "client_rate": errRateLimited, "client_share": errShare, "stored_keys": errStoredKeys,
	"body_time": errSlowBody, "at_work": errFull,
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "http_requests_total", Help: "Requests answered.",
		}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "http_request_seconds", Help: "Time from the head of a request to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15), // 0.5 ms to 8 s
		}, []string{"route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "http_requests_in_flight", Help: "Requests without an answer yet.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "http_requests_refused_total", Help: "Requests refused by a limit of the server.",
		}, []string{"limit"}),
		problems: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "http_problems_total", Help: "Requests answered by a problem, by its type without /problems/.",
		}, []string{"type"}),
		replays: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "http_replays_total", Help: "Requests answered by the stored reply of their idempotency key.",
		}),
	}
	for limit := range limits {
		m.refused.WithLabelValues(limit)
	}
	for _, row := range table {
		m.problems.WithLabelValues(row.kind.typ.label())
	}
	m.problems.WithLabelValues(internal.typ.label())
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.inFlight, m.refused, m.problems, m.replays} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("api: metrics: %w", err)
		}
	}
	return m, nil
}

// observe counts a request after its reply.
func (m *metrics) observe(c echo.Context, took time.Duration, err error) {
	route := routeOf(c)
	m.requests.WithLabelValues(route, methodOf(c.Request()), strconv.Itoa(c.Response().Status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
	if err != nil {
		m.problems.WithLabelValues(kindOf(err).typ.label()).Inc()
	}
	if c.Response().Header().Get(headerReplayed) != "" {
		m.replays.Inc()
	}
	for limit, is := range limits {
		if errors.Is(err, is) {
			m.refused.WithLabelValues(limit).Inc()
		}
	}
}

// refusal counts a stored problem.
func (m *metrics) refusal(body []byte) {
	var problem struct{ Type ProblemType }
	if json.Unmarshal(body, &problem) != nil {
		return
	}
	for _, row := range table {
		if row.kind.typ == problem.Type { // only known types become labels
			m.problems.WithLabelValues(problem.Type.label()).Inc()
			return
		}
	}
}

// label is the type as a label: there are as many as the table has.
func (t ProblemType) label() string { return strings.TrimPrefix(string(t), "/problems/") }

// routeOf is the path as openapi.yaml writes it, or "unmatched".
func routeOf(c echo.Context) string {
	if op, ok := c.Get(ctxOperation).(*operation); ok {
		return op.route.Path
	}
	return "unmatched"
}

// methods are the methods with a label of their own; all others share one.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

func methodOf(r *http.Request) string {
	if slices.Contains(methods, r.Method) {
		return r.Method
	}
	return "other"
}

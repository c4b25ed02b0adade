package api

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the requests. Labels come from openapi.yaml, never from the
// request: a path made up by a stranger must not make a time series.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
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
			Name: "http_requests_in_flight", Help: "Requests being worked on.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.inFlight} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("api: metrics: %w", err)
		}
	}
	return m, nil
}

// observe counts a request that was answered, whatever the answer was.
func (m *metrics) observe(c echo.Context, took time.Duration) {
	route := routeOf(c)
	m.requests.WithLabelValues(route, methodOf(c.Request()), strconv.Itoa(c.Response().Status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

// routeOf is the path as openapi.yaml writes it, or "unmatched".
func routeOf(c echo.Context) string {
	if op, ok := c.Get(ctxOperation).(*operation); ok {
		return op.route.Path
	}
	return "unmatched"
}

// methods that are worth a label; the rest is one.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions}

func methodOf(r *http.Request) string {
	if slices.Contains(methods, r.Method) {
		return r.Method
	}
	return "other"
}

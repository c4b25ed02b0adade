// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/go-logr/logr"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"shop/locking"
)

// traceFlags have the names of OpenTelemetry's own variables. Its exporter reads the
// others, such as OTEL_EXPORTER_OTLP_HEADERS and OTEL_RESOURCE_ATTRIBUTES, by itself.
type traceFlags struct {
	Endpoint string  `name:"otlp-endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" placeholder:"URL" help:"Where traces are sent, by OTLP/HTTP, as in http://127.0.0.1:4318. Without it no request is traced, and tracing costs nothing."`
	Ratio    float64 `name:"trace-ratio" env:"OTEL_TRACES_SAMPLER_ARG" default:"1" help:"Share of the requests that are traced, from 0 to 1."`
}

func (f traceFlags) validate() error {
	if f.Endpoint == "" {
		return nil
	}
	if err := checkURL("--otlp-endpoint (OTEL_EXPORTER_OTLP_ENDPOINT)", f.Endpoint); err != nil {
		return err
	}
	if u, err := url.Parse(f.Endpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("--otlp-endpoint (OTEL_EXPORTER_OTLP_ENDPOINT): want the address of a collector, as in http://127.0.0.1:4318")
	}
	if f.Ratio < 0 || f.Ratio > 1 {
		return fmt.Errorf("--trace-ratio %v: must be from 0 to 1", f.Ratio)
	}
	return nil
}

// tracer makes one trace of each request: its span, and under it those of its locks and
// of what it sends to each server.
//
// A nil tracer is off. Its methods install nothing: no handler, hook or monitor that a
// request would pass.
type tracer struct {
	provider *sdk.TracerProvider
	locks    trace.Tracer
}

// open returns a nil tracer without an endpoint. It does no network I/O.
func (f traceFlags) open(ctx context.Context, log *slog.Logger) (*tracer, error) {
	if f.Endpoint == "" {
		return nil, nil
	}
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces were not sent", "error", err) }))
	to, err := url.JoinPath(f.Endpoint, "v1/traces")
	if err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to))
	if err != nil {
		return nil, err
	}
	of, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "shop")),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv()) // the last one wins
	if err != nil {
		return nil, err
	}
	t := &tracer{provider: sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(of),
		sdk.WithSampler(requestsOnly{sdk.ParentBased(sdk.TraceIDRatioBased(f.Ratio))}))}
	t.locks = t.provider.Tracer("shop/locking")
	return t, nil
}

// requestsOnly begins a trace with a request alone: the probes of servers, and the
// renewals of sessions, are no trace.
type requestsOnly struct{ sdk.Sampler }

func (s requestsOnly) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	if p.Kind != trace.SpanKindServer && !trace.SpanContextFromContext(p.ParentContext).IsValid() {
		return sdk.SamplingResult{Decision: sdk.Drop}
	}
	return s.Sampler.ShouldSample(p)
}

// handler traces the requests to h, except probes. A client does not decide what is
// traced: its own trace is linked, and not continued.
func (t *tracer) handler(h http.Handler) http.Handler {
	if t == nil {
		return h
	}
	return otelhttp.NewHandler(h, "request", otelhttp.WithTracerProvider(t.provider), otelhttp.WithPropagators(propagation.TraceContext{}),
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }),
		otelhttp.WithFilter(func(r *http.Request) bool { return r.URL.Path != "/livez" && r.URL.Path != "/readyz" }),
	)
}

// transport traces the requests of a client, and passes the trace on.
func (t *tracer) transport(base http.RoundTripper) http.RoundTripper {
	if t == nil {
		return base
	}
	return otelhttp.NewTransport(base, otelhttp.WithTracerProvider(t.provider), otelhttp.WithPropagators(propagation.TraceContext{}))
}

// postgres traces statements, not their parameters.
func (t *tracer) postgres(c *pgxpool.Config) {
	if t != nil {
		c.ConnConfig.Tracer = otelpgx.NewTracer(otelpgx.WithTracerProvider(t.provider))
	}
}

// redis traces the names of commands, not their arguments.
func (t *tracer) redis(client redis.UniversalClient) error {
	if t == nil {
		return nil
	}
	return redisotel.InstrumentTracing(client, redisotel.WithTracerProvider(t.provider), redisotel.WithDBStatement(false), redisotel.WithCallerEnabled(false))
}

func (t *tracer) etcd(c *clientv3.Config) {
	if t != nil {
		c.DialOptions = append(c.DialOptions, grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(propagation.TraceContext{}))))
	}
}

// observer makes two spans of a lock: the wait for it, and the time that it is held.
func (t *tracer) observer(store string) locking.Observer {
	if t == nil {
		return nil
	}
	return func(e locking.Event) {
		switch e.Kind {
		case locking.Acquired, locking.TimedOut:
			t.lock("lock wait", store, e, e.Wait)
		case locking.Released, locking.Left:
			t.lock("lock hold", store, e, e.Held)
		case locking.Lost:
			trace.SpanFromContext(e.Ctx).AddEvent("lock lost")
		}
	}
}

// lock makes a span that ends now.
func (t *tracer) lock(name, store string, e locking.Event, took time.Duration) {
	now := time.Now()
	_, span := t.locks.Start(e.Ctx, name, trace.WithTimestamp(now.Add(-took)), trace.WithAttributes(
		attribute.String("lock.store", store), attribute.StringSlice("lock.keys", e.Keys),
		attribute.String("lock.owner", e.Owner), attribute.Int64("lock.fence", int64(e.Fence)),
	))
	if e.Err != nil {
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End(trace.WithTimestamp(now))
}

// log adds the ids of the trace to the lines of a request.
func (t *tracer) log(log *slog.Logger) *slog.Logger {
	if t == nil {
		return log
	}
	return slog.New(traceHandler{log.Handler()})
}

// close sends the spans that are left.
func (t *tracer) close(log *slog.Logger) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		log.Warn("the last traces were not sent", "error", err)
	}
}

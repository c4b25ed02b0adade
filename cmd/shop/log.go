// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// open returns the log of a command that runs for long, and a registry that counts what the log loses.
func (f logFlags) open(w *logWriter) (*slog.Logger, *prometheus.Registry) {
	log, reg := f.logger(w), newRegistry()
	w.reportTo(log, reg)
	return log, reg
}

// logger writes JSON or text. In JSON, durations are in milliseconds and their names end
// in _ms; slog's default is nanoseconds without a unit.
func (f logFlags) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.LogLevel}
	if f.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	options.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			return slog.Float64(a.Key+"_ms", float64(a.Value.Duration())/float64(time.Millisecond))
		}
		return a
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// traceHandler adds the ids of the trace and of the span that the context belongs to.
type traceHandler struct{ slog.Handler }

func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceHandler{h.Handler.WithAttrs(attrs)}
}

func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.Handler.WithGroup(name)}
}

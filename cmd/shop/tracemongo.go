// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"sync"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// mongo traces commands by name, not their documents. OpenTelemetry has no released
// monitor for this version of the driver.
func (t *tracer) mongo() *options.ClientOptions {
	if t == nil {
		return options.Client()
	}
	m := &mongoMonitor{tracer: t.provider.Tracer("shop/mongo")}
	return options.Client().SetMonitor(&event.CommandMonitor{
		Started:   m.started,
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { m.ended(e.CommandFinishedEvent, nil) },
		Failed:    func(_ context.Context, e *event.CommandFailedEvent) { m.ended(e.CommandFinishedEvent, e.Failure) },
	})
}

// mongoMonitor keeps the span of each command under way.
type mongoMonitor struct {
	tracer trace.Tracer
	spans  sync.Map // mongoRequest → trace.Span
}

// mongoRequest identifies a command: request ids are unique for each connection.
type mongoRequest struct {
	connection string
	id         int64
}

func (m *mongoMonitor) started(ctx context.Context, e *event.CommandStartedEvent) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return // a probe, or a request that is not traced
	}
	_, span := m.tracer.Start(ctx, e.CommandName, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("db.system.name", "mongodb"), attribute.String("db.namespace", e.DatabaseName), attribute.String("db.operation.name", e.CommandName),
	))
	m.spans.Store(mongoRequest{e.ConnectionID, e.RequestID}, span)
}

func (m *mongoMonitor) ended(e event.CommandFinishedEvent, err error) {
	kept, traced := m.spans.LoadAndDelete(mongoRequest{e.ConnectionID, e.RequestID})
	if !traced {
		return
	}
	span := kept.(trace.Span)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

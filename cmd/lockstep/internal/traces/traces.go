// Package traces sends the stages of slow requests to a collector, as OpenTelemetry spans over OTLP.
//
// The trace of a forwarded write has the number of that write, which both nodes know. So the spans of both nodes meet in one trace, and no
// message between nodes has more bytes for it.
package traces

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/lockstep-io/lockstep/cluster"
)

const (
	// mostTraces is how many requests a second become traces, after a burst of as many: while everything is slow, a few tell enough.
	mostTraces = 100
	// stopTime is how long the end of a node may wait for the collector.
	stopTime = time.Second
	// complainEvery is how often the log says that the collector gets nothing.
	complainEvery = time.Minute
)

// Sender sends traces.
type Sender struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	pace     *rate.Limiter
	left     atomic.Int64 // requests left out because of mostTraces
}

// New returns a Sender for the collector at an address, such as http://collector:4318: without a path, it is /v1/traces there. The node is named in each span. The sender's queue is
// bounded, and while the collector does not take the spans, they are dropped.
func New(endpoint, node, version string, log *slog.Logger) (*Sender, error) {
	at, err := url.Parse(endpoint)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return nil, fmt.Errorf("%q is no address of a collector: want a URL such as http://collector:4318", endpoint)
	}
	if at.Path == "" || at.Path == "/" {
		at.Path = "/v1/traces"
	}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(at.String()))
	if err != nil {
		return nil, err
	}
	said := rate.NewLimiter(rate.Every(complainEvery), 1)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if said.Allow() {
			log.Warn("traces of slow requests cannot be sent (--otlp-endpoint)", "error", err)
		}
	}))
	return with(sdk.WithBatcher(exporter), node, version), nil
}

func with(sends sdk.TracerProviderOption, node, version string) *Sender {
	about := resource.NewSchemaless(attribute.String("service.name", "lockstep"), attribute.String("service.instance.id", node), attribute.String("service.version", version))
	p := sdk.NewTracerProvider(sends, sdk.WithResource(about), sdk.WithIDGenerator(numbers{}), sdk.WithSampler(sdk.AlwaysSample()))
	return &Sender{provider: p, tracer: p.Tracer("lockstep"), pace: rate.NewLimiter(mostTraces, mostTraces)}
}

// Send makes spans of a slow request. It does not block.
func (s *Sender) Send(r cluster.SlowRequest) {
	if len(r.Stages) == 0 {
		return
	}
	if !s.pace.Allow() {
		s.left.Add(1)
		return
	}
	attributes := []attribute.KeyValue{attribute.String("db.system.name", "lockstep"), attribute.String("db.operation.name", r.Command), attribute.Int("db.operation.batch.size", r.Calls)}
	if r.Node != "" {
		attributes = append(attributes, attribute.String("lockstep.client.node", r.Node))
	}
	if n := s.left.Swap(0); n > 0 {
		attributes = append(attributes, attribute.Int64("lockstep.traces.left_out", n))
	}
	from, to := r.Stages[0].From, r.Stages[len(r.Stages)-1].To
	ctx := numbered(context.Background(), r)
	if !r.Leads { // there is one stage, and the spans of the leader are inside
		_, span := s.tracer.Start(ctx, r.Command, trace.WithTimestamp(from), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
		span.End(trace.WithTimestamp(to))
		return
	}
	ctx, span := s.tracer.Start(ctx, r.Command+" (leader)", trace.WithTimestamp(from), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	for _, stage := range r.Stages {
		_, part := s.tracer.Start(ctx, stage.Name, trace.WithTimestamp(stage.From))
		part.End(trace.WithTimestamp(stage.To))
	}
	span.End(trace.WithTimestamp(to))
}

// Close sends what waits, for stopTime at most. A nil Sender has nothing to send.
func (s *Sender) Close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if err := s.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

type key struct{}

// numbered returns the context for the first span of a request. On the leader, that span is inside the one of the other node.
func numbered(ctx context.Context, r cluster.SlowRequest) context.Context {
	if r.Number == 0 {
		return ctx
	}
	var id trace.TraceID
	binary.BigEndian.PutUint64(id[:8], r.Origin)
	binary.BigEndian.PutUint64(id[8:], r.Number)
	var outer trace.SpanID
	binary.BigEndian.PutUint64(outer[:], (r.Origin^r.Number)|1)
	if r.Leads {
		return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: outer, TraceFlags: trace.FlagsSampled}))
	}
	return context.WithValue(ctx, key{}, ids{id, outer})
}

type ids struct {
	trace trace.TraceID
	span  trace.SpanID
}

// numbers gives the first span of a request the numbers that numbered has chosen, and all others random ones.
type numbers struct{}

func (numbers) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if chosen, ok := ctx.Value(key{}).(ids); ok {
		return chosen.trace, chosen.span
	}
	var id trace.TraceID
	binary.BigEndian.PutUint64(id[:8], rand.Uint64()|1)
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	return id, numbers{}.NewSpanID(ctx, id)
}

func (numbers) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

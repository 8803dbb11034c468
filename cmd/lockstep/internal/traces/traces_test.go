package traces

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockstep-io/lockstep/cluster"
)

var began = time.Unix(1_700_000_000, 0)

func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

// leader and other are what two nodes tell of one request.
var (
	leader = cluster.SlowRequest{Command: "set", Calls: 1, Node: "n2", Origin: 7, Number: 9, Leads: true, Stages: []cluster.Stage{
		{Name: cluster.StageQueue, From: at(1), To: at(2)}, {Name: cluster.StageEvaluate, From: at(2), To: at(3)}, {Name: cluster.StageCommit, From: at(3), To: at(150)}}}
	other = cluster.SlowRequest{Command: "set", Calls: 1, Origin: 7, Number: 9, Stages: []cluster.Stage{{Name: cluster.StageForward, From: at(0), To: at(151)}}}
)

// spans returns the spans that a Sender makes of requests.
func spans(t *testing.T, node string, requests ...cluster.SlowRequest) tracetest.SpanStubs {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	s := with(sdk.WithSyncer(kept), node, "v")
	for _, r := range requests {
		s.Send(r)
	}
	return kept.GetSpans()
}

// TestSpans: the stages of a request are one after the other inside its span, and those of the leader inside the one of the other node.
func TestSpans(t *testing.T) {
	inner, outer := spans(t, "n1", leader), spans(t, "n2", other)
	if len(inner) != 4 || len(outer) != 1 {
		t.Fatalf("%d and %d spans", len(inner), len(outer))
	}
	top, root := inner[3], outer[0]
	if top.SpanContext.TraceID() != root.SpanContext.TraceID() || top.Parent.SpanID() != root.SpanContext.SpanID() || root.Parent.IsValid() {
		t.Errorf("the leader's span is not inside the other: %+v %+v", top, root)
	}
	var got []string
	for _, s := range inner {
		if s.Name != top.Name && s.Parent.SpanID() != top.SpanContext.SpanID() {
			t.Errorf("%s is not inside %s", s.Name, top.Name)
		}
		got = append(got, fmt.Sprint(s.Name, " ", s.StartTime.Sub(began), " ", s.EndTime.Sub(began)))
	}
	if text := strings.Join(got, ", "); text != "queue 1ms 2ms, evaluate 2ms 3ms, commit 3ms 150ms, set (leader) 1ms 150ms" {
		t.Error(text)
	}
	about := fmt.Sprint(top.Resource, top.Attributes)
	for _, want := range []string{"service.name=lockstep", "service.instance.id=n1", "n2", "set"} {
		if !strings.Contains(about, want) {
			t.Errorf("%s has no %s", about, want)
		}
	}
	read := leader
	read.Number = 0
	if two := spans(t, "n1", read, read); two[3].SpanContext.TraceID() == two[7].SpanContext.TraceID() {
		t.Error("two reads have one trace")
	}
}

// TestFewTraces: while everything is slow, a few traces a second are made, and a later one says how many were left out.
func TestFewTraces(t *testing.T) {
	kept := tracetest.NewInMemoryExporter()
	s := with(sdk.WithSyncer(kept), "n1", "v")
	s.pace.SetLimit(0)
	for range 3 * mostTraces {
		s.Send(other)
	}
	if n := len(kept.GetSpans()); n != mostTraces {
		t.Errorf("%d spans", n)
	}
	s.pace.SetBurst(0)
	s.pace.SetLimit(1e9)
	s.pace.SetBurst(1)
	kept.Reset()
	s.Send(other)
	if text := fmt.Sprint(kept.GetSpans()); !strings.Contains(text, "left_out") {
		t.Error(text)
	}
}

// TestCollector: the spans reach a collector over OTLP, and a collector that fails is said once and holds nothing up.
func TestCollector(t *testing.T) {
	got := make(chan string, 10)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- r.Method + " " + r.URL.Path + " " + string(body)
	}))
	defer web.Close()
	s, err := New(web.URL, "n1", "v", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.Send(leader)
	s.Close()
	if text := <-got; !strings.HasPrefix(text, "POST /v1/traces ") || !strings.Contains(text, "set (leader)") {
		t.Errorf("%.200q", text)
	}
	for _, bad := range []string{"", "collector:4318", "ftp://collector", "http://", "http://\n"} {
		if _, err := New(bad, "n1", "v", nil); err == nil || !strings.Contains(err.Error(), "want a URL such as") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	var log strings.Builder
	s, err = New("http://127.0.0.1:1", "n1", "v", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s.Send(leader)
	}
	s.Close()
	if text := log.String(); strings.Count(text, "cannot be sent") != 1 {
		t.Error(text)
	}
	(*Sender)(nil).Close()
}

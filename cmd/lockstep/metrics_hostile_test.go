package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cluster/tally"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// scraped returns the parts of an ephemeral node, which end with the test.
func scraped(t testing.TB) *parts {
	t.Helper()
	o := options{id: "n1", listen: "127.0.0.1:0", protected: "yes", voter: "yes", sentinelAuth: "yes", ephemeral: true, failoverWait: time.Second, scriptLimit: time.Second}
	cfg, err := o.clusterConfig()
	if err != nil {
		t.Fatal(err)
	}
	p, err := assemble(o, cfg, memoryPlan{}, cluster.NewSystemTime(), slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.listeners.close(), p.node.Close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestScrapesDoNotDependOnTheRequest: whatever format, encoding or part a client asks for, it gets the page that is there, and nobody compresses
// or sorts anything for it.
func TestScrapesDoNotDependOnTheRequest(t *testing.T) {
	pages := pages(options{}, scraped(t), slog.New(slog.DiscardHandler))
	for _, header := range []http.Header{
		{}, {"Accept": {";;;q=x,,application/openmetrics-text;version=99"}}, {"Accept": {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"}},
		{"Accept": {strings.Repeat("text/plain;q=0.1,", 400)}}, {"Accept-Encoding": {"gzip"}}, {"Accept-Encoding": {"zstd;q=1, gzip, deflate, br"}}, {"Range": {"bytes=0-0,2-2,4-4"}},
		{"If-None-Match": {"*"}}, {"X-Prometheus-Scrape-Timeout-Seconds": {"1e309"}}, {"Te": {"trailers"}},
	} {
		for _, query := range []string{"", "?name[]=lockstep_keys", "?" + strings.Repeat("a[]=b&", 500)} {
			r, w := httptest.NewRequest("GET", "/metrics"+query, nil), httptest.NewRecorder()
			r.Header = header
			pages.ServeHTTP(w, r)
			if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") || w.Header().Get("Content-Encoding") != "" ||
				!strings.Contains(w.Body.String(), "\nlockstep_is_leader ") || !strings.Contains(w.Body.String(), "\ngo_goroutines ") {
				t.Errorf("%.100v%.20s: %d %v %.100s", header, query, w.Code, w.Header(), w.Body)
			}
		}
	}
}

// TestSlowScrapersShareThePage: clients that read slowly keep one page in memory, as long as no other one is made.
func TestSlowScrapersShareThePage(t *testing.T) {
	fails := false
	r := rendering{pace: rate.NewLimiter(0, 1), render: func(w io.Writer) error {
		if fails {
			return errors.New("no figures")
		}
		_, err := io.WriteString(w, "page")
		return err
	}}
	first, err := r.page()
	second, again := r.page()
	if err != nil || again != nil || &first[0] != &second[0] {
		t.Errorf("%v, %v: each client gets a page of its own", err, again)
	}
	fails, r.last = true, nil
	w := httptest.NewRecorder()
	if r.serve(w, nil); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "no figures") {
		t.Errorf("a page that cannot be made: %d %s", w.Code, w.Body)
	}
	fails = false
	w = httptest.NewRecorder()
	if r.serve(w, nil); w.Code != http.StatusOK || w.Body.String() != "page" {
		t.Errorf("afterwards: %d %s", w.Code, w.Body)
	}
}

// longestScrape bounds the page /metrics, in bytes.
const longestScrape = 128 << 10

// TestTheLongestScrape: /metrics stays short when clients have sent every command, and some that do not exist, and all kinds of locks were used.
func TestTheLongestScrape(t *testing.T) {
	p := scraped(t)
	failed := p.serve()
	c, err := respclient.Dial(p.listeners.plain.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, name := range p.commandNames(t, c) {
		if _, err := c.Do(append([]string{name}, strings.Fields(strings.Repeat("x ", 70))...)...); err == nil && name == "nonsense" {
			t.Error("nonsense is a command")
		}
	}
	for _, kind := range append(kinds(p), "invented", "", strings.Repeat("k", 10_000)) {
		l := p.node.Measures().Locks
		l.Granted(kind)
		l.Waits(kind)
		l.Waited(kind, tally.Got, time.Second)
		l.Ended(kind, tally.Expired, time.Second)
	}
	var b bytes.Buffer
	if err := writeFigures(&b, newRegistry(p)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\nlockstep_commands_"); n < 200 {
		t.Errorf("%d lines are about commands", n)
	}
	if b.Len() > longestScrape || strings.Contains(b.String(), "nonsense") || strings.Contains(b.String(), "invented") {
		t.Errorf("the scrape has %d bytes", b.Len())
	}
	t.Logf("%d bytes", b.Len())
	select {
	case err := <-failed:
		t.Error(err)
	default:
	}
}

// commandNames returns the names of all commands that may be sent here, and of one that does not exist.
func (p *parts) commandNames(t *testing.T, c *respclient.Conn) []string {
	t.Helper()
	reply, err := c.Do("COMMAND", "LIST")
	if err != nil {
		t.Fatal(err)
	}
	list := []string{"nonsense"}
	for _, name := range reply.([]any) {
		switch name {
		case "shutdown", "quit", "monitor", "subscribe", "psubscribe", "ssubscribe", "reset", "hello", "auth", "client": // these end or change the connection
		default:
			list = append(list, name.(string))
		}
	}
	return list
}

// kinds returns the kinds of locks that a node counts.
func kinds(p *parts) (list []string) {
	p.node.Measures().Locks.Each(func(kind string, _ *tally.LockKind) { list = append(list, kind) })
	return list
}

// TestScrapeOfANodeThatHasEnded: a scrape that comes while the node ends gets an answer.
func TestScrapeOfANodeThatHasEnded(t *testing.T) {
	p := scraped(t)
	r := newRegistry(p)
	if err := p.node.Close(); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := writeFigures(&b, r); err != nil || !strings.Contains(b.String(), "\nlockstep_ready 0\n") {
		t.Errorf("%v %.200s", err, b.String())
	}
}

// BenchmarkScrape measures the computation of /metrics. An idle client at most makes a node do it figuresRate times a second.
func BenchmarkScrape(b *testing.B) {
	r := newRegistry(scraped(b))
	for b.Loop() {
		if err := writeFigures(io.Discard, r); err != nil {
			b.Fatal(err)
		}
	}
}

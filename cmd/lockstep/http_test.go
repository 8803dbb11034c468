package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// page requests a page and returns the status and the text. If name is not empty, it asks as that user.
func page(t *testing.T, client *http.Client, url, name, password, host string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if name != "" {
		req.SetBasicAuth(name, password)
	}
	if host != "" {
		req.Host = host
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestPagesAndRights: everybody may read the pages for probes. /debug needs the right to DEBUG, and protected /metrics the right to
// INFO.
func TestPagesAndRights(t *testing.T) {
	list, _ := nodes.StartSecret(t, 1, "--requirepass", "of all", "--http-metrics-auth", "--http-tls")
	n := list[0]
	c := n.Dial()
	for _, command := range [][]string{{"AUTH", "of all"}, {"ACL", "SETUSER", "op", "on", ">of op", "+debug"}, {"ACL", "SETUSER", "prom", "on", ">of prom", "+info"},
		{"ACL", "SETUSER", "gone", "off", ">of gone", "+@all"}} {
		if got := ask(t, c, command...); got != "OK" {
			t.Fatal(command, got)
		}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	for _, p := range []struct {
		path, name, password string
		want                 int
	}{
		{"/healthz", "", "", 200}, {"/readyz", "", "", 200},
		{"/metrics", "", "", 401}, {"/metrics", "prom", "of prom", 200}, {"/metrics", "op", "of op", 403}, {"/metrics", "prom", "of op", 401},
		{"/debug/pprof/", "", "", 401}, {"/debug/pprof/", "default", "of all", 200}, {"/debug/pprof/", "op", "of op", 200},
		{"/debug/pprof/goroutine?debug=2", "", "", 401}, {"/debug/pprof/cmdline", "", "", 401},
		{"/debug/pprof/profile?seconds=1", "prom", "of prom", 403}, {"/debug/pprof/heap", "gone", "of gone", 401},
		{"/debug/pprof/", "default", "", 401}, {"/debug/pprof/", "nobody", "", 401}, {"/debug//pprof/", "", "", 401}, {"/healthz/../debug/pprof/heap", "", "", 401},
		{"/debug/vars", "", "", 404}, {"/", "", "", 404},
	} {
		if got, text := page(t, client, "https://"+n.HTTPAddr+p.path, p.name, p.password, ""); got != p.want {
			t.Errorf("%s as %q: %d, want %d: %.100s", p.path, p.name, got, p.want, text)
		}
	}
	if _, text := page(t, client, "https://"+n.HTTPAddr+"/metrics", "prom", "of prom", ""); strings.Contains(text, "of all") || !strings.Contains(text, "lockstep_tls_handshake_failures_total 0") {
		t.Errorf("%s", text)
	}
	if _, text := page(t, client, "https://"+n.HTTPAddr+"/metrics", "prom", "of prom", ""); !strings.Contains(text, "\nlockstep_tracking_keys 0\n") {
		t.Errorf("nothing of the tracking table: %s", text)
	}
	if got := ask(t, c, "CONFIG", "GET", "maxmemory-clients"); !regexp.MustCompile(`[1-9][0-9]{5,}`).MatchString(got) {
		t.Errorf("what clients hold has no limit: %q", got)
	}
	for body, want := range map[string]int{"": http.StatusMethodNotAllowed, "x": http.StatusRequestEntityTooLarge} {
		resp, err := client.Post("https://"+n.HTTPAddr+"/debug/pprof/", "text/plain", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("POST of %q: %s, want %d", body, resp.Status, want)
		}
	}
	checkHealth(t, []string{"--http-listen", n.HTTPAddr, "--http-tls"}, exitOK, "ready\n")
	checkHealth(t, []string{"--http-listen", n.HTTPAddr}, exitRuntime, "")
}

// TestPagesWithoutPassword: without a password, only clients on this machine may read /debug, and not for a foreign web page.
func TestPagesWithoutPassword(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	for host, want := range map[string]int{"": 200, "localhost:8379": 200, "evil.example": 401, "evil.example:8379": 401} {
		if got, _ := page(t, http.DefaultClient, "http://"+n.HTTPAddr+"/debug/pprof/", "", "", host); got != want {
			t.Errorf("host %q: %d, want %d", host, got, want)
		}
	}
	g := guardian{protected: func() bool { return true }}
	far := httpRecorder{header: http.Header{}}
	g.only("debug", func(http.ResponseWriter, *http.Request) { t.Error("shown to another machine") })(&far, &http.Request{RemoteAddr: "192.0.2.1:5000", Host: "127.0.0.1:8379"})
	if far.status != http.StatusUnauthorized {
		t.Errorf("another machine: %d", far.status)
	}
}

// TestPagesFollowProtectedMode: a change of protected-mode by CONFIG SET takes effect for /debug and the guarded metrics, too.
func TestPagesFollowProtectedMode(t *testing.T) {
	for _, begin := range []string{"yes", "no"} {
		n := nodes.Start(t, 1, "--protected-mode", begin, "--http-metrics-auth")[0]
		c := n.Dial()
		for _, mode := range []string{begin, "yes", "no", "yes"} {
			if got := ask(t, c, "CONFIG", "SET", "protected-mode", mode); got != "OK" {
				t.Fatal(got)
			}
			want := map[string]int{"yes": http.StatusUnauthorized, "no": http.StatusOK}[mode]
			for _, path := range []string{"/debug/pprof/", "/metrics"} {
				if got, _ := page(t, http.DefaultClient, "http://"+n.HTTPAddr+path, "", "", "evil.example"); got != want {
					t.Errorf("begun with %s, now %s: %s says %d, want %d", begin, mode, path, got, want)
				}
			}
		}
	}
}

// TestOneProfileAtATime: a profile of megabytes stays in memory until its client has read it, so the next client is refused.
func TestOneProfileAtATime(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+n.HTTPAddr+"/debug/pprof/goroutine?seconds=30", nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}()
	until := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Second); ; {
			got, _ := page(t, http.DefaultClient, "http://"+n.HTTPAddr+"/debug/pprof/cmdline", "", "", "")
			if got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("the second client gets %d, want %d", got, want)
			}
		}
	}
	until(http.StatusServiceUnavailable)
	stop()
	<-ended
	until(http.StatusNotFound)
}

type httpRecorder struct {
	header http.Header
	status int
}

func (r *httpRecorder) Header() http.Header         { return r.header }
func (r *httpRecorder) Write(p []byte) (int, error) { return len(p), nil }
func (r *httpRecorder) WriteHeader(status int)      { r.status = status }

// TestHTTPLimits: the size of headers and the number of connections are bounded.
func TestHTTPLimits(t *testing.T) {
	srv := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }), slog.New(slog.DiscardHandler))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	url := "http://" + ln.Addr().String()
	var idle []net.Conn
	for range 2 * httpConnections {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	if got, text := page(t, http.DefaultClient, url, "", "", ""); got != 200 || text != "here" {
		t.Errorf("beside idle connections: %d, %q", got, text)
	}
	gone := 0
	for _, c := range idle[:httpConnections] {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == io.EOF {
			gone++
		}
	}
	if gone < httpConnections {
		t.Errorf("%d of the %d oldest connections were closed", gone, httpConnections)
	}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Long", strings.Repeat("x", 2*httpHeaderBytes))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of %d bytes: %d", 2*httpHeaderBytes, resp.StatusCode)
	}
	if srv.ReadHeaderTimeout == 0 || srv.ReadTimeout == 0 || srv.WriteTimeout == 0 || srv.IdleTimeout == 0 {
		t.Error("a time is not limited")
	}
}

// TestProbesAreAnsweredInAFlood: a probe is answered at once while a hundred connections request figures as fast as they can.
func TestProbesAreAnsweredInAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages := pages(options{}, &parts{}, slog.New(slog.DiscardHandler))
		ask := func(page string) {
			r := httptest.NewRequest("GET", page, nil)
			r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
			pages.ServeHTTP(httptest.NewRecorder(), r)
		}
		over := make(chan struct{})
		var flood sync.WaitGroup
		for range 120 {
			flood.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
						ask("/nothing")
						ask("/healthz")
					}
				}
			})
		}
		time.Sleep(5 * time.Second)
		start := time.Now()
		if ask("/healthz"); time.Since(start) > 300*time.Millisecond {
			t.Errorf("a probe took %v", time.Since(start))
		}
		close(over)
		flood.Wait()
	})
}

// TestHTTPIsPaced: a client that sends requests without end has to wait. A client that has disconnected gets no answer.
func TestHTTPIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := 0
		pages := paced(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answered++ }), httpRate, httpBurst)
		ask := func() { pages(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)) }
		start := time.Now()
		for range httpBurst {
			ask()
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("%d requests waited for %v", httpBurst, took)
		}
		for range 10 * httpRate {
			ask()
		}
		if took := time.Since(start); took < 9*time.Second || answered != httpBurst+10*httpRate {
			t.Errorf("%d were answered in %v", answered, took)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		before := answered
		pages(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil).WithContext(gone))
		if answered != before {
			t.Error("one who has gone was answered")
		}
	})
}

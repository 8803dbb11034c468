package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// fakeHTTPConn is a connection that comes from a chosen address.
type fakeHTTPConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *fakeHTTPConn) RemoteAddr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", c.from)
	if err != nil {
		panic(err)
	}
	return a
}

func (c *fakeHTTPConn) Close() error {
	c.closed = true
	return nil
}

// While strangers keep all connections busy, a probe can connect and stays connected.
func TestProbesComeInBesideBusyConnections(t *testing.T) {
	for _, from := range []string{"192.0.2.1:%d", "[2001:db8::%x]:9"} {
		c := newConnectionCap()
		open := func(from string, busy bool) *fakeHTTPConn {
			conn := &fakeHTTPConn{from: from}
			c.context(t.Context(), conn)
			c.note(conn, http.StateNew)
			if busy && !conn.closed {
				c.note(conn, http.StateActive)
			}
			return conn
		}
		probe, other := open("198.51.100.1:7", true), open("198.51.100.1:8", false)
		var flood []*fakeHTTPConn
		for i := range 3 * httpConnections {
			flood = append(flood, open(fmt.Sprintf(from, i+1), true))
		}
		late := open("198.51.100.9:7", true)
		for i, conn := range flood {
			if gone := i < len(flood)-(httpConnections-3); conn.closed != gone {
				t.Errorf(from+" is closed: %v", i, conn.closed)
			}
		}
		if probe.closed || other.closed || late.closed {
			t.Errorf("closed for strangers: %v, %v, %v", probe.closed, other.closed, late.closed)
		}
		quiet := flood[len(flood)-1]
		c.note(quiet, http.StateIdle)
		open("203.0.113.5:1", false)
		if !quiet.closed || len(c.conns) != httpConnections {
			t.Errorf("the one that asks for nothing is closed: %v, there are %d", quiet.closed, len(c.conns))
		}
		c.note(flood[0], http.StateIdle) // net/http has not noticed yet that the connection is closed
		c.note(flood[0], http.StateClosed)
		if len(c.conns) != httpConnections {
			t.Errorf("%d connections, not %d", len(c.conns), httpConnections)
		}
	}
}

// A new connection, which may be a probe, is not closed, even if strangers from many addresses send requests that take long.
func TestNewConnectionsAreNotIdle(t *testing.T) {
	c := newConnectionCap()
	open := func(n int) *fakeHTTPConn {
		conn := &fakeHTTPConn{from: fmt.Sprintf("10.0.%d.%d:1", n/250, n%250)}
		c.context(t.Context(), conn)
		return conn
	}
	for n := range httpConnections {
		c.note(open(1000+n), http.StateActive)
	}
	probe := open(1)
	for n := range httpConnections / 2 {
		c.note(open(2000+n), http.StateActive)
	}
	if probe.closed {
		t.Error("the probe is closed")
	}
}

// A probe from the same address as the strangers gets in, too. This test goes through the server itself.
func TestProbeFromTheAddressOfAFlood(t *testing.T) {
	held := make(chan struct{})
	begun, ended := make(chan struct{}, 2*httpConnections), make(chan struct{}, 2*httpConnections)
	srv := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			begun <- struct{}{}
			select {
			case <-held:
			case <-r.Context().Done():
				ended <- struct{}{}
			}
		}
		fmt.Fprint(w, "here")
	}), slog.New(slog.DiscardHandler))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	defer close(held)
	for range httpConnections {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 200)); err != nil {
			t.Fatal(err)
		}
		<-begun
	}
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 3 {
		resp, err := client.Get("http://" + ln.Addr().String() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the request of a connection that was closed goes on")
	}
}

// A client that disconnects while its request waits does not delay the requests of others.
func TestWhoLeavesHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := paced(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), httpRate, httpBurst)
		for range httpBurst {
			page(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
		}
		gone, leave := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		for range 5000 {
			flood.Go(func() { page(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil).WithContext(gone)) })
		}
		synctest.Wait()
		leave()
		flood.Wait()
		start := time.Now()
		page(httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil))
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v after a flood that has left", took)
		}
	})
}

// The figures are computed at a bounded rate, even in a flood of requests. A client that asks seldom gets new figures each
// time.
func TestFiguresAreComputedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		computed := 0
		r := rendering{render: func(w io.Writer) error { computed++; _, err := fmt.Fprint(w, computed); return err }, pace: rate.NewLimiter(figuresRate, figuresBurst)}
		ask := func() string {
			w := httptest.NewRecorder()
			r.serve(w, nil)
			return w.Body.String()
		}
		for range 1000 {
			ask()
			time.Sleep(time.Millisecond)
		}
		if computed < figuresBurst || computed > figuresBurst+figuresRate {
			t.Errorf("computed %d times for 1000 requests in a second", computed)
		}
		for range 3 {
			time.Sleep(time.Second)
			before := computed
			if got := ask(); got != fmt.Sprint(before+1) {
				t.Errorf("%s is old", got)
			}
		}
	})
}

// A request with a body is answered before the body has come, and its connection is closed. Otherwise net/http would read the body.
func TestBodiesAreNotRead(t *testing.T) {
	served := false
	srv := newHTTPServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }), slog.New(slog.DiscardHandler))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	for _, head := range []string{"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", "POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", "GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"} {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, head); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c) // the answer ends although the body does not
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 413 ") || served {
			t.Errorf("%q, %v; served: %v", got, err, served)
		}
	}
}

// pipeListener is a listener that returns one connection.
type pipeListener struct {
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.over) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestEveryRequestHasAPace: whatever request a client repeats on one connection, it gets few answers per second, or the connection is
// closed.
func TestEveryRequestHasAPace(t *testing.T) {
	for _, request := range []string{
		"GET /nothing HTTP/1.1\r\nHost: localhost", "GET //x HTTP/1.1\r\nHost: localhost", "POST /healthz HTTP/1.1\r\nHost: localhost",
		"GET /healthz/../x HTTP/1.1\r\nHost: localhost", "GET http://localhost HTTP/1.1\r\nHost: localhost",
		"GET * HTTP/1.0\r\nConnection: keep-alive", "GET * HTTP/1.1\r\nHost: localhost",
		"OPTIONS * HTTP/1.0\r\nConnection: keep-alive", "OPTIONS * HTTP/1.1\r\nHost: localhost", "OPTIONS /healthz HTTP/1.1\r\nHost: localhost",
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := newHTTPServer(pages(options{}, &parts{}, slog.New(slog.DiscardHandler)), slog.New(slog.DiscardHandler))
			here, there := net.Pipe()
			ln := &pipeListener{conns: make(chan net.Conn, 1), over: make(chan struct{})}
			ln.conns <- there
			go srv.Serve(ln)
			defer time.Sleep(time.Minute) // net/http does not notice a disconnect while the client's next request waits for its pace
			defer srv.Close()
			go func() {
				for err := error(nil); err == nil; { // until the connection ends
					_, err = io.WriteString(here, request+"\r\n\r\n")
				}
			}()
			start, answers := time.Now(), bufio.NewReader(here)
			for range httpBurst + 3*httpRate {
				resp, err := http.ReadResponse(answers, nil)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
				}
				if err != nil || resp.Close {
					here.Close()
					return
				}
			}
			if took := time.Since(start); took < 2*time.Second {
				t.Errorf("%q: %d answers in %v", request, httpBurst+3*httpRate, took)
			}
			here.Close()
		})
	}
}

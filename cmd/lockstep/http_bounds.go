package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/web"
)

// connectionCap limits the number of connections: it closes one of the address that has the most. So a supervisor can always connect.
type connectionCap struct {
	mu      sync.Mutex
	conns   map[net.Conn]*httpConnection
	changes int
}

// httpConnection is a connection. end cancels the context of its requests: net/http does not notice a close while unread requests are
// left.
type httpConnection struct {
	end   context.CancelFunc
	from  netip.Addr // an IPv6 network of 64 bits counts as one address
	idle  bool       // its last request has been answered, and no other has come
	since int        // the value of connectionCap.changes when the connection last changed its state
}

func newConnectionCap() *connectionCap {
	return &connectionCap{conns: map[net.Conn]*httpConnection{}}
}

// context returns the context of a new connection's requests. Beyond httpConnections, it closes a connection.
func (c *connectionCap) context(ctx context.Context, conn net.Conn) context.Context {
	ctx, end := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.conns[conn] = &httpConnection{end: end, from: network(conn.RemoteAddr()), since: c.changes}
	if len(c.conns) > httpConnections {
		gone := c.leastWanted(conn)
		c.forget(gone)
		_ = gone.Close()
	}
	return ctx
}

// forget cancels the request of a connection and drops its record. The caller holds mu.
func (c *connectionCap) forget(conn net.Conn) {
	if known := c.conns[conn]; known != nil { // net/http still reports changes of a connection that was cut off
		known.end()
		delete(c.conns, conn)
	}
}

// note records a change in the state of a connection; net/http calls it.
func (c *connectionCap) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	known := c.conns[conn]
	switch {
	case state == http.StateClosed || state == http.StateHijacked:
		c.forget(conn)
	case known != nil:
		known.idle, known.since = state == http.StateIdle, c.changes
	}
}

// leastWanted returns the connection to close, never the newest: of the address with the most connections, the longest idle or else
// the longest unchanged.
func (c *connectionCap) leastWanted(newest net.Conn) (gone net.Conn) {
	count := map[netip.Addr]int{}
	for _, one := range c.conns {
		count[one.from]++
	}
	var least *httpConnection
	for conn, one := range c.conns {
		if conn != newest && (least == nil || one.wantedLess(least, count)) {
			gone, least = conn, one
		}
	}
	return gone
}

func (h *httpConnection) wantedLess(other *httpConnection, count map[netip.Addr]int) bool {
	switch {
	case count[h.from] != count[other.from]:
		return count[h.from] > count[other.from]
	case h.idle != other.idle:
		return h.idle
	}
	return h.since < other.since
}

// network returns the IPv4 address of a client, or its IPv6 network of 64 bits: one client may have all addresses of such a network.
func network(a net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	addr := at.Addr().Unmap()
	if addr.Is6() {
		if net, err := addr.Prefix(64); err == nil {
			return net.Addr()
		}
	}
	return addr
}

// rendering is a page that is computed only as often as the limiter pace allows. Between two computations, requests get the last
// result, all in the same bytes: these do not depend on the request, and nobody compresses them.
type rendering struct {
	kind   string // its content type
	render func(io.Writer) error
	pace   *rate.Limiter

	mu   sync.Mutex
	last []byte
}

func (r *rendering) serve(w http.ResponseWriter, _ *http.Request) {
	page, err := r.page()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", r.kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(page)))
	_, _ = w.Write(page) // the write fails if the client has disconnected
}

// page returns the last result. If r.pace allows or there is no result yet, it first computes a new one.
func (r *rendering) page() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pace.Allow() || r.last == nil {
		var b bytes.Buffer
		if err := r.render(&b); err != nil {
			return nil, err
		}
		r.last = b.Bytes()
	}
	return r.last, nil
}

// oneAtATime refuses a request while the page is sent to another client: a profile takes megabytes of memory until that client has
// read it.
func oneAtATime(page http.HandlerFunc) http.HandlerFunc {
	turn := make(chan struct{}, 1)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
			page(w, r)
		default:
			http.Error(w, errProfile, http.StatusServiceUnavailable)
		}
	}
}

const errProfile = "another client reads a profile: try again when it has it"

// paced returns a handler that lets through a burst of requests, and then limit per second, so that strangers cannot take much
// processor time.
func paced(pages http.Handler, limit rate.Limit, burst int) http.HandlerFunc {
	pace := rate.NewLimiter(limit, burst)
	first := make(chan struct{}, 1) // only one request at a time waits for pace, because pace keeps the turn of a client that disconnects
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case first <- struct{}{}:
		case <-r.Context().Done():
			return
		}
		err := pace.Wait(r.Context())
		<-first
		if err == nil { // otherwise the client has disconnected
			pages.ServeHTTP(w, r)
		}
	}
}

// promptly returns a handler that limits the rates of probes and of other requests. An http.ServeMux before it would give answers
// without a limit.
func promptly(probes, other http.Handler) http.HandlerFunc {
	quick, slow := paced(probes, probeRate, probeRate), paced(other, httpRate, httpBurst)
	return func(w http.ResponseWriter, r *http.Request) {
		asks := r.Method == http.MethodGet || r.Method == http.MethodHead
		if asks && (r.URL.Path == "/healthz" || r.URL.Path == "/readyz") {
			quick(w, r)
			return
		}
		slow(w, r)
	}
}

// withoutBody refuses a request that has a body, but for a small one to the dashboard: net/http would spend much processor time on the body.
func withoutBody(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 || web.TakesBody(r) {
			pages.ServeHTTP(w, r)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, errBody, http.StatusRequestEntityTooLarge)
			return
		}
		defer time.AfterFunc(httpHeaderTime, func() { _ = conn.Close() }).Stop() // the client may not read the answer
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 413 Request Entity Too Large\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(errBody), errBody)
		_ = conn.Close()
	})
}

const errBody = "this page takes no such body: send the request without one, or a shorter one\n"

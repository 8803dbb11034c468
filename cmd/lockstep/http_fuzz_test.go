package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
)

// FuzzHTTP: whatever bytes come, the server closes the connection, and shows nothing of /debug or of the guarded metrics.
func FuzzHTTP(f *testing.F) {
	for _, in := range []string{
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n", "GET /debug/pprof/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /debug/pprof/goroutine?debug=2 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic ZGVmYXVsdDpndWVzcw==\r\n\r\n", "GET //debug/../debug/pprof/heap HTTP/1.0\r\n\r\n", "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\nGET /debug/pprof/profile?seconds=1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9223372036854775807\r\n\r\nx", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\xff\x04", "HEAD /debug/pprof/symbol HTTP/1.1\r\nHost: [::1]\r\nX: " + string(bytes.Repeat([]byte("h"), httpHeaderBytes)) + "\r\n\r\n",
		"GET http://localhost/debug/pprof/ HTTP/1.1\r\nHost: evil\r\n\r\n", "CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n", "GET /debug/pprof/ HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Og==\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		f.Add([]byte(in))
	}
	o := options{id: "n1", listen: "127.0.0.1:0", protected: "yes", voter: "yes", sentinelAuth: "yes", ephemeral: true, failoverWait: time.Second, scriptLimit: time.Second, password: "of the owner"}
	o.http.guardMetrics = true
	cfg, err := o.clusterConfig()
	if err != nil {
		f.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	p, err := assemble(o, cfg, memoryPlan{}, cluster.NewSystemTime(), log, func() {})
	if err != nil {
		f.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	srv := newHTTPServer(pages(o, p, log), log)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	f.Cleanup(func() {
		if err := errors.Join(srv.Close(), p.listeners.close(), p.node.Close()); err != nil {
			f.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, in []byte) {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(httpReadTime + 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(in); err == nil { // the server may close the connection while bytes are sent
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		got, err := io.ReadAll(conn)
		if late, is := errors.AsType[net.Error](err); is && late.Timeout() {
			t.Fatalf("not closed after %.200q", got)
		}
		if len(got) > 0 && !bytes.HasPrefix(got, []byte("HTTP/1.")) {
			t.Errorf("answered %.200q", got)
		}
		for _, secret := range []string{"goroutine profile", "Types of profiles available", "lockstep_keys", "main.main", "of the owner"} {
			if bytes.Contains(got, []byte(secret)) {
				t.Errorf("nobody is told %s: %.300q", secret, got)
			}
		}
	})
}

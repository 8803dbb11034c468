package server

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/certs"
)

// If overTLS is true, newTestServer serves TLS, and its clients speak TLS. Only TestOverTLS sets it.
var overTLS bool

// testCertificates returns the certificates of a server, and the TLS configuration of its clients.
func testCertificates(t testing.TB) (*Certificates, *tls.Config) {
	t.Helper()
	files, client, err := certs.Make(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCertificates(TLSFiles{CertFile: files.Cert, KeyFile: files.Key, CACertFile: files.CA}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c, client
}

// secretConn is a client's TLS connection. Like a connection without TLS, it can be closed for writing alone.
type secretConn struct {
	*tls.Conn
	tcp *net.TCPConn
}

func (c secretConn) CloseWrite() error {
	if err := c.Conn.CloseWrite(); err != nil {
		return err
	}
	return c.tcp.CloseWrite()
}

// connect opens a connection, with TLS if the server serves TLS.
func (ts *testServer) connect() (net.Conn, error) {
	c, err := net.Dial("tcp", ts.addr)
	if err != nil || ts.tls == nil {
		return c, err
	}
	tcp := c.(*net.TCPConn)
	secret := secretConn{tls.Client(inPieces{tcp}, ts.tls), tcp}
	before := ts.stats.connections.Load()
	if err := secret.Handshake(); err != nil {
		return nil, err
	}
	// Without TLS, the server knows a client that has connected, and tests rely on that. With TLS, this takes a moment longer.
	for start := time.Now(); ts.stats.connections.Load() == before && time.Since(start) < time.Second; {
		runtime.Gosched()
	}
	return secret, nil
}

// inPieces sends a client's output in pieces, so that TLS records arrive in parts.
type inPieces struct{ net.Conn }

func (c inPieces) Write(p []byte) (sent int, err error) {
	if len(p) > 4096 {
		return c.Conn.Write(p) // otherwise tests of large values would take too long
	}
	for _, piece := range chop(p, uint64(len(p))) {
		n, err := c.Conn.Write(piece)
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

func closeWrite(c net.Conn) error { return c.(interface{ CloseWrite() error }).CloseWrite() }

// reset makes the end of a client's connection a reset.
func reset(c net.Conn) error {
	if s, ok := c.(secretConn); ok {
		c = s.tcp
	}
	return c.(*net.TCPConn).SetLinger(0)
}

// readLittle gives a client's socket a small receive buffer. With TLS, the handshake has already offered a larger one.
func readLittle(t testing.TB, c net.Conn, n int) {
	t.Helper()
	if tcp, ok := c.(*net.TCPConn); ok {
		if err := tcp.SetReadBuffer(n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOverTLS runs the tests of sessions, loops and limits again, with clients that speak TLS.
func TestOverTLS(t *testing.T) {
	tests := []func(*testing.T){
		TestTranscripts, TestTranscriptsWithoutLoops,
		TestBlockedClientLeaves, TestPipelineBehindBlockingCommand, TestBlockingCommandFromHalfClosed, TestShutdownEndsWaiting, TestPauseByTheClock,
		TestMaxClientsChanges, TestIdleTimeout, TestNormalOutputLimit, TestFlood, TestHalfOpen, TestQueryLimits, TestLineLimits, TestPubSubLimit,
		TestTransactionIsOneSubmission, TestMessagesBesideTransactions, TestTransactionWhileBusy,
		TestMonitorIsCutOff, TestWait, TestLargeArguments, TestFramesStayWhole, TestSlowSubscriber, TestSoftLimit, TestIdleClients,
		TestMaxClients, TestBusy, TestShutdown, TestShutdownCut,
		TestInvalidationFollowsReply, TestInvalidationFollowsTransaction, TestInvalidationInPipelines, TestTrackingEnds,
	}
	overTLS = true
	defer func() { overTLS = false }()
	for _, test := range slices.Concat(tests, loopTests) {
		t.Run(nameOf(test), test)
	}
}

func nameOf(test func(*testing.T)) string {
	name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
	return name[strings.LastIndexByte(name, '.')+1:]
}

// TestSuites13: Go does not let a program choose the cipher suites of TLS 1.3. So the server refuses any list but Go's.
func TestSuites13(t *testing.T) {
	const all = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
	for words, want := range map[string]string{
		"": "", all: "",
		"TLS_AES_128_GCM_SHA256":         "TLS_AES_256_GCM_SHA384 is missing",
		all + ":TLS_AES_128_CCM_SHA256":  "TLS_AES_128_CCM_SHA256 is no suite",
		all + ":TLS_AES_128_GCM_SHA2566": "TLS_AES_128_GCM_SHA2566 is no suite",
	} {
		if err := checkSuites13(words); fmt.Sprint(err) != "<nil>" && want == "" || want != "" && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v", words, err)
		}
	}
}

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

	"lockstep/conformance/certs"
)

// overTLS has newTestServer serve TLS and its clients speak it. Only TestOverTLS sets it.
var overTLS bool

// testCertificates are what a server serves TLS with, and what its clients connect with.
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

// secretConn is a client's TLS connection that can be half-closed as one without.
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

// connect opens a connection as the server speaks.
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
	// Without TLS a client that has connected is there; tests rely on it.
	for start := time.Now(); ts.stats.connections.Load() == before && time.Since(start) < time.Second; {
		runtime.Gosched()
	}
	return secret, nil
}

// inPieces cuts what a client sends, so that records come in parts.
type inPieces struct{ net.Conn }

func (c inPieces) Write(p []byte) (sent int, err error) {
	if len(p) > 4096 {
		return c.Conn.Write(p) // else tests of large values take for ever
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

// reset has a client's closing tell the server by a reset.
func reset(c net.Conn) error {
	if s, ok := c.(secretConn); ok {
		c = s.tcp
	}
	return c.(*net.TCPConn).SetLinger(0)
}

// readLittle has a client's socket take little, so that what it does not read fills up
// sooner. Over TLS it is too late for that: a sender that has been offered more finds out
// by its timers, for which no test has the time.
func readLittle(t testing.TB, c net.Conn, n int) {
	t.Helper()
	if tcp, ok := c.(*net.TCPConn); ok {
		if err := tcp.SetReadBuffer(n); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOverTLS plays the tests of sessions, loops and limits once more, with clients that
// speak TLS.
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

// Go offers no choice of the suites of TLS 1.3. A list that names other ones, or not all of them, is refused.
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

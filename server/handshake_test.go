package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/youmark/pkcs8"

	"github.com/lockstep-io/lockstep/conformance/certs"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), word)
}

// secretServer starts a server with TLS. It also returns the server's log, its certificate files and a configuration
// for clients.
func secretServer(t *testing.T, loops int) (*testServer, *lines, certs.Files, *tls.Config) {
	t.Helper()
	files, client, err := certs.Make(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := new(lines)
	logger := slog.New(slog.NewTextHandler(log, nil))
	kept, err := NewCertificates(TLSFiles{CertFile: files.Cert, KeyFile: files.Key, CACertFile: files.CA}, logger)
	if err != nil {
		t.Fatal(err)
	}
	overTLS = true
	defer func() { overTLS = false }()
	ts := newTestServer(t, func(c *Config) { c.Loops, c.TLS, c.Log = loops, kept, logger })
	ts.tls = client
	return ts, log, files, client
}

// issue returns a client configuration with a new certificate that the authority a has signed.
func issue(t *testing.T, base *tls.Config, a *certs.Authority, until time.Time) *tls.Config {
	t.Helper()
	pair, err := a.Issue("client", until)
	if err != nil {
		t.Fatal(err)
	}
	own, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	c := base.Clone()
	c.Certificates = []tls.Certificate{own}
	// The client shows its certificate even if the server does not name the authority a.
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	return c
}

// answers returns what a client gets for a PING over TLS, decrypted.
func answers(addr string, c *tls.Config) (string, error) {
	conn, err := tls.Dial("tcp", addr, c)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return "", err
	}
	got, err := io.ReadAll(io.LimitReader(conn, 7))
	return string(got), err
}

// TestStrangersOverTLS: a client without a valid certificate or a current TLS gets no reply and no session. All these clients together
// cause one log line.
func TestStrangersOverTLS(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts, log, files, good := secretServer(t, loops)
		wrong, err := certs.NewAuthority("stranger")
		if err != nil {
			t.Fatal(err)
		}
		none, old := good.Clone(), good.Clone()
		none.Certificates = nil
		old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		expired := issue(t, good, authorityOf(t, files, ts), time.Now().Add(-time.Minute))
		for name, c := range map[string]*tls.Config{
			"without a certificate": none, "of another authority": issue(t, good, wrong, time.Now().Add(time.Hour)), "out of date": expired, "TLS 1.1": old,
		} {
			if got, err := answers(ts.addr, c); got != "" || err == nil {
				t.Errorf("a client %s: %q, %v", name, got, err)
			}
		}
		for _, garbage := range []string{"PING\r\n", "*1\r\n$4\r\nPING\r\n", "\x16\x03\x01\xff\xff", strings.Repeat("\x00", 70_000), "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"} {
			c, err := net.Dial("tcp", ts.addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write([]byte(garbage)) // the server may have closed the connection before it got all bytes
			_ = c.(*net.TCPConn).CloseWrite()
			got, _ := io.ReadAll(c)
			// The server may send a TLS alert: two bytes in a record, seven bytes in all.
			if len(got) > 7 || strings.Contains(string(got), "PONG") {
				t.Errorf("%.20q is answered %q", garbage, got)
			}
			_ = c.Close()
		}
		ts.await(func() bool { return ts.hands.total() >= 8 })
		if n := ts.stats.connections.Load(); n != 0 {
			t.Errorf("%d of them got a session", n)
		}
		if n := log.count("failed at the TLS handshake"); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
		if got, err := answers(ts.addr, ts.tls); got != "+PONG\r\n" {
			t.Errorf("an honest client: %q, %v", got, err)
		}
		ts.fake.advance(seldomSilence)
		ts.hands.failures.sayRest(ts.fake.clock())
		if n := log.count("failed at the TLS handshake"); n != 2 {
			t.Errorf("%d lines in the log after a while", n)
		}
	})
}

// authorityOf makes a server trust a second authority, and returns it. So a test can issue certificates.
func authorityOf(t *testing.T, files certs.Files, ts *testServer) *certs.Authority {
	t.Helper()
	a, err := certs.NewAuthority("second")
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files.CA, append(first, a.PEM()...), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := ts.cfg.TLS.Reload(); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestHalfHandshakes: many clients begin a handshake and send no more. The server keeps few of these connections, and a
// client that comes later gets in.
func TestHalfHandshakes(t *testing.T) {
	ts, _, _, good := secretServer(t, 1)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const strangers = 3 * maxHandshakes
	for i := range strangers {
		c, err := net.Dial("tcp", ts.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			// This is the first byte of a record that announces 16 KiB.
			if _, err := c.Write([]byte("\x16\x03\x01\x40\x00\x01")); err != nil {
				t.Fatal(err)
			}
		}
	}
	open := func() int {
		ts.hands.mu.Lock()
		defer ts.hands.mu.Unlock()
		return ts.hands.count
	}
	ts.await(func() bool { return open() == maxFromOne && ts.hands.total() >= strangers-maxFromOne-10 })
	if got, err := answers(ts.addr, good); got != "+PONG\r\n" {
		t.Errorf("an honest client: %q, %v", got, err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used := int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse); used > 32<<20 {
		t.Errorf("they cost %d KB", used>>10)
	}
}

// TestSlowHandshake: the server ends a handshake that takes too long.
func TestSlowHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept, _ := testCertificates(t)
		h := newHandshakes(kept, slog.New(slog.DiscardHandler), maxHandshakes)
		near, far := net.Pipe()
		h.begin(far, kept.Config(), time.Now, func(*wire) { t.Error("it came in") })
		start := time.Now()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			for {
				if _, err := near.Write([]byte("\x16")); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		if _, err := io.ReadAll(near); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > handshakeTime {
			t.Errorf("it had %v", took)
		}
		_ = near.Close()
	})
}

// serial returns the serial number of the certificate that a server shows.
func serial(t *testing.T, ts *testServer, c *tls.Config) string {
	t.Helper()
	conn, err := tls.Dial("tcp", ts.addr, c)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// TestCertificatesAreReadAgain: the server takes new certificate files into use without a restart. Open connections stay, and unusable
// files change nothing.
func TestCertificatesAreReadAgain(t *testing.T) {
	ts, log, files, good := secretServer(t, 1)
	a := authorityOf(t, files, ts)
	client := good.Clone()
	client.RootCAs = good.RootCAs.Clone()
	client.RootCAs.AppendCertsFromPEM(a.PEM())
	c := ts.dial(t)
	c.do("PING", "+PONG\r\n")
	first := serial(t, ts, client)
	renew := func() {
		t.Helper()
		pair, err := a.Issue("lockstep", time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		for path, text := range map[string][]byte{files.Cert: pair.Cert, files.Key: pair.Key} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	renew()
	ts.cfg.TLS.Watch()
	second := serial(t, ts, client)
	if second == first {
		t.Error("the new files are not served")
	}
	if err := os.WriteFile(files.Key, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ts.cfg.TLS.Watch()
	}
	if got := serial(t, ts, client); got != second {
		t.Error("a file that cannot be used has changed something")
	}
	if n := log.count("cannot be used"); n != 1 {
		t.Errorf("%d log lines about it", n)
	}
	if err := ts.cfg.TLS.Reload(); err == nil {
		t.Error("Reload says nothing")
	}
	c.do("CONFIG SET tls-auth-clients optional", "-ERR CONFIG SET failed (possibly related to argument 'tls-auth-clients') - Unable to update TLS configuration. Check server logs.\r\n")
	renew()
	c.do("CONFIG SET tls-auth-clients optional tls-protocols TLSv1.2", "+OK\r\n")
	if got := serial(t, ts, client); got == second {
		t.Error("CONFIG SET does not serve the new files")
	}
	none := client.Clone()
	none.Certificates = nil
	if got, err := answers(ts.addr, none); got != "+PONG\r\n" {
		t.Errorf("a client without a certificate: %q, %v", got, err)
	}
	none.MinVersion = tls.VersionTLS13
	if got, err := answers(ts.addr, none); err == nil {
		t.Errorf("TLS 1.3 is spoken: %q", got)
	}
	c.do("CONFIG GET tls-auth-clients", "*2\r\n$16\r\ntls-auth-clients\r\n$8\r\noptional\r\n")
	c.do("CONFIG SET tls-key-file-pass geheim", "+OK\r\n")
	c.do("CONFIG GET tls-key-file-pass", "*2\r\n$17\r\ntls-key-file-pass\r\n$0\r\n\r\n")
}

// TestTLSFaults: the error names the parameter that is wrong.
func TestTLSFaults(t *testing.T) {
	files, _, err := certs.Make(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	good := TLSFiles{CertFile: files.Cert, KeyFile: files.Key, CACertFile: files.CA}
	// half returns a copy of a file of certificates whose last certificate is cut short.
	half := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "half")
		if err := os.WriteFile(to, append(b, b[:len(b)/2]...), 0o600); err != nil {
			t.Fatal(err)
		}
		return to
	}
	for want, change := range map[string]func(*TLSFiles){
		"tls-key-file":                 func(f *TLSFiles) { f.KeyFile = "" },
		"tls-cert-file":                func(f *TLSFiles) { f.CertFile += "x" },
		"tls-auth-clients needs":       func(f *TLSFiles) { f.CACertFile = "" },
		"there is no certificate":      func(f *TLSFiles) { f.CACertFile = files.Key },
		"half: what comes after":       func(f *TLSFiles) { f.CACertFile = half(files.CA) },
		"tls-ca-cert-dir: ":            func(f *TLSFiles) { f.CACertFile, f.CACertDir = "", filepath.Dir(half(files.CA)) },
		"what comes after certificate": func(f *TLSFiles) { f.CertFile = half(files.Cert) },
		"want yes, no or optional":     func(f *TLSFiles) { f.AuthClients = "maybe" },
		"want TLSv1.2, TLSv1.3":        func(f *TLSFiles) { f.Protocols = "TLSv1.1" },
		"is not served":                func(f *TLSFiles) { f.Ciphers = "RC4-MD5" },
		"TLS_AES_256_GCM_SHA384 is mi": func(f *TLSFiles) { f.Ciphersuites = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256" },
	} {
		f := good
		change(&f)
		if _, err := NewCertificates(f, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	good.Ciphers, good.CACertFile, good.CACertDir = "ECDHE-ECDSA-AES128-GCM-SHA256:TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "", filepath.Dir(files.CA)
	if _, err := NewCertificates(good, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

// TestTLSToThePlainPort: a TLS client at a port without TLS gets an error at once. The log has one line for all such clients.
func TestTLSToThePlainPort(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		log := new(lines)
		ts := newTestServer(t, func(c *Config) { c.Loops, c.Log = loops, slog.New(slog.NewTextHandler(log, nil)) })
		for range 5 {
			_, err := answers(ts.addr, &tls.Config{InsecureSkipVerify: true})
			var plain tls.RecordHeaderError
			if !errors.As(err, &plain) || string(plain.RecordHeader[:5]) != "-ERR " {
				t.Errorf("got %v", err)
			}
		}
		if n := log.count("speaks TLS to a port without it"); n != 1 {
			t.Errorf("%d lines in the log", n)
		}
		ts.dial(t).do("PING", "+PONG\r\n")
	})
}

// TestEncryptedKey: the server can read an encrypted key with its password, and not with another one.
func TestEncryptedKey(t *testing.T) {
	files, _, err := certs.Make(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(files.Key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	der, err := pkcs8.MarshalPrivateKey(key, []byte("sesame"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files.Key, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	for pass, good := range map[string]bool{"sesame": true, "": false, "sesam": false} {
		_, err := NewCertificates(TLSFiles{CertFile: files.Cert, KeyFile: files.Key, KeyFilePass: pass, AuthClients: "no"}, slog.New(slog.DiscardHandler))
		if (err == nil) != good || err != nil && strings.Contains(err.Error(), "sesam") {
			t.Errorf("password %q: %v", pass, err)
		}
	}
}

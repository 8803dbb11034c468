package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	testSecret  = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
	otherSecret = "another secret, of another cluster"
)

// logText is a log that a test looks for lines in.
type logText struct{ lockedBuffer }

// lines are those that hold a text.
func (l *logText) lines(with string) (found []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, with) {
			found = append(found, line)
		}
	}
	return found
}

func (l *logText) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// secretFile is a file of secrets, and what writes others into it.
func secretFile(t *testing.T, text string) (path string, write func(text string)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "secret")
	write = func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	return path, write
}

// testCA signs certificates.
type testCA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
	file string
}

func newTestCA(t testing.TB, name string) *testCA {
	t.Helper()
	ca := &testCA{t: t, dir: t.TempDir()}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour)}
	ca.cert, ca.key = ca.sign(template, nil)
	ca.file = ca.write("ca.pem", "CERTIFICATE", ca.cert.Raw)
	return ca
}

// sign makes a key and a certificate of it, the CA's own if it has none yet.
func (ca *testCA) sign(template, parent *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	by := ca.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, key
}

func (ca *testCA) write(name, kind string, der []byte) string {
	ca.t.Helper()
	path := filepath.Join(ca.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		ca.t.Fatal(err)
	}
	return path
}

// peer makes the files of a node; change makes its certificate another one.
func (ca *testCA) peer(name string, change ...func(*x509.Certificate)) PeerTLS {
	ca.t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name, "host"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	for _, fn := range change {
		fn(template)
	}
	cert, key := ca.sign(template, ca.cert)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return PeerTLS{CertFile: ca.write(name+".pem", "CERTIFICATE", cert.Raw), KeyFile: ca.write(name+"-key.pem", "PRIVATE KEY", der), CAFile: ca.file}
}

// callers is the peer port of a node, and who got through to a protocol.
type callers struct {
	t    *testing.T
	port *peerPort
	log  logText
	got  chan string
	net  *memNet
}

// portOf opens a peer port at host:1.
func portOf(t *testing.T, with PeerTLS) *callers {
	t.Helper()
	c := &callers{t: t, got: make(chan string, 1000), net: newMemNet(0)}
	cfg := Default()
	cfg.PeerListen, cfg.Logger, cfg.Time = "host:1", c.log.logger(), NewSystemTime()
	var err error
	if cfg.gate, err = openGate(with, cfg.Time.Wall, cfg.Logger); err != nil {
		t.Fatal(err)
	}
	ln, err := c.net.listen(cfg.PeerListen)
	if err != nil {
		t.Fatal(err)
	}
	reads := func(proto string) func(net.Conn) {
		return func(conn net.Conn) {
			defer conn.Close()
			b := make([]byte, 5)
			for {
				if _, err := io.ReadFull(conn, b); err != nil {
					return
				}
				greets(conn)
				c.got <- proto + " " + string(b)
			}
		}
	}
	c.port = newPeerPort(ln, &cfg, raftHooks{forward: reads("forward"), facts: reads("facts"), join: reads("join")})
	for proto, from := range map[string]func() (net.Conn, error){
		"raft": c.port.Accept,
		"append": func() (net.Conn, error) {
			select {
			case conn := <-c.port.appends:
				return conn, nil
			case <-c.port.stop:
				return nil, net.ErrClosed
			}
		}} {
		go func() {
			for {
				conn, err := from()
				if err != nil {
					return
				}
				go reads(proto)(conn)
			}
		}()
	}
	t.Cleanup(func() {
		if err := c.port.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// as is the configuration of somebody who calls.
func (c *callers) as(with PeerTLS) *Config {
	c.t.Helper()
	cfg := Default()
	cfg.Logger, cfg.Time = c.log.logger(), NewSystemTime()
	cfg.dial = func(addr string, _ byte, timeout time.Duration) (net.Conn, error) { return c.net.dial(addr, timeout) }
	var err error
	if cfg.gate, err = openGate(with, cfg.Time.Wall, cfg.Logger); err != nil {
		c.t.Fatal(err)
	}
	cfg.strangers = newStrangers(cfg.Logger)
	c.t.Cleanup(cfg.strangers.close)
	return &cfg
}

// raw calls without any protocol.
func (c *callers) raw(say string) net.Conn {
	c.t.Helper()
	conn, err := c.net.dial("host:1", time.Second)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := conn.Write([]byte(say)); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// through checks who has got through to a protocol by now.
func (c *callers) through(who string, want ...string) {
	c.t.Helper()
	synctest.Wait()
	var got []string
	for len(c.got) > 0 {
		got = append(got, <-c.got)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Errorf("%s: got through as %q, want %q", who, got, want)
	}
}

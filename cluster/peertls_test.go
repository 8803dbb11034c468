package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Peers of one secret, or with certificates of one CA, reach every protocol.
func TestPeersReachEachOther(t *testing.T) {
	for name, both := range map[string]func(t *testing.T) (server, client PeerTLS){
		"one secret": func(*testing.T) (PeerTLS, PeerTLS) { return PeerTLS{Secret: testSecret}, PeerTLS{Secret: testSecret} },
		"in rotation": func(*testing.T) (PeerTLS, PeerTLS) {
			return PeerTLS{Secret: testSecret + "\n" + otherSecret}, PeerTLS{Secret: otherSecret + "\n\n" + testSecret + "\r\n"}
		},
		"one CA": func(t *testing.T) (PeerTLS, PeerTLS) { ca := newTestCA(t, "ca"); return ca.peer("n1"), ca.peer("n2") },
		"one name": func(t *testing.T) (PeerTLS, PeerTLS) {
			ca, named := newTestCA(t, "ca"), func(c *x509.Certificate) { c.DNSNames = []string{"peers.cluster"} }
			a, b := ca.peer("n1", named), ca.peer("n2", named)
			a.Name, b.Name = "peers.cluster", "peers.cluster"
			return a, b
		},
		"TLS is optional": func(*testing.T) (PeerTLS, PeerTLS) {
			return PeerTLS{Secret: testSecret, Optional: true}, PeerTLS{Secret: testSecret, Optional: true}
		},
		"optional there, plain here": func(*testing.T) (PeerTLS, PeerTLS) { return PeerTLS{Secret: testSecret, Optional: true}, PeerTLS{} },
		"plain there, optional here": func(*testing.T) (PeerTLS, PeerTLS) { return PeerTLS{}, PeerTLS{Secret: testSecret, Optional: true} },
		"required there, optional here": func(*testing.T) (PeerTLS, PeerTLS) {
			return PeerTLS{Secret: testSecret}, PeerTLS{Secret: testSecret, Optional: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server, client := both(t)
				c := portOf(t, server)
				cfg := c.as(client)
				for proto, word := range map[byte]string{protoRaft: "raft", protoAppend: "append", protoForward: "forward", protoFacts: "facts", protoJoin: "join"} {
					conn, err := cfg.dialPeer("host:1", proto, dialTimeout)
					if err != nil {
						t.Fatalf("%c: %v", proto, err)
					}
					defer conn.Close()
					if _, err := conn.Write([]byte("hello")); err != nil {
						t.Error(err)
					}
					c.through(name, word+" hello")
				}
			})
		})
	}
}

// Who cannot prove to be a peer reaches no protocol, and is a line in the log.
func TestStrangersAreTurnedAway(t *testing.T) {
	ca, other := newTestCA(t, "ca"), newTestCA(t, "other")
	uses := func(list ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = list }
	}
	peer := ca.peer("n1")
	foreign := other.peer("x")
	foreign.CAFile = ca.file
	named := ca.peer("n1", func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "peers.cluster") })
	named.Name = "peers.cluster"
	bySecret := PeerTLS{Secret: testSecret}
	for name, who := range map[string]struct {
		server PeerTLS
		client PeerTLS // its certificate is shown without a look at the server's
		say    string  // or these bytes are
		logs   turnedAway
	}{
		"another secret":           {bySecret, PeerTLS{Secret: otherSecret}, "", notTrusted},
		"a secret, to a CA":        {peer, bySecret, "", notTrusted},
		"a CA, to a secret":        {bySecret, peer, "", notTrusted},
		"another CA":               {peer, foreign, "", notTrusted},
		"a client's certificate":   {peer, ca.peer("client", uses(x509.ExtKeyUsageClientAuth)), "", notTrusted},
		"a server's certificate":   {peer, ca.peer("server", uses(x509.ExtKeyUsageServerAuth)), "", notTrusted},
		"a certificate for no use": {peer, ca.peer("useless", uses()), "", notTrusted},
		"another name":             {named, ca.peer("n2"), "", notTrusted},
		"expired":                  {peer, ca.peer("old", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), "", notTrusted},
		"not yet valid":            {peer, ca.peer("early", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), "", notTrusted},
		"no certificate":           {bySecret, PeerTLS{}, "", notTrusted},
		"plain forwarding":         {bySecret, PeerTLS{}, "FLKST\x05\x00", noTLSThere},
		"plain raft":               {bySecret, PeerTLS{}, "R\x00", noTLSThere},
		"garbage":                  {bySecret, PeerTLS{}, "\x00\xff\xff\xff", noTLSThere},
		"a client":                 {bySecret, PeerTLS{}, "*1\r\n$4\r\nPING\r\n", noTLSThere},
		"garbage in TLS":           {bySecret, PeerTLS{}, "\x16\x03\x01\x00\x08garbage!", notTrusted},
		"half a handshake":         {bySecret, PeerTLS{}, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", tooSlow},
		"nothing":                  {bySecret, PeerTLS{}, "-", tooSlow},
		"TLS to a plain port":      {PeerTLS{}, bySecret, "", noTLSHere},
		"a client to a plain port": {PeerTLS{}, PeerTLS{}, "*1\r\n", noPeer},
	} {
		t.Run(name, func(t *testing.T) {
			// Certificates are judged by the real time.
			c := portOf(t, who.server)
			if who.logs == tooSlow {
				c.port.arrivals.patience = 20 * ms
			}
			for range 5 {
				c.stranger(who.client, who.say)
			}
			// It is told first, and counted then.
			for begin := time.Now(); c.port.strangers.total.Load() < 5 && time.Since(begin) < 10*time.Second; {
				time.Sleep(ms)
			}
			if len(c.got) > 0 {
				t.Errorf("got through: %q", <-c.got)
			}
			if got := c.log.lines(string(who.logs)); len(got) != 1 {
				t.Errorf("the log has %d lines of it, want 1: %q", len(got), c.log.lines(""))
			}
			if n := c.port.strangers.total.Load(); n != 5 {
				t.Errorf("%d were counted, want 5", n)
			}
		})
	}
}

// stranger calls, and waits until it is turned away.
func (c *callers) stranger(with PeerTLS, say string) {
	c.t.Helper()
	conn := c.raw(strings.TrimPrefix(say, "-"))
	defer conn.Close()
	if say == "" {
		config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
		if with != (PeerTLS{}) {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certOf(c.t, with), nil }
		}
		client := tls.Client(conn, config)
		if client.Handshake() == nil {
			_, _ = client.Write([]byte("Fhello")) // it may have been turned away by now
		}
		if b, _ := io.ReadAll(client); len(b) > 0 {
			c.t.Errorf("a stranger was sent %q", b)
		}
		return
	}
	// An alert of TLS is no answer.
	if b, _ := io.ReadAll(conn); len(b) > 0 && (b[0] != 0x15 || len(b) > 7) {
		c.t.Errorf("a stranger was sent %q", b)
	}
}

// certOf is the certificate that a configuration shows.
func certOf(t *testing.T, with PeerTLS) *tls.Certificate {
	t.Helper()
	if with.Secret != "" {
		k, err := secretKeys("test", []byte(with.Secret))
		if err != nil {
			t.Fatal(err)
		}
		return &k.cert
	}
	cert, err := tls.LoadX509KeyPair(with.CertFile, with.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	return &cert
}

// A node does not speak to what answers at a peer's address and cannot prove to be one.
func TestPeersAreLookedAtByWhoCalls(t *testing.T) {
	ca, other := newTestCA(t, "ca"), newTestCA(t, "other")
	elsewhere := ca.peer("elsewhere", func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"elsewhere"}, nil })
	bySecret, byCA := PeerTLS{Secret: testSecret}, ca.peer("n1")
	for name, who := range map[string]struct{ server, client PeerTLS }{
		"another secret": {PeerTLS{Secret: otherSecret}, bySecret},
		"another CA":     {other.peer("n2"), byCA},
		"another host":   {elsewhere, byCA},
		"plain":          {PeerTLS{}, bySecret},
	} {
		t.Run(name, func(t *testing.T) {
			c := portOf(t, who.server)
			cfg := c.as(who.client)
			conn, err := cfg.dialPeer("host:1", protoForward, time.Second)
			if err == nil {
				conn.Close()
				t.Fatal("it was taken for a peer")
			}
			if op := (*net.OpError)(nil); !errors.As(err, &op) || op.Op != "dial" || brokenBefore(err) {
				t.Errorf("the error is %#v, want one of dialing", err)
			}
			t.Log(err)
		})
	}
}

// What nobody could prove anything with is refused before anything is opened.
func TestPeerKeysAreLookedAt(t *testing.T) {
	ca := newTestCA(t, "ca")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	expired := ca.peer("old", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	clients := ca.peer("client", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] })
	mixed := ca.peer("n1")
	mixed.KeyFile = ca.peer("n2").KeyFile
	empty := ca.peer("n3")
	empty.CAFile = file("empty", "")
	misnamed := ca.peer("n4")
	misnamed.Name = "peers.cluster"
	for want, with := range map[string]PeerTLS{
		"openssl rand -hex 32":                  {SecretFile: file("short", "secret\n")},
		"is empty":                              {SecretFile: file("none", "\n \n")},
		"secret 2":                              {SecretFile: file("second", testSecret+"\nshort\n")},
		"a line of a certificate":               {SecretFile: file("pem", "-----BEGIN CERTIFICATE-----\nMIIB\n")},
		"different characters":                  {SecretFile: file("same", strings.Repeat("ab", 20))},
		"no such file":                          {SecretFile: filepath.Join(dir, "absent")},
		"longer than":                           {SecretFile: file("long", strings.Repeat(testSecret+"\n", 40_000))},
		"take out":                              {SecretFile: file("many", strings.Repeat(testSecret+"\n", 17))},
		"expired":                               expired,
		"serverAuth and clientAuth":             clients,
		"private key does not match public key": mixed,
		"there is no certificate in it":         empty,
		"peers.cluster":                         misnamed,
	} {
		if _, err := openGate(with, time.Now, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", with, err, want)
		}
	}
	for want, with := range map[string]PeerTLS{
		"LOCKSTEP_PEER_SECRET": {Secret: testSecret, SecretFile: "x"},
		"--peer-secret-file":   {SecretFile: "x", CertFile: "y", KeyFile: "y", CAFile: "y"},
		"give all three":       {CertFile: "y"},
		"--peer-tls optional":  {Optional: true},
		"--peer-tls-name":      {Name: "x", SecretFile: "x"},
	} {
		cfg := Default()
		cfg.PeerTLS = with
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", with, err, want)
		}
	}
}

// TestProofsOfDifferentKinds: a node whose peers prove themselves by something else says what it is
// and what to do, not that a certificate has expired.
func TestProofsOfDifferentKinds(t *testing.T) {
	ca := newTestCA(t, "ca")
	bySecret, byCert := PeerTLS{Secret: testSecret}, ca.peer("host")
	otherCA := newTestCA(t, "other").peer("host")
	for name, who := range map[string]struct {
		server, client PeerTLS
		says           string
	}{
		"a secret, to certificates": {byCert, bySecret, "it has a certificate, and this node a secret: give this node --peer-tls-cert-file"},
		"a certificate, to secrets": {bySecret, byCert, "it has a secret, and this node a certificate: give this node --peer-secret-file"},
		"another secret":            {PeerTLS{Secret: otherSecret}, bySecret, "it has another secret than this node"},
		"another CA":                {otherCA, byCert, "unknown authority"},
		"nothing, to a secret":      {bySecret, PeerTLS{}, "--peer-secret-file or certificates"},
		"nothing, to certificates":  {byCert, PeerTLS{}, "--peer-secret-file or certificates"},
		"a secret, to nothing":      {PeerTLS{}, bySecret, "it speaks no TLS"},
		"a certificate, to nothing": {PeerTLS{}, byCert, "it speaks no TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			c := portOf(t, who.server)
			n := &Node{cfg: *c.as(who.client), ctx: t.Context()}
			if err := n.askToJoin("host:1"); err == nil || !strings.Contains(err.Error(), who.says) || strings.Contains(err.Error(), "expired") {
				t.Errorf("%v, want an error that says %q", err, who.says)
			}
		})
	}
}

// A secret that others may read is said to be, and is used.
func TestReadableSecretsAreWarnedOf(t *testing.T) {
	for mode, want := range map[os.FileMode]int{0o600: 0, 0o400: 0, 0o640: 1, 0o604: 1} {
		path := filepath.Join(t.TempDir(), "secret")
		if err := errors.Join(os.WriteFile(path, []byte(testSecret), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		var log logText
		if _, err := openGate(PeerTLS{SecretFile: path}, time.Now, log.logger()); err != nil {
			t.Error(err)
		}
		if got := log.lines("chmod 600"); len(got) != want {
			t.Errorf("mode %v: %q, want %d lines", mode, got, want)
		}
	}
}

// A secret is changed in three steps, and every two neighbours understand each other. A file
// that is half written changes nothing.
func TestPeerSecretsAreReadAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		path, write := secretFile(t, testSecret)
		c := portOf(t, PeerTLS{SecretFile: path})
		call := func(secret string) error {
			conn, err := c.as(PeerTLS{Secret: secret}).dialPeer("host:1", protoForward, dialTimeout)
			if err == nil {
				conn.Close()
			}
			return err
		}
		stays, err := c.as(PeerTLS{Secret: testSecret}).dialPeer("host:1", protoForward, dialTimeout)
		if err != nil {
			t.Fatal(err)
		}
		defer stays.Close()
		if _, err := stays.Write([]byte("hello")); err != nil {
			t.Error(err)
		}
		c.through("what is connected", "forward hello")
		const old, neu = testSecret, otherSecret
		const oldNew, newOld = old + "\n" + neu, neu + "\n" + old
		for _, step := range []struct {
			text          string
			with, without []string // who understands the node, and who does not
			said, failed  int
		}{
			{old, []string{old, oldNew}, []string{neu}, 0, 0},
			{oldNew, []string{old, oldNew, newOld}, []string{neu}, 1, 0},
			{"", []string{old, oldNew, newOld}, []string{neu}, 1, 1}, // half written, for long
			{newOld, []string{oldNew, newOld, neu}, []string{old}, 2, 1},
			{neu, []string{newOld, neu}, []string{old}, 3, 1},
		} {
			write(step.text)
			time.Sleep(3 * peerReloadPeriod)
			for _, secrets := range step.with {
				if err := call(secrets); err != nil {
					t.Errorf("%q does not reach %q: %v", secrets, step.text, err)
				}
			}
			for _, secrets := range step.without {
				if call(secrets) == nil {
					t.Errorf("%q reaches %q", secrets, step.text)
				}
			}
			if got := len(c.log.lines("has been read anew")); got != step.said {
				t.Errorf("%q: the log says %d times that it was read, want %d", step.text, got, step.said)
			}
			if got := len(c.log.lines("cannot be read anew")); got != step.failed {
				t.Errorf("%q: the log says %d times that it was not, want %d", step.text, got, step.failed)
			}
		}
		if _, err := stays.Write([]byte("again")); err != nil {
			t.Error(err)
		}
		c.through("what was connected before", "forward again")
	})
}

// A peer's certificate comes with few others: each is tried with the keys of all of them.
func TestPeerChainIsBounded(t *testing.T) {
	ca := newTestCA(t, "ca")
	gate, err := openGate(ca.peer("host"), time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k := gate.keys.Load()
	chain := []*x509.Certificate{k.cert.Leaf, ca.cert}
	for i := range 3 {
		chain = append(chain, newTestCA(t, fmt.Sprint(i)).cert)
	}
	if err := k.verify(chain, "host", time.Now()); err != nil {
		t.Errorf("a chain of %d: %v", len(chain), err)
	}
	chain = append(chain, newTestCA(t, "last").cert)
	if err := k.verify(chain, "host", time.Now()); err == nil {
		t.Errorf("a chain of %d is taken", len(chain))
	}
}

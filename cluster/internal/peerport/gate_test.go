package peerport

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
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// Peers of one secret, or with certificates of one CA, reach every protocol.
func TestPeersReachEachOther(t *testing.T) {
	for name, both := range map[string]func(t *testing.T) (server, client TLS){
		"one secret": func(*testing.T) (TLS, TLS) {
			return TLS{Secret: clustertest.Secret}, TLS{Secret: clustertest.Secret}
		},
		"in rotation": func(*testing.T) (TLS, TLS) {
			return TLS{Secret: clustertest.Secret + "\n" + clustertest.OtherSecret}, TLS{Secret: clustertest.OtherSecret + "\n\n" + clustertest.Secret + "\r\n"}
		},
		"one CA": func(t *testing.T) (TLS, TLS) {
			ca := clustertest.NewCA(t, "ca")
			return peerOf(ca, "n1"), peerOf(ca, "n2")
		},
		"one name": func(t *testing.T) (TLS, TLS) {
			ca, named := clustertest.NewCA(t, "ca"), func(c *x509.Certificate) { c.DNSNames = []string{"peers.cluster"} }
			a, b := peerOf(ca, "n1", named), peerOf(ca, "n2", named)
			a.Name, b.Name = "peers.cluster", "peers.cluster"
			return a, b
		},
		"TLS is optional": func(*testing.T) (TLS, TLS) {
			return TLS{Secret: clustertest.Secret, Optional: true}, TLS{Secret: clustertest.Secret, Optional: true}
		},
		"optional there, plain here": func(*testing.T) (TLS, TLS) {
			return TLS{Secret: clustertest.Secret, Optional: true}, TLS{}
		},
		"plain there, optional here": func(*testing.T) (TLS, TLS) {
			return TLS{}, TLS{Secret: clustertest.Secret, Optional: true}
		},
		"required there, optional here": func(*testing.T) (TLS, TLS) {
			return TLS{Secret: clustertest.Secret}, TLS{Secret: clustertest.Secret, Optional: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, client := both(t)
				c := portOf(t, server)
				peer := c.as(client)
				for proto, word := range map[byte]string{ProtoRaft: "raft", ProtoAppend: "append", ProtoForward: "forward", ProtoFacts: "facts", ProtoJoin: "join"} {
					conn, err := peer.Dial("host:1", proto, DialTimeout)
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

// A caller that does not prove that it is a peer reaches no protocol, and the log has one line of all such callers.
func TestStrangersAreTurnedAway(t *testing.T) {
	ca, other := clustertest.NewCA(t, "ca"), clustertest.NewCA(t, "other")
	uses := func(list ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = list }
	}
	peer := peerOf(ca, "n1")
	foreign := peerOf(other, "x")
	foreign.CAFile = ca.File
	named := peerOf(ca, "n1", func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "peers.cluster") })
	named.Name = "peers.cluster"
	bySecret := TLS{Secret: clustertest.Secret}
	for name, who := range map[string]struct {
		server TLS
		client TLS    // the caller shows its certificate, and accepts any certificate of the server
		say    string // if client is zero, the caller sends these bytes
		logs   turnedAway
	}{
		"another secret":           {bySecret, TLS{Secret: clustertest.OtherSecret}, "", notTrusted},
		"a secret, to a CA":        {peer, bySecret, "", notTrusted},
		"a CA, to a secret":        {bySecret, peer, "", notTrusted},
		"another CA":               {peer, foreign, "", notTrusted},
		"a client's certificate":   {peer, peerOf(ca, "client", uses(x509.ExtKeyUsageClientAuth)), "", notTrusted},
		"a server's certificate":   {peer, peerOf(ca, "server", uses(x509.ExtKeyUsageServerAuth)), "", notTrusted},
		"a certificate for no use": {peer, peerOf(ca, "useless", uses()), "", notTrusted},
		"another name":             {named, peerOf(ca, "n2"), "", notTrusted},
		"expired":                  {peer, peerOf(ca, "old", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), "", notTrusted},
		"not yet valid":            {peer, peerOf(ca, "early", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), "", notTrusted},
		"no certificate":           {bySecret, TLS{}, "", notTrusted},
		"plain forwarding":         {bySecret, TLS{}, "FLKST\x05\x00", noTLSThere},
		"plain raft":               {bySecret, TLS{}, "R\x00", noTLSThere},
		"garbage":                  {bySecret, TLS{}, "\x00\xff\xff\xff", noTLSThere},
		"a client":                 {bySecret, TLS{}, "*1\r\n$4\r\nPING\r\n", noTLSThere},
		"garbage in TLS":           {bySecret, TLS{}, "\x16\x03\x01\x00\x08garbage!", notTrusted},
		"half a handshake":         {bySecret, TLS{}, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", tooSlow},
		"nothing":                  {bySecret, TLS{}, "-", tooSlow},
		"TLS to a plain port":      {TLS{}, bySecret, "", noTLSHere},
		"a client to a plain port": {TLS{}, TLS{}, "*1\r\n", noPeer},
	} {
		t.Run(name, func(t *testing.T) {
			// Certificates are judged by the real time.
			c := portOf(t, who.server)
			if who.logs == tooSlow {
				c.port.arrivals.patience = 20 * time.Millisecond
			}
			for range 5 {
				c.stranger(who.client, who.say)
			}
			// The port first turns a stranger away, and then counts it. So the count may be late.
			for begin := time.Now(); c.port.dialer.Strangers.Total.Load() < 5 && time.Since(begin) < 10*time.Second; {
				time.Sleep(time.Millisecond)
			}
			if len(c.got) > 0 {
				t.Errorf("got through: %q", <-c.got)
			}
			if got := c.log.Lines(string(who.logs)); len(got) != 1 {
				t.Errorf("the log has %d lines of it, want 1: %q", len(got), c.log.Lines(""))
			}
			if n := c.port.dialer.Strangers.Total.Load(); n != 5 {
				t.Errorf("%d were counted, want 5", n)
			}
		})
	}
}

// stranger calls, and waits until it is turned away.
func (c *callers) stranger(with TLS, say string) {
	c.t.Helper()
	conn := c.raw(strings.TrimPrefix(say, "-"))
	defer conn.Close()
	if say == "" {
		config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
		if with != (TLS{}) {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certOf(c.t, with), nil }
		}
		client := tls.Client(conn, config)
		if client.Handshake() == nil {
			_, _ = client.Write([]byte("Fhello")) // the port may have turned the caller away by now
		}
		if b, _ := io.ReadAll(client); len(b) > 0 {
			c.t.Errorf("a stranger was sent %q", b)
		}
		return
	}
	// A TLS alert does not count as an answer.
	if b, _ := io.ReadAll(conn); len(b) > 0 && (b[0] != 0x15 || len(b) > 7) {
		c.t.Errorf("a stranger was sent %q", b)
	}
}

// certOf returns the certificate that a node with this configuration shows.
func certOf(t *testing.T, with TLS) *tls.Certificate {
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

// If a process answers at a peer's address and cannot prove that it is a peer, a node does not speak to it.
func TestPeersAreLookedAtByWhoCalls(t *testing.T) {
	ca, other := clustertest.NewCA(t, "ca"), clustertest.NewCA(t, "other")
	elsewhere := peerOf(ca, "elsewhere", func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = []string{"elsewhere"}, nil })
	bySecret, byCA := TLS{Secret: clustertest.Secret}, peerOf(ca, "n1")
	for name, who := range map[string]struct{ server, client TLS }{
		"another secret": {TLS{Secret: clustertest.OtherSecret}, bySecret},
		"another CA":     {peerOf(other, "n2"), byCA},
		"another host":   {elsewhere, byCA},
		"plain":          {TLS{}, bySecret},
	} {
		t.Run(name, func(t *testing.T) {
			c := portOf(t, who.server)
			peer := c.as(who.client)
			conn, err := peer.Dial("host:1", ProtoForward, time.Second)
			if err == nil {
				conn.Close()
				t.Fatal("it was taken for a peer")
			}
			if op := (*net.OpError)(nil); !errors.As(err, &op) || op.Op != "dial" || Broken(err) {
				t.Errorf("the error is %#v, want one of dialing", err)
			}
			t.Log(err)
		})
	}
}

// Secrets and certificates that could prove nothing are refused before a port is opened.
func TestPeerKeysAreLookedAt(t *testing.T) {
	ca := clustertest.NewCA(t, "ca")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	expired := peerOf(ca, "old", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	clients := peerOf(ca, "client", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] })
	mixed := peerOf(ca, "n1")
	mixed.KeyFile = peerOf(ca, "n2").KeyFile
	empty := peerOf(ca, "n3")
	empty.CAFile = file("empty", "")
	halfCA, halfCert := peerOf(ca, "n5"), peerOf(ca, "n6")
	for half, path := range map[string]*string{"half-ca": &halfCA.CAFile, "half-cert": &halfCert.CertFile} {
		b, err := os.ReadFile(*path)
		if err != nil {
			t.Fatal(err)
		}
		*path = file(half, string(b)+string(b[:len(b)/2]))
	}
	misnamed := peerOf(ca, "n4")
	misnamed.Name = "peers.cluster"
	for want, with := range map[string]TLS{
		"lockstep secret FILE":                  {SecretFile: file("short", "secret\n")},
		"is empty":                              {SecretFile: file("none", "\n \n")},
		"secret 2":                              {SecretFile: file("second", clustertest.Secret+"\nshort\n")},
		"a line of a certificate":               {SecretFile: file("pem", "-----BEGIN CERTIFICATE-----\nMIIB\n")},
		"different characters":                  {SecretFile: file("same", strings.Repeat("ab", 20))},
		"no such file":                          {SecretFile: filepath.Join(dir, "absent")},
		"longer than":                           {SecretFile: file("long", strings.Repeat(clustertest.Secret+"\n", 40_000))},
		"take out":                              {SecretFile: file("many", strings.Repeat(clustertest.Secret+"\n", 17))},
		"expired":                               expired,
		"serverAuth and clientAuth":             clients,
		"private key does not match public key": mixed,
		"there is no certificate in it":         empty,
		"half-ca: what comes after":             halfCA,
		"half-cert: what comes after":           halfCert,
		"peers.cluster":                         misnamed,
	} {
		if _, err := openGate(with, time.Now, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", with, err, want)
		}
	}
}

// The log warns of a secret file that others may read, and the secret is used.
func TestReadableSecretsAreWarnedOf(t *testing.T) {
	for mode, want := range map[os.FileMode]int{0o600: 0, 0o400: 0, 0o640: 1, 0o604: 1} {
		path := filepath.Join(t.TempDir(), "secret")
		if err := errors.Join(os.WriteFile(path, []byte(clustertest.Secret), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		var log clustertest.Log
		if _, err := openGate(TLS{SecretFile: path}, time.Now, log.Logger()); err != nil {
			t.Error(err)
		}
		if got := log.Lines("chmod 600"); len(got) != want {
			t.Errorf("mode %v: %q, want %d lines", mode, got, want)
		}
	}
}

// A secret is changed in three steps. Nodes that are one step apart still accept each other. A file that is half written
// changes nothing.
func TestPeerSecretsAreReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, write := clustertest.SecretFile(t, clustertest.Secret)
		c := portOf(t, TLS{SecretFile: path})
		call := func(secret string) error {
			conn, err := c.as(TLS{Secret: secret}).Dial("host:1", ProtoForward, DialTimeout)
			if err == nil {
				conn.Close()
			}
			return err
		}
		stays, err := c.as(TLS{Secret: clustertest.Secret}).Dial("host:1", ProtoForward, DialTimeout)
		if err != nil {
			t.Fatal(err)
		}
		defer stays.Close()
		if _, err := stays.Write([]byte("hello")); err != nil {
			t.Error(err)
		}
		c.through("what is connected", "forward hello")
		const old, neu = clustertest.Secret, clustertest.OtherSecret
		const oldNew, newOld = old + "\n" + neu, neu + "\n" + old
		for _, step := range []struct {
			text          string
			with, without []string // secrets of callers that the node accepts, and of callers that it refuses
			said, failed  int
		}{
			{old, []string{old, oldNew}, []string{neu}, 0, 0},
			{oldNew, []string{old, oldNew, newOld}, []string{neu}, 1, 0},
			{"", []string{old, oldNew, newOld}, []string{neu}, 1, 1}, // half written, and so for long
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
			if got := len(c.log.Lines("has been read anew")); got != step.said {
				t.Errorf("%q: the log says %d times that it was read, want %d", step.text, got, step.said)
			}
			if got := len(c.log.Lines("cannot be read anew")); got != step.failed {
				t.Errorf("%q: the log says %d times that it was not, want %d", step.text, got, step.failed)
			}
		}
		if _, err := stays.Write([]byte("again")); err != nil {
			t.Error(err)
		}
		c.through("what was connected before", "forward again")
	})
}

// A half-written file may be usable, so its content takes effect only at a second look, or at once by SIGHUP.
func TestHalfWrittenSecret(t *testing.T) {
	const old, neu = clustertest.Secret, clustertest.OtherSecret
	path, write := clustertest.SecretFile(t, old)
	gate, err := openGate(TLS{SecretFile: path}, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		text  string
		hup   bool
		taken bool
	}{
		{neu[:20], false, false},
		{neu + "\n" + old[:20], false, false},
		{neu + "\n" + old, false, false},
		{neu + "\n" + old, false, true},
		{neu, false, false},
		{neu + "\n" + old, false, false}, // the content that is in effect already
		{neu, false, false},
		{neu, false, true},
		{old, true, true},
	} {
		write(step.text)
		before := gate.keys.Load()
		load := func() error { return gate.load(2) }
		if step.hup {
			load = gate.reload
		}
		if err := load(); err != nil || (gate.keys.Load() != before) != step.taken {
			t.Errorf("step %d, %q: taken %v, want %v, %v", i, step.text, !step.taken, step.taken, err)
		}
	}
}

// A peer's certificate may come with only a few others, because the check may try each certificate with the keys of all others.
func TestPeerChainIsBounded(t *testing.T) {
	ca := clustertest.NewCA(t, "ca")
	gate, err := openGate(peerOf(ca, "host"), time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k := gate.keys.Load()
	chain := []*x509.Certificate{k.cert.Leaf, ca.Cert}
	for i := range 3 {
		chain = append(chain, clustertest.NewCA(t, fmt.Sprint(i)).Cert)
	}
	if err := k.verify(chain, "host", time.Now()); err != nil {
		t.Errorf("a chain of %d: %v", len(chain), err)
	}
	chain = append(chain, clustertest.NewCA(t, "last").Cert)
	if err := k.verify(chain, "host", time.Now()); err == nil {
		t.Errorf("a chain of %d is taken", len(chain))
	}
}

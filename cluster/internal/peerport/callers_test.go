package peerport

import (
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// peerOf makes the files of a node. The functions in the parameter change alter the node's certificate.
func peerOf(ca *clustertest.CA, name string, change ...func(*x509.Certificate)) TLS {
	f := ca.Files(name, change...)
	return TLS{CertFile: f.Cert, KeyFile: f.Key, CAFile: f.CA}
}

// callers is the peer port of a node, with a list of the callers that got through to a protocol.
type callers struct {
	t    *testing.T
	port *Port
	log  clustertest.Log
	got  chan string
	net  *clustertest.Net
}

// portOf opens a peer port at host:1.
func portOf(t *testing.T, with TLS) *callers {
	t.Helper()
	c := &callers{t: t, got: make(chan string, 1000), net: clustertest.NewNet(0)}
	d, err := NewDialer(with, time.Now, c.log.Logger())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := c.net.Listen("host:1")
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
				HandshakeDone(conn)
				c.got <- proto + " " + string(b)
			}
		}
	}
	c.port = New(ln, "host:1", d, map[byte]func(net.Conn){ProtoForward: reads("forward"), ProtoFacts: reads("facts"), ProtoJoin: reads("join")})
	for proto, from := range map[string]func() (net.Conn, error){"raft": c.port.Accept, "append": c.port.AcceptAppends} {
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

// as returns the dialer of a caller.
func (c *callers) as(with TLS) *Dialer {
	c.t.Helper()
	d, err := NewDialer(with, time.Now, c.log.Logger())
	if err != nil {
		c.t.Fatal(err)
	}
	d.Network = func(addr string, _ byte, timeout time.Duration) (net.Conn, error) { return c.net.Dial(addr, timeout) }
	c.t.Cleanup(d.Strangers.close)
	return d
}

// raw connects without TLS, and sends only the bytes in the parameter say.
func (c *callers) raw(say string) net.Conn {
	c.t.Helper()
	conn, err := c.net.Dial("host:1", time.Second)
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

package cluster

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/cluster/internal/peers"
	"github.com/lockstep-io/lockstep/store/codec"
)

// FuzzPeerPort sends any bytes. A port that requires proof answers only with TLS. At another, no protocol panics or allocates
// memory for bytes not sent.
func FuzzPeerPort(f *testing.F) {
	hello := forward.Handshake{Speaks: current, ID: "n2", Client: "c:1"}.Append([]byte{peerport.ProtoForward})
	for _, seed := range [][]byte{
		nil, []byte("R\x00"), []byte("A"), []byte("D"), []byte("J"), []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), []byte("*1\r\n$4\r\nPING\r\n"), []byte("GET / HTTP/1.1\r\n\r\n"),
		hello, append(hello[:len(hello):len(hello)], oneFrame(forward.Kill, 1, nil)...), append(hello[:len(hello):len(hello)], 0x3f, 0xff, 0xff, 0xff, forward.Submit),
		peers.Status{ID: "n2", RunID: "r"}.Append([]byte{peerport.ProtoFacts}), append([]byte{peerport.ProtoJoin}, oneFrame(frameJoin, 0, codec.AppendStr(codec.AppendStr(nil, "n4"), "host:1"))...),
		clientHello(f),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := make(chan byte, 10)
		reads := func(proto byte) func(net.Conn) {
			return func(conn net.Conn) {
				defer conn.Close()
				got <- proto
				in := peers.NewReader(conn)
				switch proto {
				case peerport.ProtoForward:
					if _, err := current.Read(in); err != nil {
						return
					}
					for {
						fr, err := frame.Read(in)
						if err != nil {
							return
						}
						_, _, _, _ = forward.ReadSubmit(fr.Body, wireTable)
						_, _ = readAdmin(fr.Body)
					}
				case peerport.ProtoFacts:
					for {
						if _, err := peers.Read(in); err != nil {
							return
						}
					}
				case peerport.ProtoJoin:
					_, _ = frame.ReadShort(in)
				}
			}
		}
		for _, with := range []*peerport.Dialer{fuzzPlain, fuzzProven} {
			near, far := net.Pipe()
			ended := make(chan struct{})
			far = &endedConn{Conn: far, ended: ended}
			p := peerport.New(accepts(far), "host:1", with, map[byte]func(net.Conn){peerport.ProtoForward: reads(peerport.ProtoForward), peerport.ProtoFacts: reads(peerport.ProtoFacts), peerport.ProtoJoin: reads(peerport.ProtoJoin)})
			readRaft(p)
			said := make(chan []byte)
			go func() {
				answer, _ := io.ReadAll(near) // until the port or this test closes the connection
				said <- answer
			}()
			_, _ = near.Write(b) // the port may close the connection before all bytes are written
			near.Close()
			answer := <-said
			<-ended
			if with == fuzzProven && (len(got) > 0 || len(answer) > 0 && !alertOrHello(answer)) {
				t.Fatalf("%q got through to %d protocols, and is answered %q", b, len(got), answer)
			}
			for len(got) > 0 {
				<-got
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// endedConn is a connection that tells when the port, or a protocol, has closed it.
type endedConn struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (c *endedConn) Close() error {
	defer c.once.Do(func() { close(c.ended) })
	return c.Conn.Close()
}

// oneCaller is a listener with one caller.
type oneCaller struct {
	caller chan net.Conn
	stop   chan struct{}
}

func accepts(conn net.Conn) net.Listener {
	l := oneCaller{make(chan net.Conn, 1), make(chan struct{})}
	l.caller <- conn
	return l
}

func (l oneCaller) Accept() (net.Conn, error) {
	select {
	case conn := <-l.caller:
		return conn, nil
	case <-l.stop:
		return nil, net.ErrClosed
	}
}

func (oneCaller) Addr() net.Addr { return clustertest.Addr("host:1") }
func (l oneCaller) Close() error { close(l.stop); return nil }

// alertOrHello reports whether an answer is a TLS alert or handshake message, which a caller gets before its proof.
func alertOrHello(b []byte) bool { return b[0] == 0x15 || b[0] == 0x16 }

// Two configurations of peer ports: without proofs, and with a secret.
var fuzzPlain, fuzzProven = fuzzDialer(peerport.TLS{}), fuzzDialer(peerport.TLS{Secret: clustertest.Secret})

func fuzzDialer(with peerport.TLS) *peerport.Dialer {
	d, err := peerport.NewDialer(with, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	return d
}

// readRaft reads what Raft and the answerer of entries would read, until the port closes.
func readRaft(p *peerport.Port) {
	go func() {
		for {
			conn, err := p.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	go func() {
		for {
			conn, err := p.AcceptAppends()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(io.Discard, conn) // FuzzAppendCodec tests the reading of these bytes
			}()
		}
	}()
}

// clientHello is what a caller who speaks TLS says first.
func clientHello(t testing.TB) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	d := fuzzDialer(peerport.TLS{Secret: clustertest.Secret})
	d.Network = func(string, byte, time.Duration) (net.Conn, error) { return near, nil }
	go func() { _, _ = d.Dial("host:1", peerport.ProtoForward, time.Second) }()
	b := make([]byte, 1<<14)
	n, err := far.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b[:n])
}

package cluster

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"lockstep/cluster/internal/frame"
	"lockstep/store/codec"
)

// FuzzPeerPort sends bytes to a peer port and ends: to one that requires proof nothing gets through, and nothing but an
// alert of TLS comes back; what a port without proof makes of the bytes, no protocol of it panics or
// takes memory that they only announce; and afterwards a peer reaches both.
func FuzzPeerPort(f *testing.F) {
	hello := greeting{speaks: current, id: "n2", client: "c:1"}.append([]byte{protoForward})
	for _, seed := range [][]byte{
		nil, []byte("R\x00"), []byte("A"), []byte("D"), []byte("J"), []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), []byte("*1\r\n$4\r\nPING\r\n"), []byte("GET / HTTP/1.1\r\n\r\n"),
		hello, append(hello[:len(hello):len(hello)], oneFrame(frameKill, 1, nil)...), append(hello[:len(hello):len(hello)], 0x3f, 0xff, 0xff, 0xff, frameSubmit),
		facts{id: "n2", runID: "r"}.append([]byte{protoFacts}), append([]byte{protoJoin}, oneFrame(frameJoin, 0, codec.AppendStr(codec.AppendStr(nil, "n4"), "host:1"))...),
		appendRequest([]byte{protoAppend}, &raft.AppendEntriesRequest{Term: 2, Entries: []*raft.Log{{Index: 1, Term: 1}}}), clientHello(f),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := make(chan byte, 10)
		reads := func(proto byte) func(net.Conn) {
			return func(conn net.Conn) {
				defer conn.Close()
				got <- proto
				in := newFactsReader(conn)
				switch proto {
				case protoForward:
					if _, err := current.read(in); err != nil {
						return
					}
					for {
						fr, err := frame.Read(in)
						if err != nil {
							return
						}
						_, _ = readSubmit(fr.Body, wireTable)
						_, _ = readAdmin(fr.Body)
					}
				case protoFacts:
					for {
						if _, err := readFacts(in); err != nil {
							return
						}
					}
				case protoJoin:
					_, _ = frame.ReadShort(in)
				}
			}
		}
		for _, gate := range []*peerGate{nil, fuzzGate(t)} {
			p := fuzzPort(gate, raftHooks{forward: reads(protoForward), facts: reads(protoFacts), join: reads(protoJoin)})
			near, far := net.Pipe()
			sorted := make(chan struct{})
			go func() { p.sort(p.arrivals.admit(far)); close(sorted) }()
			said := make(chan []byte)
			go func() {
				answer, _ := io.ReadAll(near) // until the port or this test ends it
				said <- answer
			}()
			_, _ = near.Write(b) // it may be turned away in the middle
			near.Close()
			answer := <-said
			<-sorted
			if gate != nil && (len(got) > 0 || len(answer) > 0 && !alertOrHello(answer)) {
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

// alertOrHello reports whether an answer is of TLS: an alert, or what a server shows before a caller has
// proved anything, which is what a caller must see to be able to.
func alertOrHello(b []byte) bool { return b[0] == 0x15 || b[0] == 0x16 }

var fuzzKeys = func() *peerKeys {
	k, err := secretKeys("test", []byte(testSecret))
	if err != nil {
		panic(err)
	}
	return k
}()

func fuzzGate(testing.TB) *peerGate {
	g := &peerGate{cfg: PeerTLS{Secret: testSecret}, wall: time.Now}
	g.keys.Store(fuzzKeys)
	return g
}

// fuzzPort is a peer port that nobody but the test calls.
func fuzzPort(gate *peerGate, hooks raftHooks) *peerPort {
	cfg := Default()
	cfg.Logger = new(logText).logger()
	cfg.gate = gate
	p := newPeerPort(neverAccepts{make(chan struct{})}, &cfg, hooks)
	go func() { // Raft, and what answers entries
		for {
			select {
			case conn := <-p.raft:
				conn.Close()
			case conn := <-p.appends:
				go func() {
					defer conn.Close()
					in := newFactsReader(conn)
					for {
						body, err := readAppend(in)
						if err != nil {
							return
						}
						_, _ = readRequest(body)
					}
				}()
			case <-p.stop:
				return
			}
		}
	}()
	return p
}

// clientHello is what a caller who speaks TLS says first.
func clientHello(t testing.TB) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	go func() { _, _ = fuzzGate(t).call(near, "host:1", protoForward, time.Second) }()
	b := make([]byte, 1<<14)
	n, err := far.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b[:n])
}

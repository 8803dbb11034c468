package peerport

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// Callers that send no whole handshake are cut off after a while. They keep no peer out, and do not fill the log.
func TestHalfOpenConnectionsAreCutOff(t *testing.T) {
	clustertest.Slow(t)
	for name, say := range map[string]string{
		"nothing":             "",
		"forward":             "F",
		"part of a handshake": "FLKST",
		"append":              "A",
		"raft":                "R",
		"half of raft's":      "R\x00\x85",
		"facts":               "D",
		"join":                "J\x00\x00",
		"half a handshake":    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
	} {
		for _, with := range []TLS{{}, {Secret: clustertest.Secret}, {Secret: clustertest.Secret, Optional: true}} {
			t.Run(fmt.Sprintf("%s/secret=%t,optional=%t", name, with.On(), with.Optional), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := portOf(t, with)
					peer := c.as(with)
					began := time.Now()
					var calls []net.Conn
					for i := range 3000 {
						conn := c.raw(say)
						defer conn.Close()
						calls = append(calls, conn)
						if i%500 > 0 {
							continue
						}
						synctest.Wait()
						if n := len(c.port.arrivals.all); n > maxStrangers+1 { // one more for a peer
							t.Fatalf("after %d calls there are %d connections", i, n)
						}
						good, err := peer.Dial("host:1", ProtoForward, DialTimeout)
						if err != nil {
							t.Fatalf("after %d calls a peer does not get in: %v", i, err)
						}
						if _, err := good.Write([]byte("hello")); err != nil {
							t.Error(err)
						}
						c.through("a peer", "forward hello")
						good.Close()
					}
					for _, conn := range calls {
						_, _ = io.Copy(io.Discard, conn)
					}
					if took := time.Since(began); took > HandshakeTimeout+snapshotPause {
						t.Errorf("the last one was cut off after %v", took)
					}
					synctest.Wait()
					if n, left := len(c.port.arrivals.unproven), len(c.port.arrivals.all); n != 0 || left != 0 {
						t.Errorf("%d are left, and counted as %d", left, n)
					}
					time.Sleep(2 * strangersPeriod)
					if got := c.log.Lines("Peer port"); len(got) > 6 {
						t.Errorf("the log has %d lines: %q", len(got), got)
					}
				})
			})
		}
	}
}

// The first request on a connection may be a snapshot. It may take long to arrive, and long to be restored before the node
// answers.
func TestSnapshotsAreGivenTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		p := portOf(t, TLS{}).port
		conn := &raftArrival{arrival: p.arrivals.admit(far)}
		go func() {
			for range 20 {
				_, _ = near.Write(make([]byte, 1000))
				time.Sleep(snapshotPause - time.Second)
			}
		}()
		if _, err := io.ReadFull(conn, make([]byte, 20_000)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // the snapshot is restored
		go func() { _, _ = conn.Write([]byte("done")) }()
		if _, err := io.ReadFull(near, make([]byte, 4)); err != nil {
			t.Error(err)
		}
		near.Close()
	})
}

// The node cuts off the oldest caller from the address with most strangers, but spares callers with a handshake, and proven peers.
func TestWhoIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStrangers(new(clustertest.Log).Logger())
		defer s.close()
		as := newArrivals(s, new(peerAddrs))
		defer as.close()
		var far []net.Conn
		call := func(host string) *arrival {
			near, other := net.Pipe()
			far = append(far, other)
			return as.admit(from{near, clustertest.Addr(host)})
		}
		proven := call("10.0.0.9:1")
		proven.prove(proven.raw)
		handshook, lone := call("10.0.0.1:1"), call("10.0.0.2:2")
		handshook.handshakeDone()
		crowd := []*arrival{}
		for i := range maxStrangers - 2 {
			crowd = append(crowd, call(fmt.Sprintf("10.0.0.3:%d", i)))
		}
		for i := range crowd[:len(crowd)-2] {
			call(fmt.Sprintf("10.1.0.%d:1", i))
			if !crowd[i].gone {
				t.Fatalf("number %d of the crowd is still there", i)
			}
		}
		if lone.gone || handshook.gone || proven.gone {
			t.Errorf("cut off: who called alone %t, who has sent a handshake %t, a peer %t", lone.gone, handshook.gone, proven.gone)
		}
		for _, conn := range far {
			conn.Close()
		}
	})
}

// from is a connection that comes from an address.
type from struct {
	net.Conn
	addr clustertest.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

// If many strangers call, the log has one line at once, and then one line a minute with their number.
func TestStrangersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log clustertest.Log
		s := newStrangers(log.Logger())
		for range 150 {
			s.Note(noPeer, "10.0.0.1:1", nil)
			time.Sleep(700 * time.Millisecond)
		}
		s.Note(tooSlow, "10.0.0.2:1", nil)
		time.Sleep(10 * strangersPeriod)
		s.Note(noPeer, "10.0.0.1:1", nil)
		s.close()
		s.Note(noPeer, "10.0.0.1:1", nil)
		var got []string
		for _, line := range log.Lines("Peer port") {
			got = append(got, line[strings.Index(line, "remote="):])
		}
		want := []string{"remote=10.0.0.1:1 count=1\n", "remote=10.0.0.1:1 count=85\n", "remote=10.0.0.2:1 count=1\n",
			"remote=10.0.0.1:1 count=64\n", "remote=10.0.0.1:1 count=1\n"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the log says %q, want %q", got, want)
		}
	})
}

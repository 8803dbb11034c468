package cluster

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"lockstep/cluster/internal/frame"
	"lockstep/cluster/internal/peerport"
	"lockstep/cluster/internal/roster"
	"lockstep/store/codec"
)

// recorder makes connections and keeps what is written to them.
type recorder struct {
	overTCP
	mu  sync.Mutex
	out []byte
}

type recordedConn struct {
	net.Conn
	r *recorder
}

func (c recordedConn) Write(b []byte) (int, error) {
	c.r.mu.Lock()
	c.r.out = append(c.r.out, b...)
	c.r.mu.Unlock()
	return c.Conn.Write(b)
}

func (r *recorder) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	conn, err := r.overTCP.Dial(addr, timeout)
	return recordedConn{conn, r}, err
}

// sayings are what peers say on each protocol of the peer port, the first byte included. Raft's
// are of a term that is over.
func (a *alone) sayings() (list [][]byte) {
	a.t.Helper()
	rec := &recorder{overTCP: overTCP{outgoing{stream{a.log.port}}}}
	plain := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: rec, MaxPool: 1, Timeout: time.Second, Logger: hclog.NewNullLogger()})
	defer plain.Close()
	self, addr := raft.ServerID(a.log.cfg.ID), raft.ServerAddress(a.log.cfg.PeerListen)
	keep := func(err error) {
		a.t.Helper()
		if err != nil {
			a.t.Fatal(err)
		}
		rec.mu.Lock()
		list, rec.out = append(list, append([]byte{peerport.ProtoRaft}, rec.out...)), nil
		rec.mu.Unlock()
	}
	entries := a.next()
	entries.Term, entries.Entries, entries.PrevLogTerm = 4, nil, 4
	keep(plain.AppendEntries(self, addr, entries, &raft.AppendEntriesResponse{}))
	keep(plain.RequestVote(self, addr, &raft.RequestVoteRequest{RPCHeader: a.header(), Term: 4, LastLogIndex: 3, LastLogTerm: 4}, &raft.RequestVoteResponse{}))
	keep(plain.RequestPreVote(self, addr, &raft.RequestPreVoteRequest{RPCHeader: a.header(), Term: 4, LastLogIndex: 3, LastLogTerm: 4}, &raft.RequestPreVoteResponse{}))
	list = append(list, append([]byte{peerport.ProtoAppend}, appendRequest(nil, a.next())...), append([]byte{peerport.ProtoFacts}, sampleFacts.append(nil)...))
	join := codec.AppendStr(codec.AppendStr(frame.Begin(nil, frameJoin, 0), "n1"), "127.0.0.1:1")
	list = append(list, append([]byte{peerport.ProtoJoin}, frame.End(join, 0)...))
	forward := greeting{speaks: a.log.cfg.speaks, id: a.peer, client: "host:1"}.append([]byte{peerport.ProtoForward})
	for kind := byte(1); kind <= framePosition; kind++ {
		body := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 7), 7)
		list = append(list, append(bytes.Clone(forward), frame.End(append(frame.Begin(nil, kind, uint64(kind)), body...), 0)...))
	}
	return list
}

// garble changes some bytes of what a peer says, but not which protocol it speaks.
func garble(rng *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + rng.IntN(4) {
		if len(b) < 3 {
			return b
		}
		at := 1 + rng.IntN(len(b)-1)
		switch rng.IntN(6) {
		case 0:
			b[at] ^= 1 << rng.IntN(8)
		case 1:
			b[at] = byte(rng.IntN(256))
		case 2: // a number that has no end, or the largest one
			b = append(b[:at:at], append(bytes.Repeat([]byte{0xff}, 1+rng.IntN(9)), b[at:]...)...)
		case 3:
			b = b[:at]
		case 4:
			b = append(b[:at:at], append([]byte{0}, b[at:]...)...)
		case 5:
			if n := rng.IntN(len(b) - at); n > 0 {
				b = append(b[:at:at], b[at+n:]...)
			}
		}
	}
	return b
}

// TestMutatedFrames: what is left of a peer's words when bytes of them are others, on a real node of
// three: it does not end, loses nothing that is committed, and follows the next leader.
// $LOCKSTEP_FRAMES says how many, $LOCKSTEP_SEED which.
func TestMutatedFrames(t *testing.T) {
	number := func(name string, otherwise uint64) uint64 {
		if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
			return n
		}
		return otherwise
	}
	count, seed := number("LOCKSTEP_FRAMES", 1500), number("LOCKSTEP_SEED", uint64(time.Now().UnixNano()))
	t.Logf("LOCKSTEP_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	a := startAlone(t)
	a.settle()
	before, said := a.portrait(), a.sayings()
	for i := range count {
		conn, err := net.Dial("tcp", a.log.cfg.PeerListen)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(garble(rng, said[rng.IntN(len(said))])); err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(ms))
			_, _ = conn.Read(make([]byte, 64)) // or it is gone
		}
		conn.Close()
		if i%100 != 99 {
			continue
		}
		after := a.portrait()
		if after.commit < before.commit || after.owner != before.owner || len(after.log) < len(before.log) || after.term > before.term+uint64(count)*(roster.TermReach+1) {
			t.Fatalf("after %d: %+v", i, after)
		}
		for j := range before.log {
			if after.log[j].Term != before.log[j].Term || !bytes.Equal(after.log[j].Data, before.log[j].Data) {
				t.Fatalf("after %d: entry %d is %+v", i, j+1, after.log[j])
			}
		}
	}
	if resp := a.append(a.log.raft.CurrentTerm()+1, 3, 5, 3); !resp.Success {
		t.Errorf("the next leader is not followed: %+v", resp)
	}
}

package raftnode

import (
	"bytes"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/cluster/internal/roster"
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

// sayings returns requests as peers send them by the protocols of Raft, in a term that is over. The first byte of a connection
// is included.
func (a *alone) sayings() (list [][]byte) {
	a.t.Helper()
	rec := &recorder{overTCP: overTCP{outgoing{stream{a.log.port}}}}
	plain := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: rec, MaxPool: 1, Timeout: time.Second, Logger: hclog.NewNullLogger()})
	defer plain.Close()
	self, addr := raft.ServerID(a.log.cfg.ID), raft.ServerAddress(a.log.cfg.Addr)
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
	return append(list, append([]byte{peerport.ProtoAppend}, appendRequest(nil, a.next())...))
}

// TestMutatedRequests: requests with changed bytes end no node and change no committed entry. $LOCKSTEP_FRAMES is their number,
// $LOCKSTEP_SEED chooses them.
func TestMutatedRequests(t *testing.T) {
	count, seed := clustertest.Number("LOCKSTEP_FRAMES", 1500), clustertest.Number("LOCKSTEP_SEED", uint64(time.Now().UnixNano()))
	t.Logf("LOCKSTEP_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	a := startAlone(t)
	a.settle()
	before, said := a.portrait(), a.sayings()
	for i := range count {
		conn, err := net.Dial("tcp", a.log.cfg.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(clustertest.Garble(rng, said[rng.IntN(len(said))])); err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, _ = conn.Read(make([]byte, 64)) // or the connection is closed
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
	for tries := 1; ; tries++ {
		resp := a.append(a.log.raft.CurrentTerm()+1, 3, 5, 3)
		if resp.Success {
			return
		}
		if tries == 20 { // it may begin an election itself in between
			t.Fatalf("the next leader is not followed: %+v", resp)
		}
	}
}

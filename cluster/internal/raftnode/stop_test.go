package raftnode

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// A heartbeat that comes after a node has closed its disk must not tell Raft a term that it can no longer write down.
func TestHeartbeatOfTheNextLeader(t *testing.T) {
	r, _, closeEarly := openMember(t, memberConfig(t, t.TempDir()))
	answer := make(chan raft.RPCResponse, 1)
	beat := raft.RPC{RespChan: answer, Command: &raft.AppendEntriesRequest{Term: 100,
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n2"), Addr: []byte("n2:1")}}}
	handle := func(rpc raft.RPC) {
		t.Error("Raft is asked")
		rpc.Respond(nil, nil)
	}
	closeEarly()
	r.trans.heartbeat(beat, handle)
	if got := <-answer; !errors.Is(got.Error, raft.ErrRaftShutdown) {
		t.Errorf("got %v", got.Error)
	}
}

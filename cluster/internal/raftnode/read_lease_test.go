package raftnode

import (
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// still is a clock, and a time of day, that the test sets.
type still struct {
	mono time.Duration
	wall time.Time
}

func (s still) Monotonic() time.Duration   { return s.mono }
func (s still) Wall() time.Time            { return s.wall }
func (s still) At(time.Time) time.Duration { return s.mono }

// Which promises a leader relies on.
func TestWhatMakesALease(t *testing.T) {
	day := time.Unix(1e9, 0)
	now := still{time.Minute, day}
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}, {ID: "n4", Suffrage: raft.Nonvoter}}}
	good := ack{term: 7, promised: true, at: now.mono - leaderLease + time.Millisecond, wall: day.Add(-leaderLease + time.Millisecond)}
	with := func(change func(*ack)) map[raft.ServerID]ack {
		a := good
		change(&a)
		return map[raft.ServerID]ack{"n2": a}
	}
	for what, c := range map[string]struct {
		acks map[raft.ServerID]ack
		want bool
	}{
		"nobody has answered":           {nil, false},
		"one voter has promised":        {with(func(*ack) {}), true},
		"it has not promised":           {with(func(a *ack) { a.promised = false }), false},
		"it promised another leader":    {with(func(a *ack) { a.term = 6 }), false},
		"that was too long ago":         {with(func(a *ack) { a.at -= time.Millisecond }), false},
		"this machine was suspended":    {with(func(a *ack) { a.wall = day.Add(-time.Hour) }), false},
		"its time of day was set back":  {with(func(a *ack) { a.wall = day.Add(time.Hour) }), false},
		"one without a vote has":        {map[raft.ServerID]ack{"n4": good}, false},
		"one that is no member has":     {map[raft.ServerID]ack{"n9": good}, false},
		"one voter of two has, and n4":  {map[raft.ServerID]ack{"n3": good, "n4": good}, true},
		"one did, the other of no term": {map[raft.ServerID]ack{"n2": good, "n3": {}}, true},
	} {
		tr := &transport{acks: c.acks, time: now}
		if got := tr.leased("n1", conf, 7); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	left := raft.Configuration{Servers: conf.Servers[1:2]}
	if tr := (&transport{acks: with(func(*ack) {}), time: now}); tr.leased("n1", left, 7) {
		t.Error("a leader that is no member any more has a lease")
	}
}

// A node that stops before its promise is over gives no vote.
func TestStoppedBeforeThePromiseIsOver(t *testing.T) {
	a := newPeer(t, "127.0.0.1:0", func(cfg *Config) { cfg.LeaseReads = true })
	vote := make(chan raft.RPCResponse, 1)
	inner := a.withhold(raft.RPC{Command: &raft.RequestVoteRequest{}, RespChan: vote})
	a.held.promise()
	a.held.until += time.Hour
	inner.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
	asked := make(chan error, 1)
	go func() {
		asked <- a.RequestVote("b", "127.0.0.1:1", &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{})
	}()
	select {
	case got := <-vote:
		t.Fatalf("the vote has left: %+v", got)
	case err := <-asked:
		t.Fatal("it has voted for itself:", err)
	case <-time.After(50 * time.Millisecond):
	}
	a.Close()
	if got := <-vote; got.Error != raft.ErrRaftShutdown || got.Response != nil {
		t.Errorf("the stop let a vote out: %+v", got)
	}
	if err := <-asked; err != raft.ErrRaftShutdown {
		t.Errorf("the stop let a candidate go on: %v", err)
	}
}

// A node decodes what another node says of itself, even if that node runs an earlier or a later version.
func TestSaidBy(t *testing.T) {
	for addr, want := range map[string]selfReport{
		"host:1":                               {},
		"host:1\x00dir":                        {directory: []byte("dir")},
		"host:1\x00dir\x00promises":            {directory: []byte("dir"), promises: true},
		"host:1\x00dir\x00listens":             {directory: []byte("dir"), listens: true},
		"host:1\x00dir\x00promises\x00listens": {directory: []byte("dir"), promises: true, listens: true},
		"host:1\x00dir\x00later\x00listens":    {directory: []byte("dir"), listens: true},
	} {
		if got := saidBy(raft.RPCHeader{Addr: []byte(addr)}); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", addr, got, want)
		}
	}
	for promising := range 2 {
		for listening := range 2 {
			tr := &transport{NetworkTransport: new(raft.NetworkTransport), self: "n1", addr: "host:1", directory: "dir", cluster: func() string { return "name" },
				promises: promising == 1, listens: func() bool { return listening == 1 }}
			want := selfReport{[]byte("dir"), []byte("name"), promising == 1, listening == 1}
			if got := saidBy(tr.header()); !reflect.DeepEqual(got, want) {
				t.Errorf("%+v is read as %+v", want, got)
			}
		}
	}
}

// A heartbeat that the node refuses extends no promise: it could keep the node from voting for as long as the sender likes.
func TestRefusedHeartbeatsExtendNoPromise(t *testing.T) {
	a := startAlone(t, func(cfg *Config) { cfg.LeaseReads = true })
	tr := a.log.trans
	until := func() time.Duration {
		tr.held.mu.Lock()
		defer tr.held.mu.Unlock()
		return tr.held.until
	}
	stranger := a.header()
	stranger.ID = []byte("n9")
	for _, c := range []struct {
		by       raft.RPCHeader
		promises bool
	}{{stranger, false}, {a.header(), true}} {
		before := until()
		answer := make(chan raft.RPCResponse, 1)
		tr.heartbeat(raft.RPC{RespChan: answer, Command: &raft.AppendEntriesRequest{RPCHeader: c.by, Term: 5}}, func(rpc raft.RPC) { rpc.Respond(nil, nil) })
		got := <-answer
		if promised := until() > before; promised != c.promises || (got.Error == nil) != c.promises {
			t.Errorf("a heartbeat of %s: a promise %v, the answer %v", c.by.ID, promised, got.Error)
		}
	}
}

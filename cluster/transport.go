package cluster

import (
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// transport is hashicorp/raft's, and keeps account of who has followed this
// node when.
//
// Raft.VerifyLeader alone does not make a read linearizable. It counts the
// answers of members that have no vote, so a leader that is cut off with a new
// member, which does not vote yet, is told that it leads; and it counts answers
// to heartbeats that were on their way when it was called, which may be old: a
// process that was stopped for minutes finds them when it goes on. So Verify
// counts for itself: a majority of the voters, each by a request that was sent
// after the call.
type transport struct {
	*raft.NetworkTransport
	patience time.Duration // for TimeoutNow

	mu    sync.Mutex
	steps uint64 // orders calls and requests
	acks  map[raft.ServerID]ack
}

// ack says that a member has followed.
type ack struct {
	term uint64 // whom
	sent uint64 // the step at which it was asked
}

func newTransport(port *peerPort, cfg *Config, logs hclog.Logger) *transport {
	return &transport{patience: cfg.ElectionTimeout, acks: map[raft.ServerID]ack{},
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: port, MaxPool: transportPool, Timeout: transportTimeout, Logger: logs,
			// No pipelining: when a response ends it (the follower has restarted, or
			// the connection broke), Raft's goroutine that sends may wait for ever
			// for the one that reads and has gone. That follower then gets no more
			// entries from this leader, and shutting down never ends. There is one
			// batch in flight, so there is nothing to pipeline.
			MaxRPCsInFlight: 1,
		})}
}

func (t *transport) step() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps++
	return t.steps
}

// AppendEntries sends heartbeats and what is not pipelined.
func (t *transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	sent := t.step()
	err := t.NetworkTransport.AppendEntries(id, to, req, resp)
	if err == nil && resp.Success {
		t.mu.Lock()
		t.acks[id] = ack{term: req.Term, sent: max(sent, t.acks[id].sent)}
		t.mu.Unlock()
	}
	return err
}

var errNoHandover = errors.New("the member that was to lead did not answer in time")

// TimeoutNow asks a member to stand for election at once. Raft accepts no
// entries until it returns, so it must not wait for a connection to time out.
func (t *transport) TimeoutNow(id raft.ServerID, to raft.ServerAddress, req *raft.TimeoutNowRequest, _ *raft.TimeoutNowResponse) error {
	done := make(chan error, 1)
	go func() { done <- t.NetworkTransport.TimeoutNow(id, to, req, &raft.TimeoutNowResponse{}) }()
	timer := time.NewTimer(t.patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errNoHandover
	}
}

// followed reports whether a majority of the voters, of which self is one, has
// followed this node in a term since a step.
func (t *transport) followed(self raft.ServerID, conf raft.Configuration, term, since uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	voters, count := 0, 0
	for _, s := range conf.Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if a := t.acks[s.ID]; s.ID == self || a.term == term && a.sent > since {
			count++
		}
	}
	return count > voters/2
}

// Verify ends when a majority has confirmed that this node leads, or when Raft
// has found that it does not: at the latest when the leader's lease is over.
func (r *raftLog) Verify() error {
	since, term := r.trans.step(), r.raft.CurrentTerm()
	for {
		if err := r.raft.VerifyLeader().Error(); err != nil {
			return err
		}
		conf := r.raft.GetConfiguration()
		if err := conf.Error(); err != nil {
			return err
		}
		if r.trans.followed(raft.ServerID(r.cfg.ID), conf.Configuration(), term, since) {
			return nil
		}
		if r.raft.CurrentTerm() != term {
			return raft.ErrLeadershipLost
		}
	}
}

package cluster

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// transport is hashicorp/raft's, but for two things. It keeps account of who
// has followed this node when (verify.go). And it does not take a broken
// connection for an answer: Raft keeps a few connections to each peer, and if
// the peer was started again meanwhile they lead nowhere, and the first request
// over each is lost: a vote, and with it an election, or the first entry of a
// new leader. So such a request is made again until the connection is a new
// one. All of them may come twice.
type transport struct {
	*raft.NetworkTransport
	patience time.Duration // for TimeoutNow

	mu    sync.Mutex
	steps uint64 // orders calls and requests
	acks  map[raft.ServerID]ack
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
	_ raft.WithClose   = (*transport)(nil)
)

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

func (t *transport) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return afresh(func() error { return t.NetworkTransport.RequestVote(id, to, args, resp) })
}

func (t *transport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return afresh(func() error { return t.NetworkTransport.RequestPreVote(id, to, args, resp) })
}

// AppendEntries sends heartbeats and what is not pipelined.
func (t *transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	sent := t.step()
	err := afresh(func() error { return t.NetworkTransport.AppendEntries(id, to, args, resp) })
	if err == nil && resp.Success {
		t.note(id, ack{term: args.Term, sent: sent})
	}
	return err
}

var errNoHandover = errors.New("the member that was to lead did not answer in time")

// TimeoutNow asks a member to stand for election at once. Raft accepts no
// entries until it returns, so it must not wait for a connection to time out.
func (t *transport) TimeoutNow(id raft.ServerID, to raft.ServerAddress, args *raft.TimeoutNowRequest, _ *raft.TimeoutNowResponse) error {
	done := make(chan error, 1)
	go func() {
		done <- afresh(func() error { return t.NetworkTransport.TimeoutNow(id, to, args, &raft.TimeoutNowResponse{}) })
	}()
	timer := time.NewTimer(t.patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errNoHandover
	}
}

// afresh makes a request again for each connection that may have been kept.
func afresh(request func() error) (err error) {
	for range transportPool + 1 {
		if err = request(); !brokenBefore(err) {
			return err
		}
	}
	return err
}

// brokenBefore reports whether the connection was broken: not that none could
// be made, that the peer was too slow, or that it refused.
func brokenBefore(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op != "dial" && !op.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

package cluster

import (
	"errors"
	"io"
	"net"

	"github.com/hashicorp/raft"
)

// transport is Raft's own, but for what it makes of connections that have
// broken while nobody used them.
//
// It keeps a few connections to each peer. If the peer was started again
// meanwhile they lead nowhere, and the first request over each is lost: a vote,
// and with it an election, or the first entry of a new leader. So such a request
// is made again until the connection is a new one. All of them may come twice.
type transport struct{ *raft.NetworkTransport }

var (
	_ raft.Transport   = transport{}
	_ raft.WithPreVote = transport{}
	_ raft.WithClose   = transport{}
)

func (t transport) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return afresh(func() error { return t.NetworkTransport.RequestVote(id, to, args, resp) })
}

func (t transport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return afresh(func() error { return t.NetworkTransport.RequestPreVote(id, to, args, resp) })
}

func (t transport) TimeoutNow(id raft.ServerID, to raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return afresh(func() error { return t.NetworkTransport.TimeoutNow(id, to, args, resp) })
}

func (t transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	return afresh(func() error { return t.NetworkTransport.AppendEntries(id, to, args, resp) })
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

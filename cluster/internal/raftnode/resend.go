package raftnode

import (
	"errors"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
)

// When a member does not take entries, Raft waits twice as long after each failure, up to 10 s, even if a majority is well again
// by then. Therefore the transport hides these failures from Raft: it sends the entries again itself, until the member takes them
// or this node no longer leads the member.

// resendPause is the pause before up to 1 MB of entries goes again to a member that answers, but does not take them.
const resendPause = 200 * time.Millisecond

// deliver sends entries until the member answers or is no longer led. If the member could not store them, deliver pauses, and
// Raft repeats them.
func (t *transport) deliver(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	send := t.sender(t.appends, t.NetworkTransport)
	err := t.exchange(id, to, args, resp, send)
	for again := false; err != nil; again = true {
		if !away(err) && t.refused != nil { // package peers logs it if a member is away
			t.refused.say("undelivered to "+string(id), "A member takes no entries; they are sent again until it takes them", "member", string(id), "error", err)
		}
		if (again || !away(err)) && !t.rest() {
			return err
		}
		if !t.back(id, to, args.Term) {
			return err
		}
		err = t.exchange(id, to, args, resp, send)
	}
	if !resp.Success && !resp.NoRetryBackoff && resp.Term <= args.Term {
		resp.NoRetryBackoff = t.rest()
	}
	return nil
}

// rest waits for resendPause, and returns true. If this node stops before, rest returns false.
func (t *transport) rest() bool {
	timer := time.NewTimer(resendPause)
	defer timer.Stop()
	select {
	case <-t.stop:
		return false
	case <-timer.C:
		return true
	}
}

// away reports whether an error means that the peer could not be reached. A refusal does not count.
func away(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || peerport.Broken(err)
}

// answered notes that a peer has answered a heartbeat.
func (t *transport) answered(id raft.ServerID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps++
	t.heard[id] = t.steps
}

// backTick is the interval at which the function back looks for an answer to a heartbeat.
const backTick = 10 * time.Millisecond

// back waits until a peer that was away answers a heartbeat. It returns false if this node stops or no longer leads the peer
// there.
func (t *transport) back(id raft.ServerID, to raft.ServerAddress, term uint64) bool {
	since := t.step()
	tick := time.NewTicker(backTick)
	defer tick.Stop()
	for {
		t.mu.Lock()
		heard := t.heard[id] > since
		t.mu.Unlock()
		if heard {
			return true
		}
		select {
		case <-t.stop:
			return false
		case <-tick.C:
		}
		if !t.leads(id, to, term) {
			return false
		}
	}
}

// leads reports whether this node leads in a term and the peer is a member at this address. While Raft starts it returns true.
func (t *transport) leads(id raft.ServerID, to raft.ServerAddress, term uint64) bool {
	r := t.raft.Load()
	if r == nil {
		return true
	}
	conf := r.GetConfiguration()
	return r.State() == raft.Leader && r.CurrentTerm() == term && conf.Error() == nil &&
		slices.ContainsFunc(conf.Configuration().Servers, func(s raft.Server) bool { return s.ID == id && s.Address == to })
}

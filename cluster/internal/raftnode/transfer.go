package raftnode

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Leadership transfer follows Ongaro's thesis, section 3.10: the leader accepts no more entries, waits until its successor (the
// heir) has all of them, and tells the heir to stand for election.
//
// The transfer of hashicorp/raft can hang. It asks the goroutine that sends entries to the heir how far the heir has come. While
// an heir with a full disk refuses entries, that goroutine reads no question, and a second transfer waits for ever. Meanwhile
// Raft accepts no entry.
//
// The caller of Transfer must first check that the heir answers. The leader serves requests until the heir has the log as it was
// at the beginning, and then proposes nothing until the heir has won an election. The leader gives up if a step takes longer than
// an election timeout.

var (
	ErrTransferring = errors.New("leadership transfer in progress")
	errNoElection   = errors.New("leadership transfer timeout: the member that was to lead has not been elected")
)

// transferTick is how often waitFor checks the progress of a transfer.
const transferTick = time.Millisecond

// proposals counts the proposals in progress, and keeps new ones out during a leadership transfer.
type proposals struct {
	mu   sync.Mutex
	shut bool
	n    int // proposals in progress
}

// enter begins a proposal, which the method leave ends. It returns false if proposals are kept out now.
func (p *proposals) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.shut {
		p.n++
	}
	return !p.shut
}

// stay counts one more proposal, which ends with its own leave, even if proposals are kept out. Call it only between enter and
// leave.
func (p *proposals) stay() {
	p.mu.Lock()
	p.n++
	p.mu.Unlock()
}

func (p *proposals) leave() {
	p.mu.Lock()
	p.n--
	p.mu.Unlock()
}

func (p *proposals) close() {
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
}

func (p *proposals) open() {
	p.mu.Lock()
	p.shut = false
	p.mu.Unlock()
}

// none reports whether proposals are kept out and no proposal is in progress.
func (p *proposals) none() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shut && p.n == 0
}

// Transfer hands leadership to the voter with this id, and returns nil when this node no longer leads, or if the voter leads
// already.
func (r *Node) Transfer(id string) error {
	members, err := r.Members()
	if err != nil {
		return err
	}
	for _, m := range members {
		if m.ID == id && m.Voter {
			if m.Leader {
				return nil
			}
			return r.transfer(raft.ServerID(id), raft.ServerAddress(m.PeerAddr))
		}
	}
	return ErrNoSuchMember
}

// transfer hands leadership to the heir, and returns nil when this node no longer leads. Raft's election timeout
// bounds each step.
func (r *Node) transfer(heir raft.ServerID, addr raft.ServerAddress) error {
	if !r.transferring.TryLock() {
		return ErrTransferring
	}
	defer r.transferring.Unlock()
	term := r.raft.CurrentTerm()
	lost := func() bool { return !r.leads(term) }
	// The leader serves requests until the heir has the present log, because that may take long, or for ever.
	last := r.raft.LastIndex()
	if !r.waitFor(r.cfg.ElectionTimeout, func() bool { return lost() || r.trans.has(heir, term, last) }) {
		return fmt.Errorf("leadership transfer timeout: %s has not got the end of the log; if it does not catch up, its own log says why", heir)
	}
	r.proposals.close()
	defer r.proposals.open()
	if !r.waitFor(r.cfg.ElectionTimeout, func() bool {
		return lost() || r.proposals.none() && r.trans.has(heir, term, r.raft.LastIndex())
	}) {
		return fmt.Errorf("leadership transfer timeout: %s has not got the last entries", heir)
	}
	if lost() {
		return nil
	}
	req := &raft.TimeoutNowRequest{RPCHeader: r.trans.header()}
	if err := r.trans.TimeoutNow(heir, addr, req, &raft.TimeoutNowResponse{}); err != nil {
		return fmt.Errorf("leadership transfer: %s: %w", heir, err)
	}
	if !r.waitFor(r.cfg.ElectionTimeout, lost) {
		return errNoElection
	}
	return nil
}

// waitFor waits until is() returns true. It returns false if the timeout is over or the node closes first.
func (r *Node) waitFor(timeout time.Duration, is func() bool) bool {
	late, tick := time.NewTimer(timeout), time.NewTicker(transferTick)
	defer late.Stop()
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late.C:
			return is()
		case <-r.stop:
			return false
		}
	}
	return true
}

// matched is the index up to which the log of a member equals the log of the leader of a term.
type matched struct{ term, index uint64 }

// match notes that a member has accepted a request of this leader; t.mu is held.
func (t *transport) match(id raft.ServerID, args *raft.AppendEntriesRequest) {
	m := matched{args.Term, lastOf(args)}
	if known := t.matches[id]; m.term > known.term || m.term == known.term && m.index > known.index {
		t.matches[id] = m
	}
}

// has reports whether a member has confirmed in a term that it has the log up to an index.
func (t *transport) has(id raft.ServerID, term, index uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hasNow(id, term, index)
}

// hasNow does the work of the method has; the caller holds t.mu.
func (t *transport) hasNow(id raft.ServerID, term, index uint64) bool {
	m := t.matches[id]
	return m.term == term && m.index >= index
}

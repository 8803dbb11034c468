package cluster

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Leadership is handed over as Raft's author does it (Ongaro's thesis, 3.10): the leader
// takes no entries any more, waits until the heir has all of them, and tells it to stand
// for election. hashicorp/raft does that, too, but asks the goroutine that sends entries to
// the heir to say how far it is, and waits for it without a limit. Of an heir that refuses
// entries, because its disk is full, nothing is ever said: the second such transfer never
// ended, and as long as one goes on Raft takes no entry, in this term and, once that
// goroutine was gone, in all later ones.
//
// The leader asks the heir first whether it lives. Clients go on until the heir has what the log held
// at that moment. Then nothing is proposed until the heir has the rest, stands for election and has
// won, or until an election timeout is over.

var (
	errTransferring = errors.New("leadership transfer in progress")
	errNoElection   = errors.New("leadership transfer timeout: the member that was to lead has not been elected")
)

// transferTick is how often it is looked how far a transfer has come.
const transferTick = time.Millisecond

// proposals lets entries into the log, or keeps them out while leadership is handed over.
type proposals struct {
	mu   sync.Mutex
	shut bool
	n    int // on their way
}

// enter begins a proposal, which leave ends; false: there can be none now.
func (p *proposals) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.shut {
		p.n++
	}
	return !p.shut
}

// stay is for what may outlast the one who has entered; another leave ends it.
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

// none reports whether no entry can come any more.
func (p *proposals) none() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shut && p.n == 0
}

func (r *raftLog) Transfer(id string) error {
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

// transfer returns nil when this node does not lead any more. Raft's election timeout
// bounds each step.
func (r *raftLog) transfer(heir raft.ServerID, addr raft.ServerAddress) error {
	if !r.transferring.TryLock() {
		return errTransferring
	}
	defer r.transferring.Unlock()
	term := r.raft.CurrentTerm()
	lost := func() bool { return !r.leads(term) }
	// Clients go on until the heir has what there is now: it may take long, or for ever.
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

// waitFor waits until something is so; false if it is not in time.
func (r *raftLog) waitFor(timeout time.Duration, is func() bool) bool {
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

// matched is how far a member's log is known to be the leader's of a term.
type matched struct{ term, index uint64 }

// match notes that a member has taken entries, or has those before them; t.mu is held.
func (t *transport) match(id raft.ServerID, args *raft.AppendEntriesRequest) {
	m := matched{args.Term, lastOf(args)}
	if known := t.matches[id]; m.term > known.term || m.term == known.term && m.index > known.index {
		t.matches[id] = m
	}
}

// has reports whether a member has said in a term that it has the log up to an index.
func (t *transport) has(id raft.ServerID, term, index uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hasNow(id, term, index)
}

// hasNow is has; t.mu is held.
func (t *transport) hasNow(id raft.ServerID, term, index uint64) bool {
	m := t.matches[id]
	return m.term == term && m.index >= index
}

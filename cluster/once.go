package cluster

import (
	"sync"

	"lockstep/raftfsm"
	"lockstep/store"
)

// Once. A write that this node carries to the leader is numbered (ticket). If
// the leader or the link is lost before it is answered, it is sent again, to
// whoever leads then, and the leader looks first whether it has been executed
// (raftfsm.Answers). So a client whose node lives sees the death of a leader as
// a pause.
//
// That the look is final takes two things:
//   - Nothing of an earlier leader takes effect any more: compare-and-append.
//   - Nothing that was sent by an earlier link is executed any more: a link
//     begins with a claim, and a leader executes writes only of the link that
//     their origin has claimed last, in this term. The leader makes up the token
//     of a claim, so nothing that was sent before its answer can hold it. A claim
//     is evaluated in a batch in which no answer stands before it, so what came
//     before has been applied.
//
// The second is needed for writes that write nothing, such as SET NX on a held lock: no answer to them
// is kept. A copy of one that is still on its way by an older link would be executed later, and take a
// lock that nobody knows of.
//
// A node numbers only the writes that it carries to another node. While it leads, its own clients need
// no numbers: if it is deposed, the next accepted entry settles what became of them; if it dies, their
// connections die with it. Replies above maxRecorded are not kept, and neither are those to an origin
// that was silent for ten minutes. The state still knows which requests of that origin have been
// executed (raftfsm.Answers.Forgotten), so an origin that was suspended, with its clock, is told that
// the reply is lost.

// ticket names a write of another node, or of this one if it was sent to an
// earlier leader before.
type ticket struct {
	origin uint64 // boot number of the node
	id     uint64 // its number there; 0: nothing that has to be executed once
	low    uint64 // the origin waits for nothing below
	again  bool   // it may have been executed
}

// tickets are the numbers that this node has given.
type tickets struct {
	mu   sync.Mutex
	next uint64
	low  uint64              // everything below is over
	over map[uint64]struct{} // from low on
}

// begin returns a new number.
func (t *tickets) begin() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next == 0 {
		t.next, t.low, t.over = 1, 1, map[uint64]struct{}{}
	}
	id := t.next
	t.next++
	return id
}

// end tells that nobody waits for a number any more.
func (t *tickets) end(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over[id] = struct{}{}
	for {
		if _, ok := t.over[t.low]; !ok {
			return
		}
		delete(t.over, t.low)
		t.low++
	}
}

func (t *tickets) lowest() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.low
}

// decided reports whether a numbered request is not to be executed: it has been
// already, or its link counts no more.
func (s *sequencer) decided(txn *store.Txn, r *request) bool {
	if r.from.origin != s.node.boot && (r.token == 0 || s.sleepers.tokens[r.from.origin] != r.token) {
		r.held = true
		r.complete(errStale)
		return true
	}
	r.crowded = s.done.Size() > maxKept
	if !r.from.again {
		return false
	}
	replies, executed := s.done.Lookup(r.from.origin, r.from.id)
	if !executed && s.done.Forgotten(r.from.origin, r.from.id) {
		r.replies = errorReplies(r.replies[:0], len(r.calls), ErrReplyLost)
		return true
	}
	if !executed {
		return false
	}
	var err error
	var given grants
	if r.replies, replies, err = readReplies(replies, r.replies, store.ReadReply); err == nil {
		given, err = readGrants(replies)
	}
	if err != nil || len(r.replies) == 0 || len(r.replies) > len(r.calls) {
		s.log.Error("the replies to a request that was executed cannot be read", "error", err)
		r.replies = errorReplies(r.replies[:0], len(r.calls), ErrReplyLost)
		return true
	}
	r.renew(txn, given, r.replies)
	return true
}

// maxRecorded is how large replies an entry keeps, with the names of the keys
// that were leased, for a request that is sent again.
const maxRecorded = 512 << 10

const (
	// maxKept is how large the replies to all requests are that every node keeps, before only
	// those that are small are added: none is dropped before its origin has sent another write.
	maxKept = 4 << 20
	// smallRecord is what is always kept, such as the reply to whoever takes a lock.
	smallRecord = 512
)

// record notes that r has written something.
func (b *batch) record(r *request, writes []byte) {
	replies := appendReplies(nil, r.replies)
	if g := r.granted(b.prev+1, writes); len(g.list) > 0 {
		replies = appendGrants(replies, g)
	}
	if len(replies) > maxRecorded || r.crowded && len(replies) > smallRecord {
		replies = appendReplies(nil, errorReplies(nil, len(r.replies), ErrReplyLost))
	}
	b.answers = append(b.answers, raftfsm.Answer{Origin: r.from.origin, ID: r.from.id, Low: r.from.low, Replies: replies})
	b.recorded += len(replies)
}

// tooEarly reports whether a request that is not the first of its batch has to
// wait for the next one: a claim with answers before it, and a WATCH of a key
// that the present write set has changed. What comes after that in the same
// batch could change the key again and leave it the same version.
func (r *request) tooEarly(txn *store.Txn, b *batch) bool {
	if r.claim != nil {
		return len(b.answers) > 0
	}
	if len(r.calls) != 1 || r.calls[0].Txn == nil || !r.calls[0].Txn.Observe {
		return false
	}
	for _, w := range r.calls[0].Txn.Watched {
		if _, settled := txn.Version(w.DB, w.Key); !settled {
			return true
		}
	}
	return false
}

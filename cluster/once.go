package cluster

import (
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// A node numbers each write that it forwards to the leader, or that has waited for a leader (ticket). If the leader or the link
// is lost before the reply, the node sends the write again to the next leader. That leader first checks whether the write has
// been executed (raftfsm.Answers).
//
// Two rules make the result of that check final:
//
//  - No entry of an earlier leader takes effect any more, because of compare-and-append.
//  - No request from an earlier link is executed any more. A link begins with a claim by its origin, the forwarding node, and gets
//    a new token from the leader. The leader executes a forwarded write only by the link that its origin has claimed last in this
//    term. A claim is evaluated when all earlier writes have been applied: it does not share a batch with recorded replies.
//
// The second rule is needed for requests that end up writing nothing, such as SET NX on a held lock: their replies are not kept.
// A copy on an older link could take the lock after its release, and no client would know of that.

// decided reports whether a numbered request must not be executed, and then sets its replies or error. It prepares r for record.
func (s *sequencer) decided(txn *store.Txn, r *request) bool {
	if r.from.Origin != s.node.boot && (r.token == 0 || s.blockedClients.tokens[r.from.Origin] != r.token) {
		r.held = true
		r.complete(forward.ErrStale)
		return true
	}
	r.crowded = s.done.SizeOf(r.from.Origin) > maxKept
	r.from.Low = max(r.from.Low, s.done.Due(r.from.Origin))
	if !r.from.Again {
		return false
	}
	replies, executed := s.done.Lookup(r.from.Origin, r.from.ID)
	if !executed && s.done.Forgotten(r.from.Origin, r.from.ID) {
		r.replies = errorReplies(r.replies[:0], len(r.calls), ErrIndeterminate)
		return true
	}
	if !executed {
		return false
	}
	var err error
	var given grants
	if r.replies, replies, err = forward.ReadReplies(replies, r.replies, store.ReadReply); err == nil {
		given, err = readGrants(replies)
	}
	if err != nil || len(r.replies) == 0 || len(r.replies) > len(r.calls) {
		s.log.Error("the replies to a request that was executed cannot be read", "error", err)
		r.replies = errorReplies(r.replies[:0], len(r.calls), ErrReplyLost)
		return true
	}
	r.renew(txn, given, r.replies, false)
	return true
}

// maxRecorded bounds the bytes that an entry keeps for one request: replies and leased keys. Little room on disk lowers the
// bound.
const maxRecorded = 512 << 10

const (
	// maxKept: beyond so many bytes of kept replies to one origin, only small new ones are kept (smallRecord).
	maxKept = 4 << 20
	// smallRecord is the most bytes of a reply that is small for maxKept, such as the reply to a client that takes a lock.
	smallRecord = 512
)

// record adds the replies to the numbered request r to the answers of the batch's entry, or ErrReplyLost if the replies are too
// large.
func (b *batch) record(r *request, writes []byte) {
	replies := b.recordOf(r, writes)
	b.answers = append(b.answers, raftfsm.Answer{Origin: r.from.Origin, ID: r.from.ID, Low: r.from.Low, Replies: replies})
	b.recorded += len(replies)
}

// recordOf encodes the replies to r, and the leases that r was given, for the answers of the entry.
func (b *batch) recordOf(r *request, writes []byte) []byte {
	replies := forward.AppendReplies(nil, r.replies)
	if g := b.granted(r, b.prev+1, writes); len(g.list) > 0 {
		replies = appendGrants(replies, g)
	}
	if len(replies) > b.keeps || r.crowded && len(replies) > smallRecord {
		replies = forward.AppendReplies(nil, errorReplies(nil, len(r.replies), ErrReplyLost))
	}
	return replies
}

// correctRecords encodes the recorded replies again if the batch has given a key's name to another key: that may have ended a
// granted lease.
func (b *batch) correctRecords(txn *store.Txn) {
	b.replaced = txn.Replaced()
	if b.replaced == nil || len(b.answers) == 0 {
		return
	}
	type number struct{ origin, id uint64 }
	leased := map[number]*request{}
	for _, r := range b.requests {
		if len(r.spans)+len(r.anew) > 0 {
			leased[number{r.from.Origin, r.from.ID}] = r
		}
	}
	for i := range b.answers {
		a := &b.answers[i]
		if r := leased[number{a.Origin, a.ID}]; r != nil {
			b.recorded -= len(a.Replies)
			a.Replies = b.recordOf(r, txn.Writes().Bytes())
			b.recorded += len(a.Replies)
		}
	}
}

// tooEarly reports whether a claim or a WATCH must wait for the next batch: WATCH would not see a second change in this one.
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

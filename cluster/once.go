package cluster

import (
	"lockstep/cluster/internal/forward"
	"lockstep/raftfsm"
	"lockstep/store"
)

// Once. A node numbers each write that it forwards to the leader (ticket). If the leader or the link is lost before the reply,
// the node sends the write again to the next leader. That leader first checks whether the write has been executed
// (raftfsm.Answers). So a client of a living node sees the death of a leader as a pause.
//
// Two rules make the result of that check final:
//
//   - No entry of an earlier leader takes effect any more, because of compare-and-append.
//   - No request from an earlier link is executed any more. A link begins with a claim by its origin, the forwarding node. A
//     leader executes a forwarded write only if it comes by the link that its origin has claimed last in this term. The leader
//     makes up a token for each new link, so no request that the origin sent before the answer to the claim can hold that
//     token. If a batch already has recorded replies, a claim waits for the next batch. So all earlier writes have been
//     applied when a claim is evaluated.
//
// The second rule is needed for requests that end up writing nothing, such as SET NX on a held lock, because their replies are
// not kept. A copy of such a request may still be on its way on an older link. Without the rule, it could be executed after the
// lock was released, and take a lock that no client knows of.
//
// A node numbers the writes that it forwards, or that have waited for a leader. A write that a client sends to the leader
// itself needs no number. If that leader is deposed, the next accepted entry settles the fate of the write. If the leader dies,
// the connection of the client ends.
//
// Replies of more than maxRecorded bytes are not kept. The state drops the replies to an origin that was silent for ten
// minutes, for example because it was suspended together with its clock. The state also drops the oldest replies when there are
// too many (raftfsm.MaxOrigin, raftfsm.MaxAnswers). It still knows to which requests it may have dropped the replies
// (raftfsm.Answers.Forgotten). If such a request is sent again, its outcome is unknown.

// decided reports whether the leader must not execute a numbered request. There are three reasons: the request has been executed
// already, the state has forgotten whether it was, or the request's link is no longer valid. In these cases decided also sets the
// replies or the error of the request. Unless the link is no longer valid, decided also sets r.crowded and r.from.Low for the
// method record.
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

// maxRecorded bounds the bytes that an entry keeps for one request, in case the request is sent again: its replies, with the
// names of the leased keys. Where the disks have little room, the bound is lower (sequencer.restart).
const maxRecorded = 512 << 10

const (
	// maxKept: if the kept replies to one origin have more bytes than this, only small new replies are kept. A reply stays
	// until another write of its origin says that the origin no longer waits for it.
	maxKept = 4 << 20
	// smallRecord is the largest size in bytes of a reply that counts as small for maxKept. The reply to a client that takes a
	// lock is small.
	smallRecord = 512
)

// record adds the replies to r, a numbered request that has written something, to the answers of the batch's entry. If the replies
// are too large to be kept, the entry gets ErrReplyLost in their place.
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

// correctRecords encodes the recorded replies again if a request of the batch has given the name of a key to another key. That
// request may have ended a lease that the batch had granted to an earlier request.
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

// tooEarly reports whether a request must wait for the next batch. A claim must wait if the batch has recorded replies. A WATCH
// must wait if the batch has changed one of its keys. All changes by one batch give the key the same version, so WATCH would not
// see a later change in the same batch. That holds also for the first request: before it, the batch may have moved the deadline
// of a key, or served blocked clients (restart).
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

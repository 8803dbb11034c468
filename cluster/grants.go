package cluster

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/codec"
)

// A client counts its lease from the reply. A reply can be late in four ways:
//
//   - The leader replies late, after a slow log or behind a slow script. It extends the deadlines (clock.Lateness), and before a
//     reply later than latenessKept logs an extra entry, so that the next leader knows the later deadlines (makeUp).
//   - A reply was lost with a link or a leader. The leader that gets the request again repeats the reply, and the leases granted
//     in it begin anew (decided).
//   - A deposed leader learns that the log has accepted the write. It asks the next leader to let the leases begin anew, and then
//     answers its client (confirm).
//   - The client's node holds the reply, because the request was heavy work (fair.Gate.HoldReplies). It asks the leader in the
//     same way (hold).
//
// If the lease is over before it can begin anew, the client gets ErrReplyLost: another client may own the lock.
//
// The lease clock makes up for lateness up to latenessKept. The leader sets its stamps back by its worst lateness. After an entry
// that granted leases, the next leader's clock leaves out at least latenessKept of the time since (Lease.Lead).
//
// A leader whose process stood still may have been replaced without knowing it. So before a late reply, the leader checks once
// more that it leads (stillLeads). A reply within promptly after the evaluation needs no check: voters wait for the heartbeat
// timeout, or until the leader's process is gone. But a leader that hands over checks before every reply.

// span marks the writes of a call that has asked for a lease.
type span struct {
	call       int
	begin, end store.Mark
}

// grants are the leases that a request was given.
type grants struct {
	seq   uint64 // number of the write set that granted them
	token uint64 // the last token that had been given by then; 0 if tokens were not counted
	at    int64  // the time on the lease clock at which the request was evaluated
	list  []grant
}

// grant is a lease that one of the request's calls was given.
type grant struct {
	call int
	key  store.LeasedKey
}

// granted returns the leases that r has got and not ended. Deadline 0: a later request may have replaced the key.
func (b *batch) granted(r *request, seq uint64, writes []byte) grants {
	g := grants{seq: seq, token: r.granted, at: r.at, list: slices.Clone(r.anew)}
	for _, s := range r.spans {
		for _, k := range store.LeasedBetween(writes, s.begin, s.end, r.written) {
			g.list = append(g.list, grant{s.call, k})
		}
	}
	if b.replaced != nil {
		for i := range g.list {
			if k := &g.list[i].key; b.replaced.Since(r.written, k.DB, k.Key) {
				k.Deadline = 0
			}
		}
	}
	return g
}

// leased returns the keys whose leases the batch has set, under the names to which later requests have moved them.
func (b *batch) leased() []store.LeasedKey {
	var spans []store.Span
	var anew []store.LeasedKey
	for _, r := range b.requests {
		for _, s := range r.spans {
			spans = append(spans, store.Span{From: s.begin, To: s.end})
		}
		for _, x := range r.anew {
			anew = append(anew, x.key)
		}
	}
	slices.SortFunc(spans, func(a, b store.Span) int { return a.From.Compare(b.From) })
	return store.Leased(b.writes, spans, anew)
}

// promptly is the time after a write's evaluation in which no other leader can begin, unless this node hands over. An answer in
// that time needs no second check.
//
// latenessKept is the same time in ms. No entry has a lateness up to latenessKept, so the next leader adds latenessKept to
// leases.
const (
	promptly     = latenessKept * time.Millisecond
	latenessKept = 50
)

// batchSpread is how long, in ms, a batch takes in requests. Lateness counts from a batch's beginning, so a longer spread would
// lengthen leases.
const batchSpread = 20

// pressedSpread replaces batchSpread while users with little work send requests, or requests come beside long reads: short
// batches shorten the wait.
const pressedSpread = 6

func appendGrants(buf []byte, g grants) []byte {
	buf = binary.AppendUvarint(buf, g.seq)
	buf = binary.AppendUvarint(buf, uint64(g.at))
	buf = binary.AppendUvarint(buf, uint64(len(g.list)))
	for _, x := range g.list {
		buf = binary.AppendUvarint(buf, uint64(x.call))
		buf = binary.AppendUvarint(buf, uint64(x.key.DB))
		buf = codec.AppendStr(buf, x.key.Key)
		buf = binary.AppendUvarint(buf, uint64(x.key.Deadline))
	}
	if g.token == 0 {
		return buf
	}
	buf = binary.AppendUvarint(buf, g.token) // version 0.1.0 does not know this field, nor those behind
	if slices.ContainsFunc(g.list, func(x grant) bool { return x.key.Owner != "" }) {
		for _, x := range g.list {
			buf = codec.AppendStr(buf, x.key.Owner)
		}
	}
	return buf
}

// maxGranted is the largest index of a call (grant.call) that readGrants accepts. A session sends fewer calls in one request.
const maxGranted = 1 << 12

// readGrants decodes what appendGrants wrote. No bytes mean no grants: the request was given no lease.
func readGrants(b []byte) (grants, error) {
	if len(b) == 0 {
		return grants{}, nil
	}
	r := codec.Reader{B: b}
	g := grants{seq: r.Uvarint(), at: int64(r.Uvarint())}
	for n := r.Count(1); n > 0 && !r.Bad; n-- {
		x := grant{call: r.Int(), key: store.LeasedKey{DB: r.Int(), Key: string(r.Bytes()), Deadline: int64(r.Uvarint())}}
		r.Bad = r.Bad || x.key.DB >= store.Databases || x.call > maxGranted
		g.list = append(g.list, x)
	}
	if len(r.B) > 0 {
		g.token = r.Uvarint()
	}
	for i := 0; i < len(g.list) && len(r.B) > 0; i++ {
		g.list[i].key.Owner = string(r.Bytes())
	}
	if r.Bad || len(r.B) > 0 {
		return grants{}, frame.ErrMalformed
	}
	return g, nil
}

// renew lets the leases g begin now. A call gets ErrReplyLost if its lease is over, unless a command ended it while the reply was
// held.
func (r *request) renew(txn *store.Txn, g grants, replies []store.Reply, held bool) {
	txn.SetOrigin(0)
	txn.SetClient(0)
	for _, x := range g.list {
		until, alive := txn.Renew(x.key, g.seq, g.token, g.at)
		switch {
		case x.call >= len(replies), !alive && held && (x.key.Deadline == 0 || x.key.Deadline > txn.Now().Lease):
		case alive:
			x.key.Deadline = until
			r.anew = append(r.anew, x)
		default:
			replies[x.call] = store.Err(ErrReplyLost)
		}
	}
}

// confirm runs call.Confirm on the leader. The reply has OK or an error for each call up to the last one with a lease.
func (r *request) confirm(txn *store.Txn) {
	said := store.Reply{Kind: store.Array}
	g, err := readGrants(r.calls[0].Args[1])
	if err != nil {
		r.replies = append(r.replies, store.Err(ErrInternal))
		return
	}
	for _, x := range g.list {
		for len(said.Elems) <= x.call {
			said.Elems = append(said.Elems, store.OK)
		}
	}
	r.renew(txn, g, said.Elems, r.calls[0].RESP == heldRESP)
	// The answer that is kept for r has one reply, that of the Confirm call. So the grants of that answer belong to call 0.
	for i := range r.anew {
		r.anew[i].call = 0
	}
	r.replies = append(r.replies, said)
}

// confirm asks the leader to let the leases of an executed request begin now, and returns the replies. FailoverWait counts from
// since, a monotonic time.
func (n *Node) confirm(g grants, since time.Duration, replies []store.Reply, resp int) []store.Reply {
	left := since + n.cfg.FailoverWait - n.cfg.Time.Monotonic()
	calls := []Call{{Cmd: call.Confirm, Args: [][]byte{[]byte(call.ConfirmName), appendGrants(nil, g)}, RESP: resp, User: store.SystemUser}}
	said := n.newCarried(left, nil, n.queue.Number(), nil, calls, nil).run()[0].Elems
	for _, x := range g.list {
		if x.call < len(replies) && (x.call >= len(said) || said[x.call].IsError()) {
			replies[x.call] = store.Err(ErrReplyLost)
		}
	}
	return replies
}

const (
	// The RESP version of a Confirm call tells the leader whether the reply was lost or held. Nodes of 0.1.0 see no difference.
	lostRESP, heldRESP = 2, 3
	// atOnce is the longest time for which a reply to heavy work may be at the gate and still count as not held.
	atOnce = time.Millisecond
	// shortLease is a length in ms. If a lease is shorter, a quarter of it may be too little time for confirm.
	shortLease = 400
	// maxHeldLease is a length in ms. Longer leases count as leases of this length, because no reply is held for nearly as
	// long.
	maxHeldLease = 3_600_000
)

// mayBeHeld returns for how long the reply to a request with these leases may be held.
func (g grants) mayBeHeld() time.Duration {
	most := int64(math.MaxInt64 / time.Millisecond)
	for _, x := range g.list {
		lease := min(x.key.Deadline-g.at, maxHeldLease)
		if lease < shortLease {
			return 0
		}
		most = min(most, lease/4*3)
	}
	return time.Duration(most) * time.Millisecond
}

// hold delays the replies to heavy work as the gate decides, for at most three quarters of the shortest lease. leases are the
// encoded grants.
func (n *Node) hold(client *Client, replies []store.Reply, leases []byte) []store.Reply {
	g, err := readGrants(leases)
	if err != nil {
		n.cfg.Logger.Error("the leases of a reply that is held cannot be read", "error", err)
		return errorReplies(replies[:0], len(replies), ErrReplyLost)
	}
	most := g.mayBeHeld()
	began := n.cfg.Time.Monotonic()
	n.gate.HoldReplies(client, replies, len(leases), most)
	now := n.cfg.Time.Monotonic()
	if len(g.list) == 0 || now-began < atOnce {
		return replies
	}
	return n.confirm(g, now, replies, heldRESP)
}

// overdue is a batch that the log accepted so late that the leases of the batch
// have to be lengthened before the batch is answered.
type overdue struct {
	batch *batch
	keys  []store.LeasedKey
	seq   uint64 // number of the write set that has set the present deadlines of keys
	at    int64  // the lease time from which these deadlines count
}

// shift moves the deadlines that a write set has set, by ms milliseconds.
type shift struct {
	keys []store.LeasedKey
	seq  uint64
	ms   int64
}

// postpone records how late a batch has been accepted, and reports whether the batch must not be answered before its
// leases have been lengthened (makeUp).
func (s *sequencer) postpone(b *batch, started store.Time) bool {
	late := s.node.clock.Now().Lease - started.Lease
	if b.answered.Load() {
		// The batch was answered promptly, or its watchdog has told the clients that the outcome is unknown.
		late = min(late, latenessKept)
	}
	// The lateness above latenessKept is not recorded here, because makeUp gives the leases that time by another entry.
	s.late.Record(b.accepted, min(late, latenessKept))
	if late <= latenessKept {
		return false
	}
	o := &overdue{batch: b, seq: b.accepted, at: started.Lease, keys: b.leased()}
	if len(o.keys) == 0 {
		return false
	}
	s.overdue = o
	return true
}

// makeUp answers the postponed batch after an entry that lengthens its leases, and tries again with a margin if that entry is
// late, too. It returns false when leadership is lost.
func (s *sequencer) makeUp(ctx context.Context) bool {
	o := s.overdue
	if o == nil {
		return true
	}
	s.overdue = nil
	first := o.seq
	margin := int64(0)
	for late := s.node.clock.Now().Lease - o.at; !o.batch.answered.Load(); {
		began, started := s.node.cfg.Time.Monotonic(), s.node.clock.Now()
		if began-o.batch.began+time.Duration(margin)*time.Millisecond > s.node.cfg.FailoverWait {
			o.batch.answer(errLate) // another try would not be over in time
			break
		}
		s.shift = shift{o.keys, o.seq, started.Lease - o.at + margin}
		s.correcting = true
		b, entry, _ := s.evaluate(ctx, nil, started, true)
		s.correcting = false
		b.began = began
		leads := s.propose(b, entry, started)
		if !leads || b.accepted == 0 {
			s.shift = shift{}
			o.batch.answer(errLate)
			return leads
		}
		s.blockedClients.settle() // the entry may have deleted expired locks
		s.corrections.note(b.accepted, first)
		took := s.node.clock.Now().Lease - started.Lease
		if took <= margin+latenessKept {
			s.node.measures.Lengthened.Add(uint64(len(o.keys)))
			o.batch.answer(nil)
		}
		s.late.Record(b.accepted, min(took-margin, latenessKept))
		if took < margin {
			s.shift = shift{o.keys, b.accepted, took - margin}
		}
		o.seq, o.at = b.accepted, started.Lease+margin
		margin = max(2*margin, min(late, took))
	}
	return true
}

// corrections are the latest entries that only lengthened leases.
type corrections [64]struct {
	by uint64 // number of such a write set
	of uint64 // number of the write set that granted the leases
}

func (c *corrections) note(by, of uint64) {
	c[by%uint64(len(c))] = struct{ by, of uint64 }{by, of}
}

// origin returns the number of the write set whose leases the write set seq has lengthened, or seq if it has done something else, or long ago.
func (c *corrections) origin(seq uint64) uint64 {
	if x := c[seq%uint64(len(c))]; x.by == seq && seq != 0 {
		return x.of
	}
	return seq
}

// moveDeadlines moves the deadlines of s.shift, in the transaction.
func (s *sequencer) moveDeadlines(txn *store.Txn) {
	for _, k := range s.shift.keys {
		txn.Lengthen(k, s.shift.seq, s.shift.ms)
	}
}

package cluster

import (
	"context"
	"encoding/binary"
	"time"

	"lockstep/store"
)

// A lease counts from its reply. Here is what a reply needs that comes late:
//
//   - The leader's own, from a slow log or behind a slow script: lateness
//     (clock.go). Beyond latenessKept an entry of its own lengthens the leases
//     before the reply, so that the next leader knows (makeUp).
//   - A reply that is repeated because it was lost with a link or a leader, by
//     whoever leads then: with the answer its grants are kept, and they begin
//     anew (decided).
//   - One that another node hears of, or this one only when it leads no more, when
//     the next leader's clock may have gone on without it: that leader is asked
//     to let the grants begin anew, and only then the client is told (confirm).
//
// If a lease is over by then, the reply is not given: it would be of a lock
// that may have another owner.
//
// A write set is stamped when it is evaluated and acknowledged some milliseconds later. Without
// correction a lease would end that much early, seen from its owner. A new leader does not know how
// late its predecessor acknowledged. Up to latenessKept its clock is behind by at least as much:
// stamps are set back by the worst lateness, and if the last entry granted leases the clock begins
// that much behind it (leaseClock.lead). What is later stands in the log before the reply: an entry of
// its own moves the deadlines in question, so a slow write lengthens its own leases and no others.
//
// If a key is gone, or another client has its name, the answer to a repeated request is that the reply
// is lost. Had the client been told in time and looked, it would have found the same; but told OK only
// now, it would count the lease from now.
//
// A leader that was stopped between evaluation and reply may have been replaced without knowing it. So
// a reply that is not given promptly needs another look at who leads (stillLeads). Before that no
// other leader can begin: voters wait for the heartbeat timeout, or for a process that is gone. At a
// handover another leader can begin at once, and then there is always that look.

// span is what a call that has asked for a lease has written.
type span struct {
	call       int
	begin, end store.Mark
}

// grants are the leases that a request was given.
type grants struct {
	seq  uint64 // by this write set
	at   int64  // asked for at this lease time
	list []grant
}

// grant is a lease that one of its calls was given.
type grant struct {
	call int
	key  store.LeasedKey
}

// granted returns the leases that r was given by write set seq.
func (r *request) granted(seq uint64, writes []byte) grants {
	g := grants{seq: seq, at: r.at, list: r.anew}
	for _, s := range r.spans {
		for _, k := range store.LeasedBetween(writes, s.begin, s.end) {
			g.list = append(g.list, grant{s.call, k})
		}
	}
	return g
}

// promptly is how soon after its evaluation a write is answered without another
// look at who leads: no other leader can begin so early after the majority took
// the entry, unless this one hands over. What is later is told to the next
// leader by an entry first; for what is not, it adds the worst to every lease.
const (
	promptly     = latenessKept * time.Millisecond
	latenessKept = 50
)

// batchSpread is for how long, in ms, a batch takes in requests: a lease counts as
// late from the beginning of its batch on, and is to be no longer than asked for.
const batchSpread = 20

func appendGrants(buf []byte, g grants) []byte {
	buf = binary.AppendUvarint(buf, g.seq)
	buf = binary.AppendUvarint(buf, uint64(g.at))
	buf = binary.AppendUvarint(buf, uint64(len(g.list)))
	for _, x := range g.list {
		buf = binary.AppendUvarint(buf, uint64(x.call))
		buf = binary.AppendUvarint(buf, uint64(x.key.DB))
		buf = appendStr(buf, x.key.Key)
		buf = binary.AppendUvarint(buf, uint64(x.key.Deadline))
	}
	return buf
}

// readGrants decodes what appendGrants wrote; the keys point into b. Of no
// bytes there are none: so it is for requests that were given no lease.
func readGrants(b []byte) (grants, error) {
	if len(b) == 0 {
		return grants{}, nil
	}
	r := fieldReader{b: b}
	g := grants{seq: r.uint64(), at: int64(r.uint64())}
	for n := r.count(); n > 0 && !r.bad; n-- {
		x := grant{call: r.int(), key: store.LeasedKey{DB: r.int(), Key: string(r.bytes()), Deadline: int64(r.uint64())}}
		r.bad = r.bad || x.key.DB >= store.Databases
		g.list = append(g.list, x)
	}
	if r.bad || len(r.b) > 0 {
		return grants{}, errFrame
	}
	return g, nil
}

// renew has leases that were granted before begin now, and takes back the replies
// to those calls whose leases are over.
func (r *request) renew(txn *store.Txn, g grants, replies []store.Reply) {
	txn.SetOrigin(0)
	for _, x := range g.list {
		until, alive := txn.Renew(x.key, g.seq, g.at)
		switch {
		case x.call >= len(replies):
		case alive:
			x.key.Deadline = until
			r.anew = append(r.anew, x)
		default:
			replies[x.call] = store.Err(ErrReplyLost)
		}
	}
}

// confirmCommand has the leases of a request that has been executed begin now.
// No client can call it: only nodes resolve its name.
var confirmCommand = &store.Command{Name: confirmName, Flags: store.Write}

const confirmName = "\x00confirm"

// confirm runs confirmCommand. The reply has OK or an error for each call up to
// the last with a lease.
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
	r.renew(txn, g, said.Elems)
	// In the answer that is kept, all that was granted is of this one call.
	for i := range r.anew {
		r.anew[i].call = 0
	}
	r.replies = append(r.replies, said)
}

// confirm returns the replies to a request that has been executed, when its
// leases begin now by whoever leads. since is the monotonic time of its evaluation.
func (n *Node) confirm(g grants, since time.Duration, replies []store.Reply) []store.Reply {
	left := since + n.cfg.FailoverWait - n.cfg.Time.Monotonic()
	calls := []Call{{Cmd: confirmCommand, Args: [][]byte{[]byte(confirmName), appendGrants(nil, g)}, RESP: 2, User: store.SystemUser}}
	said := n.submitWithin(left, nil, n.line.number(), nil, calls, nil)[0].Elems
	for _, x := range g.list {
		if x.call >= len(said) || said[x.call].IsError() {
			replies[x.call] = store.Err(ErrReplyLost)
		}
	}
	return replies
}

// overdue is a batch that was accepted so late that its leases have to be
// lengthened before it is answered.
type overdue struct {
	batch    *batch
	watchdog *time.Timer
	keys     []store.LeasedKey
	seq      uint64 // the write set that has set their deadlines …
	at       int64  // … to be counted from this lease time
}

// shift moves deadlines that a write set has set, by ms.
type shift struct {
	keys []store.LeasedKey
	seq  uint64
	ms   int64
}

// postpone takes account of how late a batch has been accepted, and reports
// whether it is too late to be answered now.
func (s *sequencer) postpone(b *batch, started store.Time, watchdog *time.Timer) bool {
	late := s.node.clock.now().Lease - started.Lease
	if b.finished.Load() {
		// It was prompt, or its watchdog has told its clients that nothing is known.
		late = min(late, latenessKept)
	}
	s.late.record(b.accepted, late)
	if late <= latenessKept {
		return false
	}
	o := &overdue{batch: b, watchdog: watchdog, seq: b.accepted, at: started.Lease}
	for _, r := range b.requests {
		for _, x := range r.granted(b.accepted, b.writes).list {
			o.keys = append(o.keys, x.key)
		}
	}
	if len(o.keys) == 0 {
		return false
	}
	s.overdue = o
	return true
}

// makeUp lengthens the leases of the batch that was postponed, by an entry, and
// answers it. If that entry is late, too, the disk is slow: then another one
// lengthens them in advance, by what both have taken at least, and what is too
// much is taken back by the entry that comes next. It returns false when
// leadership is gone: then the next leader is asked.
func (s *sequencer) makeUp(ctx context.Context) bool {
	o := s.overdue
	if o == nil {
		return true
	}
	s.overdue = nil
	defer o.watchdog.Stop()
	margin := int64(0)
	for late := s.node.clock.now().Lease - o.at; !o.batch.finished.Load(); {
		began, started := s.node.cfg.Time.Monotonic(), s.node.clock.now()
		if began-o.batch.began+time.Duration(margin)*time.Millisecond > s.node.cfg.FailoverWait {
			o.batch.finishLate(o.batch.accepted) // it would not be answered in time
			break
		}
		s.shift = shift{o.keys, o.seq, started.Lease - o.at + margin}
		b, entry, _ := s.evaluate(ctx, nil, started, true)
		b.began = began
		leads := s.propose(b, entry, started)
		if !leads || b.accepted == 0 {
			s.shift = shift{}
			o.batch.finishLate(o.batch.accepted)
			return leads
		}
		took := s.node.clock.now().Lease - started.Lease
		if took <= margin+latenessKept {
			o.batch.finish(nil)
		}
		s.late.record(b.accepted, took-margin)
		if took < margin {
			s.shift = shift{o.keys, b.accepted, took - margin}
		}
		o.seq, o.at = b.accepted, started.Lease+margin
		margin = max(2*margin, min(late, took))
	}
	return true
}

// moveDeadlines writes down what shift says.
func (s *sequencer) moveDeadlines(txn *store.Txn) {
	for _, k := range s.shift.keys {
		txn.Lengthen(k, s.shift.seq, s.shift.ms)
	}
}

package raftfsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-io/lockstep/store/codec"
)

// The answers make sure that a request which is sent again is executed only once.
//
// A node that forwards a client's write to the leader numbers the request (cluster/once.go). The entry
// with the writes of a request also holds the number of the request and the replies. Every node keeps
// the replies until the origin (the forwarding node) reports that it no longer waits for them, or until
// they are too old or too many (OriginLifetime, MaxOrigin, MaxAnswers). If the leader is lost, the origin sends
// the request again. The next leader finds the replies, and repeats them instead of executing the
// request again.
//
// The requests section of an entry; integers are unsigned varints unless a
// width is given:
//
//	+------------+----------------------------+------------+--------------------------------------------+
//	| n, origins | n times: origin | low      | m, answers | m times: index of origin | id - low | bytes |
//	|            |          8 bytes| varint   |            |                                            |
//	+------------+----------------------------+------------+--------------------------------------------+

// Answer holds the replies to a request whose writes are in the same entry.
type Answer struct {
	Origin  uint64 // random number that the forwarding node drew when it started
	ID      uint64 // number of the request, counted by the origin
	Low     uint64 // replies to requests with lower numbers are dropped: the origin no longer waits, or they take too much memory (Due)
	Replies []byte // the replies, as the proposer has encoded them
}

// OriginLifetime, in ms on the lease clock, is how long the replies to an idle origin are kept. No running node waits that long.
const OriginLifetime = 10 * 60 * 1000

// originMemory, in ms on the lease clock, is how long nodes remember up to which number an idle origin's replies were dropped.
const originMemory = 100 * 24 * 60 * 60 * 1000

// MaxOrigin limits the bytes of memory for the answers to one origin. Otherwise, one request that waits for long would keep all later
// answers.
const MaxOrigin = 8 << 20

// MaxAnswers is how many bytes of memory all answers may take. Beyond that, the answers to the longest idle origin are dropped.
const MaxAnswers = 4 * MaxOrigin

// answerTakes is roughly how many bytes of memory an answer takes besides its replies.
const answerTakes = 128

// AppendAnswers appends the requests section of an entry to buf.
func AppendAnswers(buf []byte, list []Answer) []byte {
	if len(list) == 0 {
		return buf
	}
	var groups []answerGroup
	index := func(a Answer) int {
		return slices.IndexFunc(groups, func(g answerGroup) bool { return g.origin == a.Origin && g.late == (a.ID < a.Low) })
	}
	for _, a := range list {
		if i := index(a); i < 0 {
			groups = append(groups, answerGroup{a.Origin, a.ID < a.Low, a.Low})
		} else {
			groups[i].low = max(groups[i].low, a.Low)
		}
	}
	// An ID is encoded as its distance from the field low of its group, so the field must not exceed any ID.
	for _, a := range list {
		g := &groups[index(a)]
		g.low = min(g.low, a.ID)
	}
	buf = binary.AppendUvarint(buf, uint64(len(groups)))
	for _, g := range groups {
		buf = binary.BigEndian.AppendUint64(buf, g.origin)
		buf = binary.AppendUvarint(buf, g.low)
	}
	buf = binary.AppendUvarint(buf, uint64(len(list)))
	for _, a := range list {
		i := index(a)
		buf = binary.AppendUvarint(buf, uint64(i))
		buf = binary.AppendUvarint(buf, a.ID-groups[i].low)
		buf = codec.AppendStr(buf, a.Replies)
	}
	return buf
}

// answerGroup is a group of answers to one origin with one field low. Answers whose Low exceeds their ID (late) would lower the field.
type answerGroup struct {
	origin uint64
	late   bool
	low    uint64
}

// readAnswers decodes the requests section. The replies point into b.
func readAnswers(b []byte) ([]Answer, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := codec.Reader{B: b}
	origins := make([]Answer, r.Count(9))
	for i := range origins {
		origins[i].Origin = r.Fixed()
		origins[i].Low = r.Uvarint()
	}
	list := make([]Answer, r.Count(3))
	for i := range list {
		at := r.Uvarint()
		if at >= uint64(len(origins)) {
			r.Bad = true
			break
		}
		list[i] = origins[at]
		list[i].ID = list[i].Low + r.Uvarint()
		list[i].Replies = r.Bytes()
	}
	if r.Bad || len(r.B) > 0 {
		return nil, fmt.Errorf("%w: the requests of an entry", ErrCorrupt)
	}
	return list, nil
}

// Answers is the table of the replies that origins may still ask for. It is part of the replicated state.
type Answers struct {
	origins map[uint64]*origin
	count   int // number of all answers
	size    int // bytes of all replies
}

// takes returns roughly how many bytes of memory the answers take.
func (t *Answers) takes() int { return t.size + answerTakes*t.count }

type origin struct {
	low     uint64 // the answers to requests below this number were dropped
	last    int64  // lease stamp of the origin's last answer
	replies map[uint64][]byte
	bytes   int    // bytes of all replies
	due     uint64 // the result of Due; it follows from the other fields, so no snapshot contains it
}

// takes returns roughly how many bytes of memory the answers to o take.
func (o *origin) takes() int { return o.bytes + answerTakes*len(o.replies) }

// keep stores the replies to a request.
func (t *Answers) keep(o *origin, id uint64, reply []byte) {
	old, had := o.replies[id]
	if !had {
		t.count++
	}
	o.replies[id] = reply
	o.bytes += len(reply) - len(old)
	t.size += len(reply) - len(old)
}

// drop removes the replies to a request, if there are any.
func (t *Answers) drop(o *origin, id uint64) {
	if old, had := o.replies[id]; had {
		t.count--
		o.bytes -= len(old)
		t.size -= len(old)
		delete(o.replies, id)
	}
}

// tooMany sets due if the answers take more than MaxOrigin. From due on, the answers take at most half of MaxOrigin, or are only one.
func (o *origin) tooMany() {
	if o.takes() <= MaxOrigin || o.due > o.low {
		return
	}
	left := o.takes()
	for _, id := range slices.Sorted(maps.Keys(o.replies)) {
		if o.due = id; left <= MaxOrigin/2 {
			return
		}
		left -= answerTakes + len(o.replies[id])
	}
}

// Due returns a number below which an origin's answers must be dropped to save memory. The leader logs the number as a later Low.
func (t *Answers) Due(from uint64) uint64 {
	if o := t.origins[from]; o != nil {
		return o.due
	}
	return 0
}

// Size returns the total bytes of the kept replies.
func (t *Answers) Size() int { return t.size }

// SizeOf returns the bytes of the replies that are kept for an origin.
func (t *Answers) SizeOf(from uint64) int {
	if o := t.origins[from]; o != nil {
		return o.bytes
	}
	return 0
}

// Lookup returns the replies to a request. A request without replies may still have been executed, if it wrote nothing or Forgotten is
// true.
func (t *Answers) Lookup(from, id uint64) (replies []byte, executed bool) {
	if o := t.origins[from]; o != nil {
		replies, executed = o.replies[id]
	}
	return replies, executed
}

// add adds the answers of an entry and drops outdated ones. The arguments before and lease are the lease stamps before and after the
// entry.
func (t *Answers) add(list []Answer, before, lease int64) {
	if before/sweepEvery != lease/sweepEvery {
		t.sweep(lease)
	}
	if t.origins == nil {
		t.origins = map[uint64]*origin{}
	}
	for _, a := range list {
		o := t.origins[a.Origin]
		if o == nil {
			o = &origin{replies: map[uint64][]byte{}}
			t.origins[a.Origin] = o
		}
		t.forget(o, a.Low)
		o.last = lease
		if a.ID < o.low {
			continue // the origin no longer waits for this answer, or the leader drops all answers below low
		}
		// Each reply is copied on its own: a slice of the entry, or of one copy of several replies, would keep all of it in memory.
		t.keep(o, a.ID, bytes.Clone(a.Replies))
		o.tooMany()
	}
	for t.takes() > MaxAnswers {
		o := t.oldest()
		if o == nil {
			return
		}
		t.forgetAll(o)
	}
}

// sweepEvery is the interval between sweeps, in ms on the lease clock, so that every node sweeps at the same entry.
const sweepEvery = 1000

// sweep drops the replies to origins idle for longer than OriginLifetime, and the origins idle for longer than originMemory.
func (t *Answers) sweep(lease int64) {
	for _, o := range t.origins {
		if lease-o.last > OriginLifetime {
			t.forgetAll(o)
		}
	}
	maps.DeleteFunc(t.origins, func(_ uint64, o *origin) bool { return lease-o.last > originMemory })
}

// oldest returns, of the origins with replies, the one that has been idle for longest.
func (t *Answers) oldest() (found *origin) {
	first := uint64(0)
	for name, o := range t.origins {
		if len(o.replies) > 0 && (found == nil || o.last < found.last || o.last == found.last && name < first) {
			found, first = o, name
		}
	}
	return found
}

// forgetAll drops all replies to an origin.
func (t *Answers) forgetAll(o *origin) {
	if len(o.replies) == 0 {
		return
	}
	last := slices.Max(slices.Collect(maps.Keys(o.replies)))
	t.forget(o, last)
	t.drop(o, last)
	o.low = max(o.low, last+1) // last+1 is 0 if last is the largest number
}

// Forgotten reports whether the state may have dropped the replies to a request. Then nobody knows whether the request was executed.
func (t *Answers) Forgotten(from, id uint64) bool {
	o := t.origins[from]
	return o != nil && id < o.low
}

// forget drops the replies to an origin's requests with numbers below low.
func (t *Answers) forget(o *origin, low uint64) {
	if low <= o.low {
		return
	}
	if low-o.low > uint64(len(o.replies)) {
		for id := range o.replies {
			if id < low {
				t.drop(o, id)
			}
		}
	} else {
		for id := o.low; id < low; id++ {
			t.drop(o, id)
		}
	}
	o.low = low
}

// clone returns a copy that stays as it is while t changes.
func (t *Answers) clone() *Answers {
	c := &Answers{origins: make(map[uint64]*origin, len(t.origins)), count: t.count, size: t.size}
	for name, o := range t.origins {
		same := *o
		if same.replies = nil; len(o.replies) > 0 {
			same.replies = maps.Clone(o.replies)
		}
		c.origins[name] = &same
	}
	return c
}

// append encodes the answers for a snapshot:
//
//	n, n times: origin (8 bytes) | low | last | m, m times: id | bytes
//
// in order of origin and id, so equal states have equal bytes.
func (t *Answers) append(buf []byte) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(t.origins)))
	for _, name := range slices.Sorted(maps.Keys(t.origins)) {
		o := t.origins[name]
		buf = binary.BigEndian.AppendUint64(buf, name)
		buf = binary.AppendUvarint(buf, o.low)
		buf = binary.AppendUvarint(buf, uint64(o.last))
		buf = binary.AppendUvarint(buf, uint64(len(o.replies)))
		for _, id := range slices.Sorted(maps.Keys(o.replies)) {
			buf = binary.AppendUvarint(buf, id)
			buf = codec.AppendStr(buf, o.replies[id])
		}
	}
	return buf
}

// read replaces t by what append has encoded. Origins and requests must be in ascending order, so that none comes twice.
func (t *Answers) read(r *codec.Stream, lease int64) {
	t.origins, t.count, t.size = map[uint64]*origin{}, 0, 0
	last := uint64(0)
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		name := r.Fixed()
		o := t.readOrigin(r)
		if r.Err == nil && (len(t.origins) > 0 && name <= last || o.last < 0 || o.last > lease) {
			r.Err = fmt.Errorf("the answers to origin %x are behind those to %x, or of lease stamp %d", name, last, o.last)
		}
		last, t.origins[name] = name, o
	}
}

// readOrigin decodes the answers to an origin.
func (t *Answers) readOrigin(r *codec.Stream) *origin {
	o := &origin{low: r.Uvarint(), last: int64(r.Uvarint()), replies: map[uint64][]byte{}}
	last := uint64(0)
	for m := r.Uvarint(); m > 0 && r.Err == nil; m-- {
		id := r.Uvarint()
		if r.Err == nil && (id < o.low || len(o.replies) > 0 && id <= last) {
			r.Err = fmt.Errorf("the answer to request %d is behind that to %d, or below %d", id, last, o.low)
			break
		}
		last = id
		t.keep(o, id, r.Bytes())
	}
	o.tooMany()
	return o
}

// skimAnswers reads what append has encoded, and keeps nothing of it.
func skimAnswers(r *codec.Stream) {
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		r.Fixed()
		r.Uvarint()
		r.Uvarint()
		for m := r.Uvarint(); m > 0 && r.Err == nil; m-- {
			r.Uvarint()
			r.Skip()
		}
	}
}

package raftfsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Answers: what makes a request that is sent again be executed once.
//
// A node that carries a client's write to the leader numbers it. The entry in
// which it takes effect holds the number and the replies; every node keeps them
// until the origin says that it waits for them no more. So if the leader is
// lost, the origin sends the request again, and the next leader knows what to
// answer without executing it.
//
// The requests section of an entry; integers are unsigned varints unless a
// width is given:
//
//	+------------+----------------------------+------------+--------------------------------------------+
//	| n, origins | n times: origin | low      | m, answers | m times: index of origin | id - low | bytes |
//	|            |          8 bytes| varint   |            |                                            |
//	+------------+----------------------------+------------+--------------------------------------------+

// Answer is a request that an entry executes.
type Answer struct {
	Origin  uint64 // random number of the run of the node that sent it
	ID      uint64 // its number there
	Low     uint64 // the origin waits for nothing below this
	Replies []byte // as the proposer has encoded them
}

// OriginLifetime is how long, in ms on the lease clock, the replies to an origin are
// kept that executes nothing: longer than any node that runs may wait for one.
const OriginLifetime = 10 * 60 * 1000

// originMemory is how long, in ms on the lease clock, it is remembered of an origin
// up to where its replies have been forgotten.
const originMemory = 100 * 24 * 60 * 60 * 1000

// AppendAnswers encodes the requests section of an entry.
func AppendAnswers(buf []byte, list []Answer) []byte {
	if len(list) == 0 {
		return buf
	}
	var origins []Answer // the first of each
	index := func(origin uint64) int {
		return slices.IndexFunc(origins, func(a Answer) bool { return a.Origin == origin })
	}
	for _, a := range list {
		if i := index(a.Origin); i < 0 {
			origins = append(origins, a)
		} else {
			origins[i].Low = max(origins[i].Low, a.Low)
		}
	}
	// What has been waited for when it was sent is waited for at most until now.
	for _, a := range list {
		at := &origins[index(a.Origin)]
		at.Low = min(at.Low, a.ID)
	}
	buf = binary.AppendUvarint(buf, uint64(len(origins)))
	for _, o := range origins {
		buf = binary.BigEndian.AppendUint64(buf, o.Origin)
		buf = binary.AppendUvarint(buf, o.Low)
	}
	buf = binary.AppendUvarint(buf, uint64(len(list)))
	for _, a := range list {
		i := index(a.Origin)
		buf = binary.AppendUvarint(buf, uint64(i))
		buf = binary.AppendUvarint(buf, a.ID-origins[i].Low)
		buf = binary.AppendUvarint(buf, uint64(len(a.Replies)))
		buf = append(buf, a.Replies...)
	}
	return buf
}

// readAnswers decodes the requests section. The replies point into b.
func readAnswers(b []byte) ([]Answer, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := sectionReader{b: b}
	origins := make([]Answer, r.count(9))
	for i := range origins {
		origins[i].Origin = r.fixed()
		origins[i].Low = r.uvarint()
	}
	list := make([]Answer, r.count(3))
	for i := range list {
		at := r.uvarint()
		if at >= uint64(len(origins)) {
			r.bad = true
			break
		}
		list[i] = origins[at]
		list[i].ID = list[i].Low + r.uvarint()
		list[i].Replies = r.bytes()
	}
	if r.bad || len(r.b) > 0 {
		return nil, fmt.Errorf("%w: the requests of an entry", ErrCorrupt)
	}
	return list, nil
}

// sectionReader reads fields; the first fault sticks.
type sectionReader struct {
	b   []byte
	bad bool
}

func (r *sectionReader) uvarint() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

// count is a number of things of so many bytes at least.
func (r *sectionReader) count(least int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/least) {
		r.bad, r.b = true, nil
		return 0
	}
	return int(n)
}

func (r *sectionReader) fixed() uint64 {
	if len(r.b) < 8 {
		r.bad, r.b = true, nil
		return 0
	}
	n := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return n
}

func (r *sectionReader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}

// Answers is the table of what origins may still ask about. It is part of the
// state: all nodes hold the same.
type Answers struct {
	origins map[uint64]*origin
	size    int // bytes of all replies
}

// largeAnswer is from how many bytes on replies have memory of their own: they are not to be kept
// by a small one that its origin still waits for.
const largeAnswer = 512

type origin struct {
	low     uint64
	last    int64 // lease stamp of the last entry with an answer to it
	replies map[uint64][]byte
}

// Size is how many bytes the replies have that are kept.
func (t *Answers) Size() int { return t.size }

// Lookup returns the replies to a request that has been executed.
func (t *Answers) Lookup(from, id uint64) (replies []byte, executed bool) {
	if o := t.origins[from]; o != nil {
		replies, executed = o.replies[id]
	}
	return replies, executed
}

// add takes in the answers of an entry with a lease stamp, and forgets what
// nobody waits for.
func (t *Answers) add(list []Answer, lease int64) {
	if len(list) == 0 {
		return
	}
	if t.origins == nil {
		t.origins = map[uint64]*origin{}
	}
	size := 0
	for _, a := range list {
		if len(a.Replies) <= largeAnswer {
			size += len(a.Replies)
		}
	}
	// Small ones in one piece of memory; the entry's own would keep its write set alive.
	kept := make([]byte, 0, size)
	for _, a := range list {
		o := t.origins[a.Origin]
		if o == nil {
			o = &origin{replies: map[uint64][]byte{}}
			t.origins[a.Origin] = o
		}
		t.forget(o, a.Low)
		o.last = lease
		if a.ID < o.low {
			continue // its origin has given it up meanwhile
		}
		t.size += len(a.Replies) - len(o.replies[a.ID])
		if len(a.Replies) > largeAnswer {
			o.replies[a.ID] = bytes.Clone(a.Replies)
			continue
		}
		from := len(kept)
		kept = append(kept, a.Replies...)
		o.replies[a.ID] = kept[from:len(kept):len(kept)]
	}
	for _, o := range t.origins {
		if lease-o.last > OriginLifetime && len(o.replies) > 0 {
			t.forget(o, slices.Max(slices.Collect(maps.Keys(o.replies)))+1)
		}
	}
	maps.DeleteFunc(t.origins, func(_ uint64, o *origin) bool { return lease-o.last > originMemory })
}

// Forgotten reports whether a request that its origin still asks for may have been
// executed so long ago that its replies are gone. The origin's machine was suspended.
func (t *Answers) Forgotten(from, id uint64) bool {
	o := t.origins[from]
	return o != nil && id < o.low
}

// forget drops the replies to an origin below low.
func (t *Answers) forget(o *origin, low uint64) {
	if low <= o.low {
		return
	}
	if low-o.low > uint64(len(o.replies)) {
		maps.DeleteFunc(o.replies, func(id uint64, r []byte) bool {
			if id < low {
				t.size -= len(r)
			}
			return id < low
		})
	} else {
		for id := o.low; id < low; id++ {
			t.size -= len(o.replies[id])
			delete(o.replies, id)
		}
	}
	o.low = low
}

// The answers in a snapshot:
//
//	n, n times: origin (8 bytes) | low | last | m, m times: id | bytes
//
// in order of origin and id: equal states have equal bytes.
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
			buf = binary.AppendUvarint(buf, uint64(len(o.replies[id])))
			buf = append(buf, o.replies[id]...)
		}
	}
	return buf
}

// read decodes append's bytes.
func (t *Answers) read(r *fieldStream) {
	t.origins, t.size = map[uint64]*origin{}, 0
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		name := r.fixed()
		o := &origin{low: r.uvarint(), last: int64(r.uvarint()), replies: map[uint64][]byte{}}
		for m := r.uvarint(); m > 0 && r.err == nil; m-- {
			id := r.uvarint()
			o.replies[id] = r.bytes()
			t.size += len(o.replies[id])
		}
		t.origins[name] = o
	}
}

package raftfsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"lockstep/store/codec"
)

// The answers make sure that a request which is sent again is executed only once.
//
// A node that forwards a client's write to the leader gives it a number. The entry that executes
// the request holds the number and the replies. Every node keeps the replies until the origin, the
// forwarding node, reports that it no longer waits for them. If the leader is lost, the origin
// sends the request again, and the next leader has the replies and does not execute the request
// again.
//
// The requests section of an entry; integers are unsigned varints unless a
// width is given:
//
//	+------------+----------------------------+------------+--------------------------------------------+
//	| n, origins | n times: origin | low      | m, answers | m times: index of origin | id - low | bytes |
//	|            |          8 bytes| varint   |            |                                            |
//	+------------+----------------------------+------------+--------------------------------------------+

// Answer is a request that an entry executes, with its replies.
type Answer struct {
	Origin  uint64 // random number of the sending node's run
	ID      uint64 // number of the request in that run
	Low     uint64 // the origin no longer waits for requests below this number
	Replies []byte // as encoded by the proposer
}

// OriginLifetime is how long, in ms on the lease clock, the replies to an idle origin are kept. It
// is longer than any running node waits for a reply.
const OriginLifetime = 10 * 60 * 1000

// originMemory is how long, in ms on the lease clock, an idle origin stays in the table, so that
// nodes know up to which number its replies were dropped.
const originMemory = 100 * 24 * 60 * 60 * 1000

// AppendAnswers encodes the requests section of an entry.
func AppendAnswers(buf []byte, list []Answer) []byte {
	if len(list) == 0 {
		return buf
	}
	var origins []Answer // the first answer of each origin
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
	// IDs are encoded relative to Low, so Low must not exceed any ID of this entry. A larger Low
	// comes with a later request, at which the origin no longer waited for the earlier one.
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
		buf = codec.AppendStr(buf, a.Replies)
	}
	return buf
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

// Answers is the table of the replies that origins may still ask for. It is part of the state, so
// it is the same on all nodes.
type Answers struct {
	origins map[uint64]*origin
	size    int // bytes of all replies
}

// largeAnswer is the length above which replies get their own memory: otherwise a small reply that
// its origin still waits for would keep a large one in memory.
const largeAnswer = 512

type origin struct {
	low     uint64
	last    int64 // lease stamp of the origin's last answer
	replies map[uint64][]byte
}

// Size returns the total bytes of the kept replies.
func (t *Answers) Size() int { return t.size }

// Lookup returns the replies to a request if it was executed.
func (t *Answers) Lookup(from, id uint64) (replies []byte, executed bool) {
	if o := t.origins[from]; o != nil {
		replies, executed = o.replies[id]
	}
	return replies, executed
}

// add adds the answers of an entry with a lease stamp, and drops the replies that no origin waits
// for.
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
	// Small replies share one copy. A reference to the entry would keep its write set in memory.
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
			continue // its origin no longer waits for it
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

// Forgotten reports whether the replies to a request may already be dropped. The request may have
// been executed long ago; its origin asks late, for example after its machine was suspended.
func (t *Answers) Forgotten(from, id uint64) bool {
	o := t.origins[from]
	return o != nil && id < o.low
}

// forget drops the replies to an origin's requests below low.
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

// read decodes the bytes of append.
func (t *Answers) read(r *codec.Stream) {
	t.origins, t.size = map[uint64]*origin{}, 0
	for n := r.Uvarint(); n > 0 && r.Err == nil; n-- {
		name := r.Fixed()
		o := &origin{low: r.Uvarint(), last: int64(r.Uvarint()), replies: map[uint64][]byte{}}
		for m := r.Uvarint(); m > 0 && r.Err == nil; m-- {
			id := r.Uvarint()
			o.replies[id] = r.Bytes()
			t.size += len(o.replies[id])
		}
		t.origins[name] = o
	}
}

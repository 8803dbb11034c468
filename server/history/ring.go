package history

import (
	"encoding/binary"

	"lockstep/store"
	"lockstep/store/codec"
)

// ring keeps the latest events in encoded form: they are many, and the garbage collector would look at each.
//
// Readers read a block without a lock: what has been written to a block does not change, and a block is dropped as a whole.
type ring struct {
	blocks [][]byte // the oldest first
	first  uint64   // number of the first block, from 1
	most   int      // how many blocks are kept
	gone   *Event   // stands for the dropped events, with the place and the time of the last one; nil: none was dropped
}

// blockSize is the size of a block in bytes. An event with the longest names has less than 8 KB.
const blockSize = 64 << 10

func newRing(bytes int) ring { return ring{first: 1, most: max(bytes/blockSize, 2)} }

func (r *ring) add(e *Event) {
	n := len(r.blocks) - 1
	if n < 0 || cap(r.blocks[n])-len(r.blocks[n]) < e.size() {
		r.blocks = append(r.blocks, make([]byte, 0, max(blockSize, e.size())))
		n++
	}
	r.blocks[n] = e.append(r.blocks[n])
	if len(r.blocks) > r.most {
		var last Event
		for b := r.blocks[0]; len(b) > 0; {
			b = last.read(b)
		}
		r.gone = &Event{LockEvent: store.LockEvent{How: store.LockGap, Reason: "older events are not kept"}, Seq: last.Seq, At: last.At, Lease: last.Lease}
		r.blocks[0] = nil
		r.blocks, r.first = r.blocks[1:], r.first+1
	}
}

// view returns all blocks, and a gap if some were dropped.
func (r *ring) view() (blocks [][]byte, dropped *Event) {
	return append(blocks, r.blocks...), r.gone
}

// from returns the rest of the block in which a cursor is, or the next block.
func (r *ring) from(c Cursor) (rest []byte, next Cursor, dropped *Event) {
	if c.block < r.first {
		dropped = r.gone
		c = Cursor{block: r.first}
	}
	i := int(c.block - r.first)
	if i+1 < len(r.blocks) && c.at == len(r.blocks[i]) {
		c, i = Cursor{block: c.block + 1}, i+1
	}
	if i < len(r.blocks) {
		rest = r.blocks[i][c.at:]
		c.at = len(r.blocks[i])
	}
	return rest, c, dropped
}

// size returns at least the number of bytes that append adds.
func (e *Event) size() int {
	const numbers = 12
	return numbers*binary.MaxVarintLen64 + 5*binary.MaxVarintLen32 + len(e.Key) + len(e.Kind) + len(e.Owner) + len(e.User) + len(e.Reason)
}

func (e *Event) append(b []byte) []byte {
	b = append(b, byte(e.How), byte(e.DB))
	for _, n := range [...]uint64{e.Seq, uint64(e.At), uint64(e.Lease), e.Token, uint64(e.Holds), uint64(e.Permits), uint64(e.Limit), uint64(e.Deadline), e.Client} {
		b = binary.AppendUvarint(b, n)
	}
	for _, s := range [...]string{e.Key, e.Kind, e.Owner, e.User, e.Reason} {
		b = codec.AppendStr(b, s)
	}
	return b
}

// read decodes what append has encoded, and returns the rest. The names are valid as long as the bytes.
func (e *Event) read(b []byte) []byte {
	r := codec.Reader{B: b}
	e.How, e.DB = store.LockHow(r.Byte()), int(r.Byte())
	e.Seq, e.At, e.Lease, e.Token = r.Uvarint(), int64(r.Uvarint()), int64(r.Uvarint()), r.Uvarint()
	e.Holds, e.Permits, e.Limit, e.Deadline = int64(r.Uvarint()), int64(r.Uvarint()), int64(r.Uvarint()), int64(r.Uvarint())
	e.Client = r.Uvarint()
	e.Key, e.Kind, e.Owner, e.User, e.Reason = r.Str(), r.Str(), r.Str(), r.Str(), r.Str()
	return r.B
}

package history

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/codec"
)

// ring keeps the latest events in encoded form: they are many, and the garbage collector would look at each.
//
// Readers read a block without a lock: what has been written to a block does not change, and a block is dropped as a whole.
type ring struct {
	blocks [][]byte  // the oldest first
	names  []*filter // of each block
	first  uint64    // number of the first block, from 1
	most   int       // how many blocks are kept
	gone   *Event    // stands for the dropped events, with the place and the time of the last one; nil: none was dropped
}

// filter says which keys the events of a block may have, so that a reader of one lock need not decode all blocks.
type filter struct {
	bits [filterBits / 64]uint64
	last uint64 // the number of the block's last write set
}

// filterBits is the size of a filter. A block has about a thousand events, so of sixteen blocks without a key one is decoded.
const filterBits = 16 << 10

// seed makes the places of a filter unknown to clients, who choose the keys.
var seed = maphash.MakeSeed()

// place returns the bit of a filter that stands for a key.
func place(key string) uint64 { return maphash.String(seed, key) % filterBits }

// note lets the filter know of an event. An event of no lock concerns every key.
func (f *filter) note(e *Event) {
	f.last = e.Seq
	if e.Kind == "" {
		for i := range f.bits {
			f.bits[i] = ^uint64(0)
		}
		return
	}
	at := place(e.Key)
	f.bits[at/64] |= 1 << (at % 64)
}

// may reports whether there may be an event of a key. A nil filter does not know.
func (f *filter) may(key string) bool {
	if f == nil {
		return true
	}
	at := place(key)
	return f.bits[at/64]&(1<<(at%64)) != 0
}

// blockSize is the size of a block in bytes. An event with the longest names has less than 8 KB.
const blockSize = 64 << 10

func newRing(bytes int) ring { return ring{first: 1, most: max(bytes/blockSize, 2)} }

func (r *ring) add(e *Event) {
	n := len(r.blocks) - 1
	if n < 0 || cap(r.blocks[n])-len(r.blocks[n]) < e.size() {
		r.blocks, r.names = append(r.blocks, make([]byte, 0, max(blockSize, e.size()))), append(r.names, new(filter))
		n++
	}
	r.blocks[n] = e.append(r.blocks[n])
	r.names[n].note(e)
	if len(r.blocks) > r.most {
		var last Event
		for b := r.blocks[0]; len(b) > 0; {
			b = last.read(b)
		}
		r.gone = &Event{LockEvent: store.LockEvent{How: store.LockGap, Reason: "older events are not kept"}, Seq: last.Seq, At: last.At, Lease: last.Lease}
		r.blocks[0], r.names[0] = nil, nil
		r.blocks, r.names, r.first = r.blocks[1:], r.names[1:], r.first+1
	}
}

// view returns all blocks, and a gap if some were dropped.
func (r *ring) view() View {
	v := View{blocks: append([][]byte(nil), r.blocks...), names: append([]*filter(nil), r.names...), dropped: r.gone}
	if n := len(v.names); n > 0 {
		v.names[n-1] = nil // it still changes
	}
	return v
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

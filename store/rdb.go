package store

import (
	"bytes"
	"encoding/binary"
	"hash/crc64"
	"math"
	"strings"

	"github.com/lockstep-io/lockstep/store/internal/packed"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// The serialized form of a value, as DUMP returns it: a type byte, the value
// in the format of Redis's RDB files, then
//
//	+----------------------+------------------------------------------+
//	| uint16 LE: version   | uint64 LE: CRC of all bytes before it    |
//	+----------------------+------------------------------------------+
//
// A string has its length in front, or is an integer or compressed:
//
//	00llllll              length           11000000 int8 follows
//	01llllll +1 byte      length           11000001 int16 LE
//	10000000 uint32 BE    length           11000010 int32 LE
//	10000001 uint64 BE    length           11000011 LZF: length of the data, length of the string, data
const (
	rdbVersion = 10 // the version that Redis 7.0 writes
	rdbFooter  = 10 // bytes of version and checksum

	rdbString       = 0
	rdbList         = 1
	rdbSet          = 2
	rdbSortedSet    = 3
	rdbHash         = 4
	rdbSortedSet2   = 5
	rdbIntset       = 11
	rdbHashPack     = 16
	rdbSortedPack   = 17
	rdbQuicklist2   = 18
	rdbPlainNode    = 1
	rdbPackedNode   = 2
	rdbEncodedInt8  = 0xc0
	rdbEncodedInt16 = 0xc1
	rdbEncodedInt32 = 0xc2
	rdbEncodedLZF   = 0xc3

	rdbCompressFrom  = 21   // bytes of the shortest string that is compressed
	quicklistNode    = 8192 // bytes in a node of a list
	quicklistPadding = 8    // bytes that Redis adds for each element

	rdbListHead     = 10  // the most bytes before the first node of a list: the type and the number of nodes
	rdbCompressWork = 128 // steps (see Ctx.work) of a compression in addition to those for the length of the string
)

// crcTable is the table of Jones's CRC-64, which Redis uses.
var crcTable = crc64.MakeTable(0x95ac9329ac4bc9b5)

// rdbChecksum computes Redis's CRC, which has no initial and final inversion. Go's package has
// both, and rdbChecksum undoes them.
func rdbChecksum(b []byte) uint64 { return ^crc64.Update(math.MaxUint64, crcTable, b) }

// rdbWriter builds a serialized value. It does not append a string that would make the value larger than a reply may be.
type rdbWriter struct {
	c     *Ctx
	b     []byte
	skip  int           // number of unused bytes at the beginning of b
	over  bool          // true if there was no room for a string
	table *packed.Table // allocated at the first use
}

// newRDBWriter returns a writer with room for size bytes, at most for the largest reply. A buffer that grows would take twice the memory.
func newRDBWriter(c *Ctx, size int64) *rdbWriter {
	return &rdbWriter{c: c, b: make([]byte, 0, min(size, c.MaxReply())+64)}
}

// room returns an upper limit for the bytes that may follow: bytes at the start of b may turn out unused (skip).
func (w *rdbWriter) room() int { return int(w.c.MaxReply()) + rdbListHead - len(w.b) }

// full reports whether the result is certain to be too large for a reply; finish decides.
func (w *rdbWriter) full() bool { return w.over || w.room() < 0 }

// bytes appends a string without its length, if there is room for the string.
func (w *rdbWriter) bytes(s string) {
	if w.over = w.over || len(s) > w.room(); !w.over {
		w.b = append(w.b, s...)
	}
}

// finish appends version and checksum. ok is false if the result is too large for a reply.
func (w *rdbWriter) finish() (dump string, ok bool) {
	b := binary.LittleEndian.AppendUint16(w.b[w.skip:], rdbVersion)
	if w.full() || int64(len(b)+8) > w.c.MaxReply() {
		return "", false
	}
	b = binary.LittleEndian.AppendUint64(b, rdbChecksum(b))
	if cap(b) > 2*len(b) { // compression has left most of the buffer unused
		b = bytes.Clone(b)
	}
	return bytesToString(b), true
}

func (w *rdbWriter) length(n int) {
	switch {
	case n < 1<<6:
		w.b = append(w.b, byte(n))
	case n < 1<<14:
		w.b = append(w.b, 0x40|byte(n>>8), byte(n))
	case n <= math.MaxUint32:
		w.b = binary.BigEndian.AppendUint32(append(w.b, 0x80), uint32(n))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, 0x81), uint64(n))
	}
}

func (w *rdbWriter) string(s string) {
	w.c.work(stepsOf(s))
	if n, ok := redistext.ParseInt(stringBytes(s)); ok && n == int64(int32(n)) {
		switch {
		case n == int64(int8(n)):
			w.b = append(w.b, rdbEncodedInt8, byte(n))
		case n == int64(int16(n)):
			w.b = append(w.b, rdbEncodedInt16, byte(n), byte(n>>8))
		default:
			w.b = binary.LittleEndian.AppendUint32(append(w.b, rdbEncodedInt32), uint32(n))
		}
		return
	}
	if len(s) >= rdbCompressFrom {
		if w.table == nil {
			w.table = new(packed.Table)
		}
		w.c.work(rdbCompressWork)
		if packed, ok := packed.Compress(stringBytes(s), w.table, max(w.room(), 0)); ok {
			w.b = append(w.b, rdbEncodedLZF)
			w.length(len(packed))
			w.length(len(s))
			w.bytes(bytesToString(packed))
			return
		}
	}
	w.length(len(s))
	w.bytes(s)
}

func (w *rdbWriter) pack(p *packed.List) { w.string(bytesToString(p.Bytes())) }

// dump returns the serialized form of a key's value. ok is false if it is too large for a reply.
func (e *Entry) dump(c *Ctx) (dump string, ok bool) {
	w := newRDBWriter(c, e.size())
	switch v := e.collection().(type) {
	case *Hash:
		w.hash(v)
	case *Deque:
		w.list(v)
	case *MemberSet:
		w.set(v)
	case *SortedSet:
		w.sortedSet(v)
	default:
		w.b = append(w.b, rdbString)
		w.string(e.str)
	}
	return w.finish()
}

func (w *rdbWriter) hash(h *Hash) {
	if h.Compact() {
		p := packed.NewList()
		h.Each(func(f Field) bool {
			w.c.work(stepsOf(f.Name) + stepsOf(f.Value))
			p.Add(f.Name)
			p.Add(f.Value)
			return true
		})
		w.b = append(w.b, rdbHashPack)
		w.pack(p)
		return
	}
	w.b = append(w.b, rdbHash)
	w.length(h.Len())
	h.Each(func(f Field) bool {
		w.string(f.Name)
		w.string(f.Value)
		return !w.full()
	})
}

// list writes a list in the nodes that Redis makes when all elements are pushed at the tail.
func (w *rdbWriter) list(l *Deque) {
	w.b = append(w.b, make([]byte, rdbListHead)...)
	nodes, p := 0, packed.NewList()
	end := func() {
		nodes++
		w.length(rdbPackedNode)
		w.pack(p)
		p.Reset()
	}
	l.Each(0, func(value string) bool {
		w.c.work(stepsOf(value))
		if p.Len() > 0 && p.Size()+len(value)+quicklistPadding > quicklistNode {
			end()
		}
		p.Add(value)
		return !w.full()
	})
	end()
	head := rdbWriter{b: []byte{rdbQuicklist2}}
	head.length(nodes)
	w.skip = rdbListHead - len(head.b)
	copy(w.b[w.skip:], head.b)
}

func (w *rdbWriter) set(s *MemberSet) {
	if s.Compact() {
		w.b = append(w.b, rdbIntset)
		w.string(bytesToString(intset(s.ints)))
		return
	}
	w.b = append(w.b, rdbSet)
	w.length(s.Len())
	s.Each(func(name string) bool {
		w.string(name)
		return !w.full()
	})
}

// intset encodes a set of integers: the bytes per integer and the number of integers, both uint32
// LE, then the integers in ascending order.
func intset(ints []int64) []byte {
	size := 2
	for _, n := range ints {
		if n != int64(int16(n)) {
			size = max(size, 4)
		}
		if n != int64(int32(n)) {
			size = 8
		}
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(size))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(ints)))
	for _, n := range ints {
		for i := range size {
			b = append(b, byte(n>>(8*i)))
		}
	}
	return b
}

// sortedSet writes a large set with the highest score first, as Redis does.
func (w *rdbWriter) sortedSet(z *SortedSet) {
	if z.Compact() {
		p := packed.NewList()
		z.Each(0, func(m Scored) bool {
			w.c.work(stepsOf(m.Member))
			p.Add(m.Member)
			p.Add(compactScore(m.Score))
			return true
		})
		w.b = append(w.b, rdbSortedPack)
		w.pack(p)
		return
	}
	w.b = append(w.b, rdbSortedSet2)
	w.length(z.Len())
	z.eachBack(z.Len()-1, func(m Scored) bool {
		w.string(m.Member)
		w.b = binary.LittleEndian.AppendUint64(w.b, math.Float64bits(m.Score))
		return !w.full()
	})
}

// payload removes the version and checksum from a serialized value; ok is false if they are wrong.
func payload(dump string) (value string, ok bool) {
	n := len(dump) - rdbFooter
	if n < 0 {
		return "", false
	}
	b := stringBytes(dump)
	if binary.LittleEndian.Uint16(b[n:]) > rdbVersion {
		return "", false
	}
	return strings.Clone(dump[:n]), binary.LittleEndian.Uint64(b[n+2:]) == rdbChecksum(b[:n+2])
}

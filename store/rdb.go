package store

import (
	"encoding/binary"
	"hash/crc64"
	"math"
	"strings"

	"lockstep/store/internal/packed"
	"lockstep/store/redistext"
)

// The serialized form of a value, as DUMP returns it: a type byte, the value
// in the format of Redis's RDB files, then
//
//	+----------------------+------------------------------------------+
//	| uint16 LE: version   | uint64 LE: CRC of all that stands before |
//	+----------------------+------------------------------------------+
//
// A string has its length in front, or is an integer or compressed:
//
//	00llllll              length           11000000 int8 follows
//	01llllll +1 byte      length           11000001 int16 LE
//	10000000 uint32 BE    length           11000010 int32 LE
//	10000001 uint64 BE    length           11000011 LZF: two lengths, data
const (
	rdbVersion = 10 // of Redis 7.0
	rdbFooter  = 10

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

	rdbCompressFrom  = 21   // bytes
	quicklistNode    = 8192 // bytes in a node of a list
	quicklistPadding = 8    // what Redis adds per element
)

// crcTable is the table of Jones's CRC-64, which Redis uses.
var crcTable = crc64.MakeTable(0x95ac9329ac4bc9b5)

// rdbChecksum computes Redis's CRC, which has no initial and final inversion. Go's package has
// both, so they are undone here.
func rdbChecksum(b []byte) uint64 { return ^crc64.Update(math.MaxUint64, crcTable, b) }

// rdbWriter builds a serialized value.
type rdbWriter struct {
	b     []byte
	table *packed.Table // allocated at the first use
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
		if packed, ok := packed.Compress(stringBytes(s), w.table); ok {
			w.b = append(w.b, rdbEncodedLZF)
			w.length(len(packed))
			w.length(len(s))
			w.b = append(w.b, packed...)
			return
		}
	}
	w.length(len(s))
	w.b = append(w.b, s...)
}

func (w *rdbWriter) pack(p *packed.List) { w.string(bytesToString(p.Bytes())) }

// dump returns the serialized form of a key's value.
func (e *Entry) dump() string {
	w := &rdbWriter{}
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
	w.b = binary.LittleEndian.AppendUint16(w.b, rdbVersion)
	return bytesToString(binary.LittleEndian.AppendUint64(w.b, rdbChecksum(w.b)))
}

func (w *rdbWriter) hash(h *Hash) {
	if h.Compact() {
		p := packed.NewList()
		h.Each(func(f Field) bool {
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
		return true
	})
}

// list fills nodes as Redis does when all elements are pushed at the tail.
func (w *rdbWriter) list(l *Deque) {
	var nodes []*packed.List
	l.Each(0, func(value string) bool {
		last := len(nodes) - 1
		if last < 0 || nodes[last].Size()+len(value)+quicklistPadding > quicklistNode {
			nodes = append(nodes, packed.NewList())
			last++
		}
		nodes[last].Add(value)
		return true
	})
	w.b = append(w.b, rdbQuicklist2)
	w.length(len(nodes))
	for _, p := range nodes {
		w.length(rdbPackedNode)
		w.pack(p)
	}
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
		return true
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
		return true
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

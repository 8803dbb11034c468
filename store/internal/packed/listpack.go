package packed

import (
	"encoding/binary"
	"strconv"
	"unsafe"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// A listpack is Redis's compact sequence of strings and integers:
//
//	+---------------+----------------------+---------+------+
//	| uint32 LE     | uint16 LE: entries,  | entries | 0xff |
//	| whole length  | 65535: unknown       |         |      |
//	+---------------+----------------------+---------+------+
//
// An entry is its encoding, its data, and the length of both, so that the list
// can be read backwards. The length is in groups of seven bits, the highest
// first; all groups but the first have the high bit set.
//
//	0xxxxxxx           integer of 7 bits    11110001 int16 LE
//	10xxxxxx           string of x bytes    11110010 int24 LE
//	110xxxxx +1 byte   integer of 13 bits   11110011 int32 LE
//	1110xxxx +1 byte   string of x bytes    11110100 int64 LE
//	11110000 uint32 LE string of so many bytes
const (
	packHead = 6
	packEnd  = 0xff

	packString32 = 0xf0
	packInt16    = 0xf1
	packInt24    = 0xf2
	packInt32    = 0xf3
	packInt64    = 0xf4
)

// List builds a listpack.
type List struct {
	b []byte
	n int
}

// NewList returns an empty list.
func NewList() *List { return &List{b: make([]byte, packHead)} }

// Reset empties the list for reuse.
func (p *List) Reset() { p.b, p.n = p.b[:packHead], 0 }

// Len returns the number of entries.
func (p *List) Len() int { return p.n }

// Size returns the length of the result of Bytes.
func (p *List) Size() int { return len(p.b) + 1 }

// Bytes returns the complete listpack. The result is valid until the next call of Add or Reset.
func (p *List) Bytes() []byte {
	b := append(p.b, packEnd)
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	binary.LittleEndian.PutUint16(b[4:], uint16(min(p.n, 65535)))
	return b
}

// Add appends a string, encoded as an integer if possible.
func (p *List) Add(s string) {
	from := len(p.b)
	if n, ok := redistext.ParseInt(unsafe.Slice(unsafe.StringData(s), len(s))); ok {
		p.b = appendPackInt(p.b, n)
	} else {
		switch l := len(s); {
		case l < 1<<6:
			p.b = append(p.b, 0x80|byte(l))
		case l < 1<<12:
			p.b = append(p.b, 0xe0|byte(l>>8), byte(l))
		default:
			p.b = binary.LittleEndian.AppendUint32(append(p.b, packString32), uint32(l))
		}
		p.b = append(p.b, s...)
	}
	p.b = appendBackLen(p.b, len(p.b)-from)
	p.n++
}

func appendPackInt(b []byte, n int64) []byte {
	switch {
	case n >= 0 && n < 1<<7:
		return append(b, byte(n))
	case n >= -1<<12 && n < 1<<12:
		return append(b, 0xc0|byte(n>>8)&0x1f, byte(n))
	case n >= -1<<15 && n < 1<<15:
		return append(b, packInt16, byte(n), byte(n>>8))
	case n >= -1<<23 && n < 1<<23:
		return append(b, packInt24, byte(n), byte(n>>8), byte(n>>16))
	case n >= -1<<31 && n < 1<<31:
		return binary.LittleEndian.AppendUint32(append(b, packInt32), uint32(n))
	}
	return binary.LittleEndian.AppendUint64(append(b, packInt64), uint64(n))
}

// backLen returns the number of bytes of the length field behind an entry of length l.
func backLen(l int) int {
	switch {
	case l <= 127:
		return 1
	case l < 16383:
		return 2
	case l < 2097151:
		return 3
	case l < 268435455:
		return 4
	}
	return 5
}

func appendBackLen(b []byte, l int) []byte {
	n := backLen(l)
	for i := n - 1; i >= 0; i-- {
		c := byte(l>>(7*i)) & 0x7f
		if i < n-1 {
			c |= 0x80
		}
		b = append(b, c)
	}
	return b
}

// ReadList returns the entries of a listpack. It stops after most+1 entries. ok is false if more entries
// follow, or if the listpack is corrupt.
func ReadList(b []byte, most int) (list []string, ok bool) {
	if len(b) < packHead+1 || binary.LittleEndian.Uint32(b) != uint32(len(b)) || b[len(b)-1] != packEnd {
		return nil, false
	}
	told := int(binary.LittleEndian.Uint16(b[4:]))
	b = b[packHead : len(b)-1]
	for len(b) > 0 {
		s, used := readPackEntry(b)
		if used == 0 || len(list) > most {
			return list, false
		}
		used += backLen(used)
		if used > len(b) {
			return nil, false
		}
		list = append(list, s)
		b = b[used:]
	}
	return list, told == 65535 || told == len(list)
}

// readPackEntry reads the encoding and data of an entry. used is 0 if they are corrupt.
func readPackEntry(b []byte) (s string, used int) {
	le := func(n int) uint64 {
		v := uint64(0)
		for i := n; i > 0; i-- {
			v = v<<8 | uint64(b[i])
		}
		return v
	}
	text := func(head, n int) (string, int) {
		if n > len(b)-head {
			return "", 0
		}
		return string(b[head : head+n]), head + n
	}
	number := func(size, bits int) (string, int) {
		if size >= len(b) {
			return "", 0
		}
		n := int64(le(size)) << (64 - bits) >> (64 - bits)
		return strconv.FormatInt(n, 10), 1 + size
	}
	switch c := b[0]; {
	case c < 0x80:
		return strconv.Itoa(int(c)), 1
	case c < 0xc0:
		return text(1, int(c&0x3f))
	case c < 0xf0 && len(b) < 2:
		return "", 0
	case c < 0xe0:
		n := int64(c&0x1f)<<8 | int64(b[1])
		return strconv.FormatInt(n<<51>>51, 10), 2
	case c < 0xf0:
		return text(2, int(c&0x0f)<<8|int(b[1]))
	case c == packString32 && len(b) >= 5:
		return text(5, int(le(4)))
	case c == packInt16:
		return number(2, 16)
	case c == packInt24:
		return number(3, 24)
	case c == packInt32:
		return number(4, 32)
	case c == packInt64:
		return number(8, 64)
	}
	return "", 0
}

package store

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-io/lockstep/store/internal/packed"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// rdbValue is a deserialized value: its type, and the field for this type.
type rdbValue struct {
	typ    Type
	str    string
	list   []string // elements, members, or alternating names and values
	scores []Scored
}

// rdbReader reads a serialized value. The first error sets bad, which stays set.
type rdbReader struct {
	b    []byte
	bad  bool
	room int64 // bytes that the reader may still unpack, because few packed bytes may become many
}

// unpackRoom returns how many bytes a RESTORE may unpack: twice what a command may write, because each element counts stringRoom more.
func (t *Txn) unpackRoom() int64 { return 2 * (t.MaxEntry() + entryRoom) }

// stringRoom is how many bytes of memory a string takes in addition to its own bytes.
const stringRoom = 16

// spend subtracts from r.room the memory of unpacked strings, whose total length is bytes. If the room does not suffice, spend sets r.bad.
func (r *rdbReader) spend(strings, bytes int) bool {
	r.room -= int64(strings)*stringRoom + int64(bytes)
	r.bad = r.bad || r.room < 0
	return r.room >= 0
}

func (r *rdbReader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return make([]byte, min(max(n, 0), 8))
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

// length reads a length. For a string in a special encoding it returns the encoding byte instead.
func (r *rdbReader) length() (n int, encoded byte) {
	c := r.take(1)[0]
	var v uint64
	switch {
	case c>>6 == 0:
		v = uint64(c)
	case c>>6 == 1:
		v = uint64(c&0x3f)<<8 | uint64(r.take(1)[0])
	case c == 0x80:
		v = uint64(binary.BigEndian.Uint32(r.take(4)))
	case c == 0x81:
		v = binary.BigEndian.Uint64(r.take(8))
	case c>>6 == 3:
		return 0, c
	default:
		r.bad = true
	}
	if v > maxString {
		r.bad = true
		return 0, 0
	}
	return int(v), 0
}

// count reads the number of elements. It refuses 0, and more elements than bytes that are left.
func (r *rdbReader) count() int {
	n, encoded := r.length()
	if encoded != 0 || n == 0 || n > len(r.b) {
		r.bad = true
		return 0
	}
	return n
}

func (r *rdbReader) string() string {
	n, encoded := r.length()
	switch encoded {
	case 0:
		if b := r.take(n); r.spend(0, n) {
			return string(b)
		}
		return ""
	case rdbEncodedInt8:
		return strconv.Itoa(int(int8(r.take(1)[0])))
	case rdbEncodedInt16:
		return strconv.Itoa(int(int16(binary.LittleEndian.Uint16(r.take(2)))))
	case rdbEncodedInt32:
		return strconv.Itoa(int(int32(binary.LittleEndian.Uint32(r.take(4)))))
	case rdbEncodedLZF:
		compressed, e1 := r.length()
		size, e2 := r.length()
		if e1 == 0 && e2 == 0 && size <= compressed*packed.MaxMatch && r.spend(0, size) { // one byte expands to at most MaxMatch bytes
			if s, ok := packed.Expand(r.take(compressed), size); ok {
				return bytesToString(s)
			}
		}
	}
	r.bad = true
	return ""
}

func (r *rdbReader) strings(n int) []string {
	if !r.spend(n, 0) {
		return nil
	}
	list := make([]string, 0, n)
	for ; n > 0 && !r.bad; n-- {
		list = append(list, r.string())
	}
	return list
}

func (r *rdbReader) pack() []string {
	b := stringBytes(r.string())
	list, ok := packed.ReadList(b, int(r.room/stringRoom))
	r.spend(len(list), 0)
	r.bad = r.bad || !ok || len(list) == 0
	return list
}

// asciiDouble reads a score of very old dumps: a length byte and the text, or one byte for ±infinity or NaN.
func (r *rdbReader) asciiDouble() float64 {
	switch n := r.take(1)[0]; n {
	case 255:
		return math.Inf(-1)
	case 254:
		return math.Inf(1)
	case 253:
		return math.NaN()
	default:
		f, ok := redistext.ParseFloat(r.take(int(n)))
		r.bad = r.bad || !ok
		return f
	}
}

// readValue reads a serialized value without version and checksum. larger means that it would take more than room bytes.
func readValue(value string, room int64) (v rdbValue, ok, larger bool) {
	if value == "" {
		return v, false, false
	}
	r := &rdbReader{b: stringBytes(value), room: room}
	switch t := r.take(1)[0]; t {
	case rdbString:
		v.typ, v.str = TypeString, r.string()
	case rdbList:
		v.typ, v.list = TypeList, r.strings(r.count())
	case rdbQuicklist2:
		v.typ, v.list = TypeList, r.quicklist()
	case rdbSet:
		v.typ, v.list = TypeSet, r.strings(r.count())
	case rdbIntset:
		v.typ, v.list = TypeSet, r.intset()
	case rdbHash:
		v.typ, v.list = TypeHash, r.strings(2*r.count())
	case rdbHashPack:
		v.typ, v.list = TypeHash, r.pack()
		r.bad = r.bad || len(v.list)%2 == 1
	case rdbSortedSet, rdbSortedSet2:
		v.typ, v.scores = TypeSortedSet, r.scores(t == rdbSortedSet)
	case rdbSortedPack:
		v.typ, v.scores = TypeSortedSet, r.packedScores()
	default:
		return v, false, false
	}
	return v, !r.bad && v.distinct(), r.room < 0
}

// distinct reports whether the members or fields all differ, and no score is NaN.
func (v *rdbValue) distinct() bool {
	var names []string
	switch v.typ {
	case TypeHash:
		for i := 0; i < len(v.list); i += 2 {
			names = append(names, v.list[i])
		}
	case TypeSet:
		names = slices.Clone(v.list)
	}
	for _, m := range v.scores {
		if math.IsNaN(m.Score) {
			return false
		}
		names = append(names, m.Member)
	}
	slices.Sort(names)
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			return false
		}
	}
	return true
}

func (r *rdbReader) quicklist() []string {
	var list []string
	for n := r.count(); n > 0 && !r.bad; n-- {
		switch kind, _ := r.length(); kind {
		case rdbPackedNode:
			list = append(list, r.pack()...)
		case rdbPlainNode:
			r.spend(1, 0)
			list = append(list, r.string())
		default:
			r.bad = true
		}
	}
	return list
}

func (r *rdbReader) intset() []string {
	b := stringBytes(r.string())
	if len(b) < 8 {
		r.bad = true
		return nil
	}
	size, n := int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
	b = b[8:]
	if r.spend(n, 0); r.bad {
		return nil
	}
	if size != 2 && size != 4 && size != 8 || n == 0 || n*size != len(b) {
		r.bad = true
		return nil
	}
	list := make([]string, 0, n)
	for ; len(b) > 0; b = b[size:] {
		v := uint64(0)
		for i := size - 1; i >= 0; i-- {
			v = v<<8 | uint64(b[i])
		}
		shift := 64 - 8*size
		list = append(list, strconv.FormatInt(int64(v)<<shift>>shift, 10))
	}
	return list
}

func (r *rdbReader) scores(ascii bool) []Scored {
	n := r.count()
	if !r.spend(n, 0) {
		return nil
	}
	list := make([]Scored, 0, n)
	for ; n > 0 && !r.bad; n-- {
		m := Scored{Member: r.string()}
		if ascii {
			m.Score = r.asciiDouble()
		} else {
			m.Score = math.Float64frombits(binary.LittleEndian.Uint64(r.take(8)))
		}
		list = append(list, m)
	}
	return list
}

func (r *rdbReader) packedScores() []Scored {
	pairs := r.pack()
	if len(pairs)%2 == 1 {
		r.bad = true
		return nil
	}
	var list []Scored
	for ; len(pairs) > 0; pairs = pairs[2:] {
		score, ok := redistext.ParseFloat(stringBytes(pairs[1]))
		r.bad = r.bad || !ok
		list = append(list, Scored{pairs[0], score})
	}
	return list
}

package ext

import (
	"encoding/binary"
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/clib"
)

// structLibrary is Roberto Ierusalimschy's struct library as Redis ships it.
var structLibrary = library{
	"pack":   (*Libraries).structPack,
	"size":   (*Libraries).structSize,
	"unpack": (*Libraries).structUnpack,
}

// digitsInStep is how many digits of a number in a format are read in the time of an instruction.
const digitsInStep = 16

// maxIntSize is the largest size in bytes for the options i and I.
const maxIntSize = 32

// layout reads a format one option at a time.
type layout struct {
	host  Host
	L     *lua.LState
	fmt   string
	i     int  // offset in fmt of the next option
	big   bool // the byte order is big-endian
	align int  // largest alignment of a value
	total int  // offset in the packed string of the next value and its padding
}

func (lib *Libraries) newLayout(L *lua.LState, format string) *layout {
	return &layout{host: lib.host, L: L, fmt: clib.Text(format), align: 1}
}

func (l *layout) more() bool { return l.i < len(l.fmt) }

// number reads the number that follows an option; it returns def if no digit follows.
func (l *layout) number(def int) int {
	if l.i >= len(l.fmt) || !clib.IsDigit(l.fmt[l.i]) {
		return def
	}
	n := 0
	for from := l.i; l.i < len(l.fmt) && clib.IsDigit(l.fmt[l.i]); {
		if (l.i-from)%digitsInStep == digitsInStep-1 {
			l.host.Work(1) // there may be many leading zeros
		}
		if n > math.MaxInt32/10 || n*10 > math.MaxInt32-int(l.fmt[l.i]-'0') {
			l.host.Throw(l.L, "integral size overflow")
		}
		n = n*10 + int(l.fmt[l.i]-'0')
		l.i++
	}
	return n
}

// option reads the next option and its value's size (s and c0: 0). kind is 0 for an option that only changes l.
func (l *layout) option() (kind byte, size int) {
	l.host.Work(1)
	kind = l.fmt[l.i]
	l.i++
	switch kind {
	case 'B', 'b', 'x':
		return kind, 1
	case 'H', 'h':
		return kind, 2
	case 'L', 'l', 'T', 'd':
		return kind, 8
	case 'f':
		return kind, 4
	case 'c':
		return kind, l.number(1)
	case 'i', 'I':
		size = l.number(4)
		if size > maxIntSize {
			l.host.Throw(l.L, "integral size "+clib.FormatNumber(lua.LNumber(size))+" is larger than limit of 32")
		}
		return kind, size
	case 's', ' ':
		return kind, 0
	}
	l.control(kind)
	return 0, 0
}

func (l *layout) control(c byte) {
	switch c {
	case '>':
		l.big = true
	case '<':
		l.big = false
	case '!':
		a := l.number(8)
		if a <= 0 || a&(a-1) != 0 {
			l.host.Throw(l.L, "alignment "+clib.FormatNumber(lua.LNumber(a))+" is not a power of 2")
		}
		l.align = a
	default:
		l.host.ArgError(l.L, 1, "invalid format option '"+string([]byte{c})+"'")
	}
}

// padding returns the number of padding bytes before the value of an option.
func (l *layout) padding(kind byte, size int) int {
	if size == 0 || kind == 'c' {
		return 0
	}
	a := min(size, l.align)
	if a <= 1 {
		return 0
	}
	return (a - l.total&(a-1)) & (a - 1)
}

func (lib *Libraries) structPack(L *lua.LState) int {
	l := lib.newLayout(L, lib.arg.String(L, 1))
	L.Push(lua.LNil) // the C library pushes this nil as a mark, so the first missing argument reads as nil
	o := auxlib.Buffer{Memory: lib.host}
	arg := 2
	for l.more() {
		kind, size := l.option()
		pad := l.padding(kind, size)
		o.Room(pad + maxIntSize)
		o.B = append(o.B, make([]byte, pad)...)
		before := len(o.B)
		switch kind {
		case 0, ' ':
		case 'x':
			o.B = append(o.B, 0)
		case 'f':
			bits := math.Float32bits(float32(lib.arg.Number(L, arg)))
			o.B = appendUint(o.B, uint64(bits), 4, l.big)
			arg++
		case 'd':
			o.B = appendUint(o.B, math.Float64bits(float64(lib.arg.Number(L, arg))), 8, l.big)
			arg++
		case 's', 'c':
			s := lib.arg.String(L, arg)
			arg++
			if size == 0 {
				size = len(s)
			}
			if len(s) < size {
				lib.host.ArgError(L, arg, "string too short")
			}
			o.Str(s[:size])
			if kind == 's' {
				o.Byte(0)
			}
		default:
			o.B = appendUint(o.B, clib.ToUint64(lib.arg.Number(L, arg)), size, l.big)
			arg++
		}
		l.total += pad + len(o.B) - before
	}
	L.Push(lua.LString(o.Text()))
	return 1
}

// appendUint appends u as an integer of size bytes. As in the C code, the bytes beyond the lowest eight are zero.
func appendUint(b []byte, u uint64, size int, big bool) []byte {
	var buf [maxIntSize]byte
	binary.LittleEndian.PutUint64(buf[:], u)
	for i := range size {
		if big {
			b = append(b, buf[size-1-i])
		} else {
			b = append(b, buf[i])
		}
	}
	return b
}

func readUint(s string, big bool) uint64 {
	u := uint64(0)
	for i := range len(s) {
		c := s[len(s)-1-i]
		if big {
			c = s[i]
		}
		u = u<<8 | uint64(c)
	}
	return u
}

func (lib *Libraries) structUnpack(L *lua.LState) int {
	l := lib.newLayout(L, lib.arg.String(L, 1))
	data := lib.arg.String(L, 2)
	pos := lib.arg.OptInt(L, 3, 1) - 1
	switch {
	case pos == -1:
		lib.host.ArgError(L, 3, "offset must be 1 or greater")
	case pos < 0: // in C the offset is unsigned, so a negative one is beyond the end
		pos = len(data) + 1
	}
	n := 0
	for l.more() {
		if pos > len(data) && strings.IndexByte("BbxHhLlTdfciIs ", l.fmt[l.i]) < 0 {
			lib.host.ArgError(L, 2, "data string too short") // C checks the offset even before an option without a value
		}
		kind, size := l.option()
		l.total = pos
		pos += l.padding(kind, size)
		if size > len(data) || pos > len(data)-size {
			lib.host.ArgError(L, 2, "data string too short")
		}
		if n > auxlib.MaxStack-100 {
			lib.host.Throw(L, "stack overflow (too many results)")
		}
		switch kind {
		case 0, ' ', 'x':
		case 'f':
			L.Push(lua.LNumber(math.Float32frombits(uint32(readUint(data[pos:pos+4], l.big)))))
			n++
		case 'd':
			L.Push(lua.LNumber(math.Float64frombits(readUint(data[pos:pos+8], l.big))))
			n++
		case 'c':
			if size == 0 {
				size = lib.sizeBefore(L, n, data, pos)
				n--
			}
			L.Push(lib.host.Own(data[pos : pos+size]))
			n++
		case 's':
			lib.host.Work((len(data) - pos) / 64)
			for pos+size < len(data) && data[pos+size] != 0 {
				size++
			}
			if pos+size >= len(data) {
				lib.host.Throw(L, "unfinished string in data")
			}
			L.Push(lib.host.Own(data[pos : pos+size]))
			size++
			n++
		default:
			L.Push(unpackInt(data[pos:pos+size], kind, l.big))
			n++
		}
		pos += size
	}
	L.Push(lua.LNumber(pos + 1))
	return n + 1
}

// sizeBefore pops the size of a string with the option c0: the last of n unpacked values, which must be a number.
func (lib *Libraries) sizeBefore(L *lua.LState, n int, data string, pos int) int {
	size, ok := L.Get(-1).(lua.LNumber)
	if n == 0 || !ok {
		lib.host.Throw(L, "format 'c0' needs a previous size")
	}
	L.Pop(1)
	if size < 0 || clib.ToInt(size) > len(data)-pos {
		lib.host.ArgError(L, 2, "data string too short")
	}
	return clib.ToInt(size)
}

func unpackInt(s string, kind byte, big bool) lua.LNumber {
	u := readUint(s, big)
	if kind >= 'a' {
		shift := uint(max(64-8*len(s), 0))
		return lua.LNumber(int64(u<<shift) >> shift)
	}
	return lua.LNumber(u)
}

func (lib *Libraries) structSize(L *lua.LState) int {
	l := lib.newLayout(L, lib.arg.String(L, 1))
	for l.more() {
		if !strings.ContainsRune("BbxHhLlTdfciIs !<>", rune(l.fmt[l.i])) && (clib.IsAlpha(l.fmt[l.i]) || clib.IsDigit(l.fmt[l.i])) {
			l.host.Work(1)
			l.i++ // only pack and unpack refuse unknown letters and digits
			continue
		}
		kind, size := l.option()
		if kind == 's' {
			lib.host.ArgError(L, 1, "option 's' has no fixed size")
		}
		if kind == 'c' && size == 0 {
			lib.host.ArgError(L, 1, "option 'c0' has no fixed size")
		}
		l.total += l.padding(kind, size) + size
	}
	L.Push(lua.LNumber(l.total))
	return 1
}

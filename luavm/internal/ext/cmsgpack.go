package ext

import (
	"encoding/binary"
	"math"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/clib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// cmsgpackLibrary has the functions of lua-cmsgpack 0.4.0.
var cmsgpackLibrary = library{
	"pack":         (*Libraries).msgpackPack,
	"unpack":       (*Libraries).msgpackUnpack,
	"unpack_limit": (*Libraries).msgpackUnpackLimit,
	"unpack_one":   (*Libraries).msgpackUnpackOne,
}

// packNesting is how many levels of nested tables are packed; tables on deeper levels are packed as nil.
const packNesting = 16

func (lib *Libraries) packModule(L *lua.LState) *lua.LTable {
	t := lib.table(L, cmsgpackLibrary)
	t.RawSetString("_NAME", lua.LString("cmsgpack"))
	t.RawSetString("_VERSION", lua.LString("lua-cmsgpack 0.4.0"))
	t.RawSetString("_COPYRIGHT", lua.LString("Copyright (C) 2012, Salvatore Sanfilippo"))
	t.RawSetString("_DESCRIPTION", lua.LString("MessagePack C implementation for Lua"))
	return t
}

func (lib *Libraries) msgpackPack(L *lua.LState) int {
	n := L.GetTop()
	if n == 0 {
		lib.host.ArgError(L, 0, "MessagePack pack needs input.")
	}
	b := auxlib.Buffer{Memory: lib.host}
	for i := 1; i <= n; i++ {
		lib.packValue(&b, L.Get(i), 0)
	}
	L.Push(lua.LString(b.Text()))
	return 1
}

// packScalar is the most bytes that a packed value takes, without the content of a string or a table.
const packScalar = 9

func (lib *Libraries) packValue(o *auxlib.Buffer, v lua.LValue, level int) {
	lib.host.Work(1)
	o.Room(packScalar)
	switch v := v.(type) {
	case lua.LString:
		packString(o, string(v))
	case lua.LBool:
		if v {
			o.B = append(o.B, 0xc3)
		} else {
			o.B = append(o.B, 0xc2)
		}
	case lua.LNumber:
		o.B = packNumber(o.B, float64(v))
	case *lua.LTable:
		if level == packNesting {
			o.B = append(o.B, 0xc0)
			return
		}
		lib.packTable(o, v, level+1)
	default:
		o.B = append(o.B, 0xc0)
	}
}

func packString(o *auxlib.Buffer, s string) {
	switch n := len(s); {
	case n < 32:
		o.B = append(o.B, 0xa0|byte(n))
	case n <= 0xff:
		o.B = append(o.B, 0xd9, byte(n))
	case n <= 0xffff:
		o.B = binary.BigEndian.AppendUint16(append(o.B, 0xda), uint16(n))
	default:
		o.B = binary.BigEndian.AppendUint32(append(o.B, 0xdb), uint32(n))
	}
	o.Str(s)
}

func packNumber(b []byte, f float64) []byte {
	if f == math.Trunc(f) && f >= -9223372036854775808 && f < 9223372036854775808 {
		return packInt(b, int64(f))
	}
	if float64(float32(f)) == f {
		return binary.BigEndian.AppendUint32(append(b, 0xca), math.Float32bits(float32(f)))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(f))
}

func packInt(b []byte, n int64) []byte {
	switch {
	case n >= 0 && n <= 127, n < 0 && n >= -32:
		return append(b, byte(n))
	case n >= 0 && n <= 0xff:
		return append(b, 0xcc, byte(n))
	case n >= 0 && n <= 0xffff:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(n))
	case n >= 0 && n <= 0xffffffff:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(n))
	case n >= 0:
		return binary.BigEndian.AppendUint64(append(b, 0xcf), uint64(n))
	case n >= -128:
		return append(b, 0xd0, byte(n))
	case n >= -32768:
		return binary.BigEndian.AppendUint16(append(b, 0xd1), uint16(n))
	case n >= -2147483648:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(n))
}

// isPackArray reports whether a table is an array (keys 1..n and nothing else), and counts
// its elements.
func (lib *Libraries) isPackArray(t *lua.LTable) (n int, array bool) {
	highest, array := 0, true
	lib.host.Work(interp.Slots(t) / 8) // one or two walks over the table pass its empty slots, too
	for k, _ := t.Next(lua.LNil); k != lua.LNil; k, _ = t.Next(k) {
		lib.host.Work(1)
		passKey(lib.host, k)
		n++
		i, ok := k.(lua.LNumber)
		if !ok || i <= 0 || i != lua.LNumber(clib.ToInt(i)) {
			array = false
			continue
		}
		highest = max(highest, clib.ToInt(i))
	}
	return n, array && n == highest
}

// packLength writes a type and a length. short is the byte for up to 15 elements, long for 16 bits, long+1 for 32 bits.
func packLength(o *auxlib.Buffer, n int, short, long byte) {
	switch {
	case n <= 15:
		o.B = append(o.B, short|byte(n))
	case n <= 0xffff:
		o.B = binary.BigEndian.AppendUint16(append(o.B, long), uint16(n))
	default:
		o.B = binary.BigEndian.AppendUint32(append(o.B, long+1), uint32(n))
	}
}

func (lib *Libraries) packTable(o *auxlib.Buffer, t *lua.LTable, level int) {
	n, array := lib.isPackArray(t)
	if array {
		packLength(o, n, 0x90, 0xdc)
		for i := 1; i <= n; i++ {
			lib.packValue(o, t.RawGetInt(i), level)
		}
		return
	}
	packLength(o, n, 0x80, 0xde)
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		lib.packValue(o, k, level)
		lib.packValue(o, v, level)
	}
}

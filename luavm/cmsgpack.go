package luavm

import (
	"encoding/binary"
	"math"

	lua "github.com/yuin/gopher-lua"
)

// cmsgpackLibrary is lua-cmsgpack 0.4.0.
var cmsgpackLibrary = library{
	"pack":         (*Engine).msgpackPack,
	"unpack":       (*Engine).msgpackUnpack,
	"unpack_limit": (*Engine).msgpackUnpackLimit,
	"unpack_one":   (*Engine).msgpackUnpackOne,
}

// packNesting is how deep tables are packed; deeper ones become nil.
const packNesting = 16

func (e *Engine) openPack() {
	t := e.lib("cmsgpack")
	t.RawSetString("_NAME", lua.LString("cmsgpack"))
	t.RawSetString("_VERSION", lua.LString("lua-cmsgpack 0.4.0"))
	t.RawSetString("_COPYRIGHT", lua.LString("Copyright (C) 2012, Salvatore Sanfilippo"))
	t.RawSetString("_DESCRIPTION", lua.LString("MessagePack C implementation for Lua"))
}

func (e *Engine) msgpackPack(L *lua.LState) int {
	n := L.GetTop()
	if n == 0 {
		e.argError(L, 0, "MessagePack pack needs input.")
	}
	var b []byte
	for i := 1; i <= n; i++ {
		b = e.packValue(L, b, L.Get(i), 0)
	}
	L.Push(lua.LString(b))
	return 1
}

func (e *Engine) packValue(L *lua.LState, b []byte, v lua.LValue, level int) []byte {
	e.charge(16)
	e.work(1)
	switch v := v.(type) {
	case lua.LString:
		return e.packString(b, string(v))
	case lua.LBool:
		if v {
			return append(b, 0xc3)
		}
		return append(b, 0xc2)
	case lua.LNumber:
		return packNumber(b, float64(v))
	case *lua.LTable:
		if level == packNesting {
			return append(b, 0xc0)
		}
		return e.packTable(L, b, v, level+1)
	}
	return append(b, 0xc0)
}

func (e *Engine) packString(b []byte, s string) []byte {
	e.charge(int64(len(s)) * 2)
	switch n := len(s); {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n <= 0xff:
		b = append(b, 0xd9, byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, s...)
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

// isPackArray tells an array (keys 1..n and nothing else) from a map.
func isPackArray(t *lua.LTable) (n int, array bool) {
	count, highest := 0, 0
	for k, _ := t.Next(lua.LNil); k != lua.LNil; k, _ = t.Next(k) {
		i, ok := k.(lua.LNumber)
		if !ok || i <= 0 || i != lua.LNumber(toInt(i)) {
			return 0, false
		}
		count++
		highest = max(highest, toInt(i))
	}
	return count, count == highest
}

func (e *Engine) packTable(L *lua.LState, b []byte, t *lua.LTable, level int) []byte {
	if n, array := isPackArray(t); array {
		switch {
		case n <= 15:
			b = append(b, 0x90|byte(n))
		case n <= 0xffff:
			b = binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n))
		default:
			b = binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
		}
		for i := 1; i <= n; i++ {
			b = e.packValue(L, b, t.RawGetInt(i), level)
		}
		return b
	}
	n := 0
	for k, _ := t.Next(lua.LNil); k != lua.LNil; k, _ = t.Next(k) {
		n++
	}
	switch {
	case n <= 15:
		b = append(b, 0x80|byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, 0xde), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdf), uint32(n))
	}
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		b = e.packValue(L, b, k, level)
		b = e.packValue(L, b, v, level)
	}
	return b
}

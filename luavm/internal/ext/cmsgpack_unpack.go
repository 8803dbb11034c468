package ext

import (
	"encoding/binary"
	"fmt"
	"math"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
)

func (lib *Libraries) msgpackUnpack(L *lua.LState) int {
	return lib.unpackFull(L, lib.arg.String(L, 1), 0, 0)
}

func (lib *Libraries) msgpackUnpackOne(L *lua.LState) int {
	offset := lib.arg.OptInt(L, 2, 0)
	return lib.unpackFull(L, lib.arg.String(L, 1), 1, offset)
}

func (lib *Libraries) msgpackUnpackLimit(L *lua.LState) int {
	limit, offset := lib.arg.Int(L, 2), lib.arg.OptInt(L, 3, 0)
	return lib.unpackFull(L, lib.arg.String(L, 1), limit, offset)
}

func (lib *Libraries) unpackFull(L *lua.LState, s string, limit, offset int) int {
	if offset < 0 || limit < 0 {
		// Redis, too, prints the length of s in place of the limit.
		lib.host.Throw(L, fmt.Sprintf("Invalid request to unpack with offset of %d and limit of %d.", int32(offset), len(s)))
	}
	if offset > len(s) {
		lib.host.Throw(L, fmt.Sprintf("Start offset %d greater than input length %d.", int32(offset), len(s)))
	}
	all := limit == 0 && offset == 0
	u := unpacker{host: lib.host, L: L, s: s, i: offset}
	var values []lua.LValue
	slots := 1 // cmsgpack's unpack_one and unpack_limit first remove all arguments but s from the stack
	if all {
		slots = L.GetTop()
	}
	for u.i < len(s) && (all || len(values) < limit) {
		values = append(values, u.value(slots+len(values)))
	}
	n := len(values)
	if !all {
		next := u.i
		if next == len(s) {
			next = -1
		}
		L.Push(lua.LNumber(next))
		n++
	}
	for _, v := range values {
		L.Push(v)
	}
	return n
}

// unpacker reads MessagePack.
type unpacker struct {
	host Host
	L    *lua.LState
	s    string
	i    int
}

func (u *unpacker) take(n int) string {
	if n > len(u.s)-u.i {
		u.host.Throw(u.L, "Missing bytes in input.")
	}
	s := u.s[u.i : u.i+n]
	u.i += n
	return s
}

func (u *unpacker) uint(n int) uint64 {
	var b [8]byte
	copy(b[8-n:], u.take(n))
	return binary.BigEndian.Uint64(b[:])
}

func (u *unpacker) str(n int) lua.LValue {
	return u.host.Own(u.take(n))
}

// tableCost is the number of bytes charged for an empty table.
const tableCost = 128

// room raises luaL_checkstack's error if C Lua's stack, of which slots are in use, is full.
func (u *unpacker) room(slots int, what string) {
	if slots+1 > auxlib.MaxStack {
		u.host.Throw(u.L, "stack overflow ("+what+")")
	}
}

func (u *unpacker) value(slots int) lua.LValue {
	u.host.Charge(32)
	u.host.Work(1)
	c := u.take(1)[0]
	u.room(slots, "too many return values at once; use unpack_one or unpack_limit instead.")
	switch {
	case c <= 0x7f:
		return lua.LNumber(c)
	case c >= 0xe0:
		return lua.LNumber(int8(c))
	case c&0xe0 == 0xa0:
		return u.str(int(c & 0x1f))
	case c&0xf0 == 0x90:
		return u.array(int(c&0xf), slots)
	case c&0xf0 == 0x80:
		return u.hash(int(c&0xf), slots)
	}
	switch c {
	case 0xc0:
		return lua.LNil
	case 0xc2:
		return lua.LFalse
	case 0xc3:
		return lua.LTrue
	case 0xca:
		return lua.LNumber(math.Float32frombits(uint32(u.uint(4))))
	case 0xcb:
		return lua.LNumber(math.Float64frombits(u.uint(8)))
	case 0xcc, 0xcd, 0xce, 0xcf:
		return lua.LNumber(int64(u.uint(1 << (c - 0xcc))))
	case 0xd0:
		return lua.LNumber(int8(u.uint(1)))
	case 0xd1:
		return lua.LNumber(int16(u.uint(2)))
	case 0xd2:
		return lua.LNumber(int32(u.uint(4)))
	case 0xd3:
		return lua.LNumber(int64(u.uint(8)))
	case 0xd9, 0xda, 0xdb:
		return u.str(int(u.uint(1 << (c - 0xd9))))
	case 0xdc, 0xdd:
		return u.array(int(u.uint(2<<(c-0xdc))), slots)
	case 0xde, 0xdf:
		return u.hash(int(u.uint(2<<(c-0xde))), slots)
	}
	u.host.Throw(u.L, "Bad data format in input.")
	return nil
}

func (u *unpacker) array(n, slots int) lua.LValue {
	u.room(slots+1, "in function mp_decode_to_lua_array")
	u.host.Charge(tableCost)
	t := u.L.CreateTable(0, 0)
	for i := 1; i <= n; i++ {
		u.host.RawSet(u.L, t, lua.LNumber(i), u.value(slots+2))
	}
	return t
}

func (u *unpacker) hash(n, slots int) lua.LValue {
	u.host.Charge(tableCost)
	t := u.L.CreateTable(0, 1)
	for range n {
		key := u.value(slots + 1)
		u.host.RawSet(u.L, t, key, u.value(slots+2))
	}
	return t
}

package ext

import (
	"math"
	"math/bits"
	"strconv"

	lua "github.com/yuin/gopher-lua"
)

// bitLibrary is BitOp 1.0: operations on signed 32-bit integers.
var bitLibrary = library{
	"arshift": bitShift(func(x int32, n uint) int32 { return x >> n }),
	"band":    bitFold(func(a, b int32) int32 { return a & b }),
	"bnot":    bitUnary(func(x int32) int32 { return ^x }),
	"bor":     bitFold(func(a, b int32) int32 { return a | b }),
	"bswap":   bitUnary(func(x int32) int32 { return int32(bits.ReverseBytes32(uint32(x))) }),
	"bxor":    bitFold(func(a, b int32) int32 { return a ^ b }),
	"lshift":  bitShift(func(x int32, n uint) int32 { return x << n }),
	"rol":     bitShift(func(x int32, n uint) int32 { return int32(bits.RotateLeft32(uint32(x), int(n))) }),
	"ror":     bitShift(func(x int32, n uint) int32 { return int32(bits.RotateLeft32(uint32(x), -int(n))) }),
	"rshift":  bitShift(func(x int32, n uint) int32 { return int32(uint32(x) >> n) }),
	"tobit":   bitUnary(func(x int32) int32 { return x }),
	"tohex":   (*Libraries).bitToHex,
}

// bitArg returns the low 32 bits of argument n, a number. It rounds the number to the nearest
// integer by adding 2^52+2^51, as BitOp does.
func (lib *Libraries) bitArg(L *lua.LState, n int) int32 {
	f := float64(lib.arg.Number(L, n)) + 6755399441055744
	return int32(uint32(math.Float64bits(f)))
}

func bitUnary(fn func(int32) int32) func(*Libraries, *lua.LState) int {
	return func(lib *Libraries, L *lua.LState) int {
		L.Push(lua.LNumber(fn(lib.bitArg(L, 1))))
		return 1
	}
}

func bitFold(fn func(a, b int32) int32) func(*Libraries, *lua.LState) int {
	return func(lib *Libraries, L *lua.LState) int {
		x := lib.bitArg(L, 1)
		for i := 2; i <= L.GetTop(); i++ {
			x = fn(x, lib.bitArg(L, i))
		}
		L.Push(lua.LNumber(x))
		return 1
	}
}

func bitShift(fn func(x int32, n uint) int32) func(*Libraries, *lua.LState) int {
	return func(lib *Libraries, L *lua.LState) int {
		x := lib.bitArg(L, 1)
		L.Push(lua.LNumber(fn(x, uint(lib.bitArg(L, 2))&31)))
		return 1
	}
}

func (lib *Libraries) bitToHex(L *lua.LState) int {
	x := uint32(lib.bitArg(L, 1))
	n := int32(8)
	if L.GetTop() >= 2 {
		n = lib.bitArg(L, 2)
	}
	upper := n < 0
	if upper {
		n = -n
	}
	if n > 8 || n < 0 {
		n = 8
	}
	s := "00000000" + strconv.FormatUint(uint64(x), 16)
	s = s[len(s)-8:]
	if upper {
		b := []byte(s)
		for i, c := range b {
			if c >= 'a' {
				b[i] = c - 0x20
			}
		}
		s = string(b)
	}
	L.Push(lua.LString(s[8-n:]))
	return 1
}

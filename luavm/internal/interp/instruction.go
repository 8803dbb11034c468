package interp

// An instruction of Lua 5.1 is a word of 32 bits, as gopher-lua lays it out:
//
//	 31    26 25     18 17      9 8       0
//	+--------+---------+---------+---------+
//	|   op   |    A    |    C    |    B    |
//	+--------+---------+---------+---------+
//	                   |   Bx, sBx + MaxSbx |
//	                   +--------------------+

// These are the largest operands of an instruction.
const (
	MaxC   = 0x1ff
	MaxBx  = 0x3ffff
	MaxSbx = 0x1ffff
)

// OpOf returns the operation of an instruction, ArgA and so on its operands.
func OpOf(inst uint32) int   { return int(inst >> 26) }
func ArgA(inst uint32) int   { return int(inst>>18) & 0xff }
func ArgB(inst uint32) int   { return int(inst & 0x1ff) }
func ArgC(inst uint32) int   { return int(inst>>9) & 0x1ff }
func ArgBx(inst uint32) int  { return int(inst & MaxBx) }
func ArgSbx(inst uint32) int { return int(inst&MaxBx) - MaxSbx }

// RKConst marks an operand that is a constant.
const RKConst = 1 << 8

// InstABC and InstABx make an instruction.
func InstABC(op, a, b, c int) uint32 {
	return uint32(op)<<26 | uint32(a&0xff)<<18 | uint32(c&0x1ff)<<9 | uint32(b&0x1ff)
}

func InstABx(op, a, bx int) uint32 { return uint32(op)<<26 | uint32(a&0xff)<<18 | uint32(bx&MaxBx) }

// SetA, SetB, SetC, SetSbx and SetOp change one part of an instruction.
func SetA(i *uint32, a int)   { *i = *i&^(0xff<<18) | uint32(a&0xff)<<18 }
func SetB(i *uint32, b int)   { *i = *i&^0x1ff | uint32(b&0x1ff) }
func SetC(i *uint32, c int)   { *i = *i&^(0x1ff<<9) | uint32(c&0x1ff)<<9 }
func SetSbx(i *uint32, n int) { *i = *i&^MaxBx | uint32(n+MaxSbx)&MaxBx }
func SetOp(i *uint32, op int) { *i = *i&(1<<26-1) | uint32(op)<<26 }

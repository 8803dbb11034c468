package compile

import (
	"math"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/clib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// expKind says where the value of an expression is, or how to get it.
type expKind int

const (
	expVoid    expKind = iota // an empty list
	expNil                    // nil, in no register yet
	expTrue                   // true, in no register yet
	expFalse                  // false, in no register yet
	expConst                  // info: index of a constant
	expNumber                 // num: a number, in no register yet
	expLocal                  // info: register
	expUpvalue                // info: index
	expGlobal                 // info: index of the name's constant
	expIndexed                // info: register of the table, aux: register or constant of the key
	expJump                   // info: the jump that is taken if the expression is true
	expReloc                  // info: an instruction whose target register is still open
	expReg                    // info: register
	expCall                   // info: the instruction
	expVararg                 // info: the instruction
)

// exp describes an expression. The jumps in yes are taken when it is true, those in no when it is false.
type exp struct {
	kind      expKind
	info, aux int
	num       lua.LNumber
	yes, no   int
}

func newExp(kind expKind, info int) exp { return exp{kind: kind, info: info, yes: noJump, no: noJump} }

func (e *exp) become(kind expKind, info int) { e.kind, e.info = kind, info }

func (e *exp) hasJumps() bool { return e.yes != e.no }
func (e *exp) isNumeral() bool {
	return e.kind == expNumber && e.yes == noJump && e.no == noJump
}
func (e *exp) isMulti() bool { return e.kind == expCall || e.kind == expVararg }

// setReturns makes the call or vararg e give n results (multiple: all of them). A vararg also gets a register for the first one.
func (f *function) setReturns(e *exp, n int) {
	switch e.kind {
	case expCall:
		interp.SetC(&f.code[e.info], n+1)
	case expVararg:
		i := &f.code[e.info]
		interp.SetB(i, n+1)
		interp.SetA(i, f.free)
		f.reserve(1)
	}
}

// oneReturn makes e give one result. Unlike in C Lua, a vararg takes a new register: OP_VARARG clears all registers above its target.
func (f *function) oneReturn(e *exp) {
	switch e.kind {
	case expCall:
		e.become(expReg, interp.ArgA(f.code[e.info]))
	case expVararg:
		f.setReturns(e, 1)
		e.become(expReg, f.free-1)
	}
}

// discharge replaces a variable, a call or a vararg by the value that it gives (expReg or expReloc).
func (f *function) discharge(e *exp) {
	switch e.kind {
	case expLocal:
		e.kind = expReg
	case expUpvalue:
		e.become(expReloc, f.emitABC(lua.OP_GETUPVAL, 0, e.info, 0))
	case expGlobal:
		e.become(expReloc, f.emitABx(lua.OP_GETGLOBAL, 0, e.info))
	case expIndexed:
		f.release(e.aux)
		f.release(e.info)
		op := lua.OP_GETTABLE
		if f.isStringConst(e.aux) {
			op = lua.OP_GETTABLEKS
		}
		e.become(expReloc, f.emitABC(op, 0, e.info, e.aux))
	case expCall, expVararg:
		f.oneReturn(e)
	}
}

// load puts the value into a register, without regard to the jumps of the expression.
func (f *function) load(e *exp, reg int) {
	f.discharge(e)
	switch e.kind {
	case expNil:
		f.emitABC(lua.OP_LOADNIL, reg, reg, 0)
	case expFalse:
		f.emitABC(lua.OP_LOADBOOL, reg, 0, 0)
	case expTrue:
		f.emitABC(lua.OP_LOADBOOL, reg, 1, 0)
	case expConst:
		f.emitABx(lua.OP_LOADK, reg, e.info)
	case expNumber:
		f.emitABx(lua.OP_LOADK, reg, f.constant(e.num))
	case expReloc:
		interp.SetA(&f.code[e.info], reg)
	case expReg:
		if reg != e.info {
			f.emitABC(lua.OP_MOVE, reg, e.info, 0)
		}
	default: // expVoid and expJump have no value
		return
	}
	e.become(expReg, reg)
}

func (f *function) loadAny(e *exp) {
	if e.kind != expReg {
		f.reserve(1)
		f.load(e, f.free-1)
	}
}

// toReg puts the value into a register, whether or not one of the expression's jumps is taken.
func (f *function) toReg(e *exp, reg int) {
	f.load(e, reg)
	if e.kind == expJump {
		f.join(&e.yes, e.info)
	}
	if e.hasJumps() {
		ifFalse, ifTrue := noJump, noJump
		if f.needsValue(e.yes) || f.needsValue(e.no) {
			over := noJump
			if e.kind != expJump {
				over = f.jump()
			}
			f.label()
			ifFalse = f.emitABC(lua.OP_LOADBOOL, reg, 0, 1)
			f.label()
			ifTrue = f.emitABC(lua.OP_LOADBOOL, reg, 1, 0)
			f.patchHere(over)
		}
		end := f.label()
		f.patchList(e.no, end, reg, ifFalse)
		f.patchList(e.yes, end, reg, ifTrue)
	}
	*e = newExp(expReg, reg)
}

func (f *function) freeExp(e *exp) {
	if e.kind == expReg {
		f.release(e.info)
	}
}

func (f *function) toNextReg(e *exp) {
	f.discharge(e)
	f.freeExp(e)
	f.reserve(1)
	f.toReg(e, f.free-1)
}

func (f *function) toAnyReg(e *exp) int {
	f.discharge(e)
	if e.kind == expReg {
		if !e.hasJumps() {
			return e.info
		}
		if e.info >= len(f.active) { // not a variable
			f.toReg(e, e.info)
			return e.info
		}
	}
	f.toNextReg(e)
	return e.info
}

func (f *function) toValue(e *exp) {
	if e.hasJumps() {
		f.toAnyReg(e)
	} else {
		f.discharge(e)
	}
}

// toRK makes the value an operand: a register, or a constant whose index fits into an operand.
func (f *function) toRK(e *exp) int {
	f.toValue(e)
	switch e.kind {
	case expNumber, expTrue, expFalse, expNil:
		if len(f.consts) < interp.RKConst {
			e.become(expConst, f.constant(e.literal()))
			return e.info | interp.RKConst
		}
	case expConst:
		if e.info < interp.RKConst {
			return e.info | interp.RKConst
		}
	}
	return f.toAnyReg(e)
}

func (e *exp) literal() lua.LValue {
	switch e.kind {
	case expTrue:
		return lua.LTrue
	case expFalse:
		return lua.LFalse
	case expNumber:
		return e.num
	}
	return lua.LNil
}

// store assigns a value to a variable.
func (f *function) store(v, e *exp) {
	switch v.kind {
	case expLocal:
		f.freeExp(e)
		f.toReg(e, v.info)
		return
	case expUpvalue:
		f.emitABC(lua.OP_SETUPVAL, f.toAnyReg(e), v.info, 0)
	case expGlobal:
		f.emitABx(lua.OP_SETGLOBAL, f.toAnyReg(e), v.info)
	case expIndexed:
		op := lua.OP_SETTABLE
		if f.isStringConst(v.aux) {
			op = lua.OP_SETTABLEKS
		}
		f.emitABC(op, v.info, v.aux, f.toRK(e))
	}
	f.freeExp(e)
}

// self generates the lookup of the method key of the object e.
func (f *function) self(e, key *exp) {
	f.toAnyReg(e)
	f.freeExp(e)
	base := f.free
	f.reserve(2)
	f.emitABC(lua.OP_SELF, base, e.info, f.toRK(key))
	f.freeExp(key)
	e.become(expReg, base)
}

func (f *function) indexed(t, key *exp) {
	t.aux = f.toRK(key)
	t.kind = expIndexed
}

// Conditions.

func (f *function) invert(e *exp) {
	i := f.control(e.info)
	interp.SetA(i, 1-interp.ArgA(*i))
}

func (f *function) jumpIf(e *exp, cond int) int {
	if e.kind == expReloc && interp.OpOf(f.code[e.info]) == lua.OP_NOT {
		not := f.code[e.info]
		f.code, f.lines = f.code[:f.pc()-1], f.lines[:f.pc()-1]
		return f.condJump(lua.OP_TEST, interp.ArgB(not), 0, 1-cond)
	}
	f.loadAny(e)
	f.freeExp(e)
	return f.condJump(lua.OP_TESTSET, noReg, e.info, cond)
}

// goOnIfTrue adds a jump for a false e to e.no. A constant false needs a test, or earlier jumps with values would join e.no.
func (f *function) goOnIfTrue(e *exp) {
	f.discharge(e)
	pc := noJump
	switch e.kind {
	case expConst, expNumber, expTrue:
	case expJump:
		f.invert(e)
		pc = e.info
	default:
		pc = f.jumpIf(e, 0)
	}
	f.join(&e.no, pc)
	f.patchHere(e.yes)
	e.yes = noJump
}

func (f *function) goOnIfFalse(e *exp) {
	f.discharge(e)
	pc := noJump
	switch e.kind {
	case expNil, expFalse:
	case expJump:
		pc = e.info
	default:
		pc = f.jumpIf(e, 1)
	}
	f.join(&e.yes, pc)
	f.patchHere(e.no)
	e.no = noJump
}

func (f *function) not(e *exp) {
	f.discharge(e)
	switch e.kind {
	case expNil, expFalse:
		e.kind = expTrue
	case expConst, expNumber, expTrue:
		e.kind = expFalse
	case expJump:
		f.invert(e)
	default:
		f.loadAny(e)
		f.freeExp(e)
		e.become(expReloc, f.emitABC(lua.OP_NOT, 0, e.info, 0))
	}
	e.yes, e.no = e.no, e.yes
	f.dropValues(e.no)
	f.dropValues(e.yes)
}

// fold computes arithmetic on two numerals at compile time, except a division by zero or a NaN. The result is in a.
func fold(op int, a, b *exp) bool {
	if !a.isNumeral() || !b.isNumeral() {
		return false
	}
	x, y := float64(a.num), float64(b.num)
	var r float64
	switch op {
	case lua.OP_ADD:
		r = x + y
	case lua.OP_SUB:
		r = x - y
	case lua.OP_MUL:
		r = x * y
	case lua.OP_DIV:
		if y == 0 {
			return false
		}
		r = x / y
	case lua.OP_MOD:
		if y == 0 {
			return false
		}
		r = clib.Modulo(x, y)
	case lua.OP_POW:
		r = clib.Pow(x, y)
	case lua.OP_UNM:
		r = -x
	default:
		return false
	}
	if math.IsNaN(r) {
		return false
	}
	a.num = lua.LNumber(r)
	return true
}

func (f *function) arith(op int, a, b *exp) {
	if fold(op, a, b) {
		return
	}
	y := 0
	if op != lua.OP_UNM && op != lua.OP_LEN {
		y = f.toRK(b)
	}
	x := f.toRK(a)
	if x > y {
		f.freeExp(a)
		f.freeExp(b)
	} else {
		f.freeExp(b)
		f.freeExp(a)
	}
	a.become(expReloc, f.emitABC(op, 0, x, y))
}

func (f *function) compare(op, cond int, a, b *exp) {
	x := f.toRK(a)
	y := f.toRK(b)
	f.freeExp(b)
	f.freeExp(a)
	if cond == 0 && op != lua.OP_EQ { // a > b is b < a
		x, y = y, x
		cond = 1
	}
	a.become(expJump, f.condJump(op, cond, x, y))
}

// unary applies not, - or # to an expression.
func (f *function) unary(op tokenKind, e *exp) {
	none := newExp(expNumber, 0)
	switch op {
	case tkNot:
		f.not(e)
	case '-':
		if !e.isNumeral() {
			f.toAnyReg(e)
		}
		f.arith(lua.OP_UNM, e, &none)
	case '#':
		// luavm's hook may replace the operand, so the operand gets a register of its own.
		if f.toAnyReg(e) < len(f.active) {
			f.toNextReg(e)
		}
		f.arith(lua.OP_LEN, e, &none)
	}
}

// firstOperand generates the code between the first operand and the second.
func (f *function) firstOperand(op tokenKind, e *exp) {
	switch op {
	case tkAnd:
		f.goOnIfTrue(e)
	case tkOr:
		f.goOnIfFalse(e)
	case tkConcat:
		f.toNextReg(e)
	case '+', '-', '*', '/', '%', '^':
		if !e.isNumeral() {
			f.toRK(e)
		}
	default:
		f.toRK(e)
	}
}

var arithmeticOps = map[tokenKind]int{
	'+': lua.OP_ADD, '-': lua.OP_SUB, '*': lua.OP_MUL, '/': lua.OP_DIV, '%': lua.OP_MOD, '^': lua.OP_POW,
}

func (f *function) binary(op tokenKind, a, b *exp) {
	switch op {
	case tkAnd:
		f.discharge(b)
		f.join(&b.no, a.no)
		*a = *b
	case tkOr:
		f.discharge(b)
		f.join(&b.yes, a.yes)
		*a = *b
	case tkConcat:
		f.toValue(b)
		if b.kind == expReloc && interp.OpOf(f.code[b.info]) == lua.OP_CONCAT {
			f.freeExp(a)
			interp.SetB(&f.code[b.info], a.info)
			a.become(expReloc, b.info)
			return
		}
		f.toNextReg(b)
		f.arith(lua.OP_CONCAT, a, b)
	case tkEq:
		f.compare(lua.OP_EQ, 1, a, b)
	case tkNe:
		f.compare(lua.OP_EQ, 0, a, b)
	case '<':
		f.compare(lua.OP_LT, 1, a, b)
	case tkLe:
		f.compare(lua.OP_LE, 1, a, b)
	case '>':
		f.compare(lua.OP_LT, 0, a, b)
	case tkGe:
		f.compare(lua.OP_LE, 0, a, b)
	default:
		f.arith(arithmeticOps[op], a, b)
	}
}

// setList stores the values above register base in its table. waiting is their number (multiple: up to the top), items that of the
// constructor so far.
func (f *function) setList(base, items, waiting int) {
	n := waiting
	if waiting == multiple {
		n = 0
	}
	if batch := (items-1)/itemsPerFlush + 1; batch <= interp.MaxC {
		f.emitABC(lua.OP_SETLIST, base, n, batch)
	} else {
		f.emitABC(lua.OP_SETLIST, base, n, 0)
		f.emit(uint32(batch))
	}
	f.free = base + 1
}

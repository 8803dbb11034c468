package compile

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// target is a variable on the left of an assignment; the field previous is the target before it, or nil.
type target struct {
	previous *target
	v        exp
}

// exprStatement reads a call or an assignment.
func (p *parser) exprStatement() {
	p.took(targetBytes)
	t := &target{v: p.primary()}
	if t.v.kind == expCall {
		interp.SetC(&p.f.code[t.v.info], 1) // no results
		return
	}
	p.assignment(t, 1)
}

func (p *parser) assignment(t *target, n int) {
	f := p.f
	if t.v.kind < expLocal || t.v.kind > expIndexed {
		p.syntax("syntax error")
	}
	var e exp
	if p.accept(',') {
		p.took(targetBytes)
		next := &target{previous: t, v: p.primary()}
		if next.v.kind == expLocal {
			p.keepIndexes(t, &next.v)
		}
		f.limit(n, maxLevels-p.level, "variables in assignment")
		p.assignment(next, n+1)
	} else {
		p.expect('=')
		var values int
		values, e = p.exprList()
		if values == n {
			f.oneReturn(&e)
			f.store(&t.v, &e)
			return
		}
		p.adjust(n, values, &e)
		if values > n {
			f.free -= values - n
		}
	}
	e = newExp(expReg, f.free-1)
	f.store(&t.v, &e)
}

// keepIndexes copies the local variable v, a target, if earlier targets of the assignment use v as table or index: they need its old
// value.
func (p *parser) keepIndexes(t *target, v *exp) {
	f := p.f
	extra, conflict := f.free, false
	for ; t != nil; t = t.previous {
		p.work(1)
		if t.v.kind != expIndexed {
			continue
		}
		if t.v.info == v.info {
			t.v.info, conflict = extra, true
		}
		if t.v.aux == v.info {
			t.v.aux, conflict = extra, true
		}
	}
	if conflict {
		f.emitABC(lua.OP_MOVE, extra, v.info, 0)
		f.reserve(1)
	}
}

// adjust makes n expressions, of which e is the last, give one value in a register to each of vars variables. Surplus expressions keep
// theirs.
func (p *parser) adjust(vars, n int, e *exp) {
	f := p.f
	extra := vars - n
	if e.isMulti() {
		extra = max(extra+1, 0)
		f.setReturns(e, extra)
		if extra > 1 {
			f.reserve(extra - 1)
		}
		return
	}
	if e.kind != expVoid {
		f.toNextReg(e)
	}
	if extra > 0 {
		reg := f.free
		f.reserve(extra)
		f.emitABC(lua.OP_LOADNIL, reg, reg+extra-1, 0)
	}
}

// exprList reads a list of expressions. It puts all but the last, e, into registers.
func (p *parser) exprList() (n int, e exp) {
	n, e = 1, p.expr()
	for p.accept(',') {
		p.f.toNextReg(&e)
		e = p.expr()
		n++
	}
	return n, e
}

func (p *parser) variable(name string) exp {
	v := p.f.find(name)
	if v.kind == expGlobal {
		v.info = p.f.stringConst(name)
	}
	return v
}

func (p *parser) nameExp() exp { return newExp(expConst, p.f.stringConst(p.name())) }

// field reads .name, or :name in a function statement.
func (p *parser) field(e *exp) {
	p.f.toAnyReg(e)
	p.advance()
	key := p.nameExp()
	p.f.indexed(e, &key)
}

// index reads [expr].
func (p *parser) index() exp {
	p.advance()
	e := p.expr()
	p.f.toValue(&e)
	p.expect(']')
	return e
}

func (p *parser) prefix() exp {
	switch p.t.kind {
	case '(':
		line := p.x.line
		p.advance()
		e := p.expr()
		p.match(')', '(', line)
		p.f.discharge(&e)
		return e
	case tkName:
		return p.variable(p.name())
	}
	p.syntax("unexpected symbol")
	return exp{}
}

func (p *parser) primary() exp {
	f := p.f
	e := p.prefix()
	for {
		switch p.t.kind {
		case '.':
			p.field(&e)
		case '[':
			f.toAnyReg(&e)
			key := p.index()
			f.indexed(&e, &key)
		case ':':
			p.advance()
			key := p.nameExp()
			f.self(&e, &key)
			p.call(&e)
		case '(', tkString, '{':
			f.toNextReg(&e)
			p.call(&e)
		default:
			return e
		}
	}
}

// call reads the arguments of a call.
func (p *parser) call(e *exp) {
	f := p.f
	line := p.x.line
	args := newExp(expVoid, 0)
	switch p.t.kind {
	case '(':
		if line != p.lastLine {
			p.syntax("ambiguous syntax (function call x new statement)")
		}
		p.advance()
		if p.t.kind != ')' {
			_, args = p.exprList()
			f.setReturns(&args, multiple)
		}
		p.match(')', '(', line)
	case '{':
		args = p.table()
	case tkString:
		args = newExp(expConst, f.stringConst(p.t.value))
		p.advance()
	default:
		p.syntax("function arguments expected")
	}
	base, n := e.info, multiple
	if !args.isMulti() {
		if args.kind != expVoid {
			f.toNextReg(&args)
		}
		n = f.free - (base + 1)
	}
	*e = newExp(expCall, f.emitABC(lua.OP_CALL, base, n+1, 2))
	f.fixLine(line)
	f.free = base + 1
}

// table reads a constructor.
func (p *parser) table() exp {
	f := p.f
	line := p.x.line
	pc := f.emitABC(lua.OP_NEWTABLE, 0, 0, 0)
	t := newExp(expReloc, pc)
	f.toNextReg(&t)
	item := newExp(expVoid, 0)
	items, waiting, fields := 0, 0, 0
	p.expect('{')
	for p.t.kind != '}' {
		if item.kind != expVoid {
			f.toNextReg(&item)
			item.kind = expVoid
			if waiting == itemsPerFlush {
				f.setList(t.info, items, waiting)
				waiting = 0
			}
		}
		if p.t.kind == '[' || p.t.kind == tkName && p.peek() == '=' {
			p.record(t.info)
			fields++
		} else {
			item = p.expr()
			items++
			waiting++
		}
		if !p.accept(',') && !p.accept(';') {
			break
		}
	}
	p.match('}', '{', line)
	switch {
	case waiting == 0:
	case item.isMulti():
		f.setReturns(&item, multiple)
		f.setList(t.info, items, multiple)
		items--
	default:
		if item.kind != expVoid {
			f.toNextReg(&item)
		}
		f.setList(t.info, items, waiting)
	}
	interp.SetB(&f.code[pc], min(items, 0x1ff))
	interp.SetC(&f.code[pc], min(fields, roomForFields))
	return t
}

// roomForFields bounds the room that a constructor makes in advance. Even the smallest map has this much, and more may be wasted.
const roomForFields = 8

// record reads a field of a constructor with its key, name = value or [key] = value. table is the table's register.
func (p *parser) record(table int) {
	f := p.f
	reg := f.free
	var key exp
	if p.t.kind == tkName {
		key = p.nameExp()
	} else {
		key = p.index()
	}
	p.expect('=')
	k := f.toRK(&key)
	value := p.expr()
	op := lua.OP_SETTABLE
	if f.isStringConst(k) {
		op = lua.OP_SETTABLEKS
	}
	v := f.toRK(&value)
	f.emitABC(op, table, k, v)
	f.free = reg
}

// body reads a function from its parameters on; line is the line of its keyword.
func (p *parser) body(method bool, line int) exp {
	outer := p.f
	f := p.newFunction(outer, line)
	p.f = f
	p.expect('(')
	if method {
		f.declare("self")
		f.activate(1)
	}
	p.parameters()
	p.expect(')')
	p.chunk()
	p.match(tkEnd, tkFunction, line)
	proto := f.finish()
	p.f = outer
	if len(outer.protos) > interp.MaxBx {
		p.syntax("constant table overflow")
	}
	outer.protos = push(&p.meter, outer.protos, proto)
	e := newExp(expReloc, outer.emitABx(lua.OP_CLOSURE, 0, len(outer.protos)-1))
	for _, u := range f.upvalues {
		op := lua.OP_GETUPVAL
		if u.inFrame {
			op = lua.OP_MOVE
		}
		outer.emitABC(op, 0, u.index, 0)
	}
	p.reuse(f)
	return e
}

func (p *parser) parameters() {
	f := p.f
	n := 0
	for p.t.kind != ')' || n > 0 {
		switch p.t.kind {
		case tkName:
			f.declare(p.name())
			n++
		case tkDots:
			p.advance()
			f.declare("arg")
			n++
			f.vararg = lua.VarArgHasArg | lua.VarArgIsVarArg | lua.VarArgNeedsArg
		default:
			p.syntax("<name> or '...' expected")
		}
		if f.vararg != 0 || !p.accept(',') {
			break
		}
	}
	f.activate(n)
	f.params = len(f.active)
	if f.vararg != 0 {
		f.params--
	}
	f.reserve(len(f.active))
}

// simple reads an operand.
func (p *parser) simple() exp {
	f := p.f
	var e exp
	switch p.t.kind {
	case tkNumber:
		e = newExp(expNumber, 0)
		e.num = p.t.number
	case tkString:
		e = newExp(expConst, f.stringConst(p.t.value))
	case tkNil:
		e = newExp(expNil, 0)
	case tkTrue:
		e = newExp(expTrue, 0)
	case tkFalse:
		e = newExp(expFalse, 0)
	case tkDots:
		if f.vararg == 0 {
			p.syntax("cannot use '...' outside a vararg function")
		}
		f.vararg &^= lua.VarArgNeedsArg
		e = newExp(expVararg, f.emitABC(lua.OP_VARARG, 0, 1, 0))
	case '{':
		return p.table()
	case tkFunction:
		line := p.x.line
		p.advance()
		return p.body(false, line)
	default:
		return p.primary()
	}
	p.advance()
	return e
}

// priority has each binary operator's priority against the operator to its left, and against the operator to its right.
var priority = map[tokenKind][2]int{
	'+': {6, 6}, '-': {6, 6}, '*': {7, 7}, '/': {7, 7}, '%': {7, 7},
	'^': {10, 9}, tkConcat: {5, 4},
	tkNe: {3, 3}, tkEq: {3, 3}, '<': {3, 3}, tkLe: {3, 3}, '>': {3, 3}, tkGe: {3, 3},
	tkAnd: {2, 2}, tkOr: {1, 1},
}

const unaryPriority = 8

func (p *parser) expr() exp { return p.subExpr(0) }

// subExpr reads an expression up to the first binary operator whose priority to the left is not above limit.
func (p *parser) subExpr(limit int) exp {
	p.enterLevel()
	var e exp
	switch op := p.t.kind; op {
	case tkNot, '-', '#':
		p.advance()
		e = p.subExpr(unaryPriority)
		p.f.unary(op, &e)
	default:
		e = p.simple()
	}
	for {
		op := p.t.kind
		prio, ok := priority[op]
		if !ok || prio[0] <= limit {
			break
		}
		p.advance()
		p.f.firstOperand(op, &e)
		second := p.subExpr(prio[1])
		if op == '%' || op == '^' {
			if fold(arithmeticOps[op], &e, &second) {
				continue
			}
			p.ownOperands(&e, &second)
		}
		p.f.binary(op, &e, &second)
	}
	p.level--
	return e
}

// ownOperands puts both operands of % or ^ into registers of their own, where luavm's hook replaces them. As in C Lua, it reads a local
// first operand last.
func (p *parser) ownOperands(a, b *exp) {
	f := p.f
	f.toNextReg(b)
	if a.kind != expReg || a.info < len(f.active) {
		f.toNextReg(a)
	}
}

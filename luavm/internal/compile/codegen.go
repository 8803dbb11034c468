package compile

import (
	"fmt"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// This file is the code generator. gopher-lua runs Lua 5.1's instruction set, but its own compiler miscompiles some programs. So this
// package generates the instructions, in one pass while the parser reads, by the method of C Lua's compiler: an expression stays a
// description for as long as possible (codegen_expr.go), and the jumps to one unknown target form a list that is linked through their
// operands. Instructions, lines and names equal C Lua's, except where gopher-lua needs others. So the error messages equal C Lua's, too.

const (
	noJump   = -1
	noReg    = 0xff
	multiple = -1 // as a number of results: all of them

	maxStackRegs  = 250
	itemsPerFlush = 50 // items that one SETLIST stores
)

// place identifies a local variable in scope by its function and its register.
type place struct {
	f        *function
	register int
}

// local is a local variable in scope.
type local struct {
	*lua.DbgLocalInfo
	block *block // the innermost block around it; nil: the body of the function
	hides place  // the variable of the same name that this one hides; place{} if there is none
}

// upvalue says where a closure finds a variable of an enclosing function.
type upvalue struct {
	name    string
	of      place
	inFrame bool // the directly enclosing function has the variable as a local; false: as an upvalue
	index   int
}

// block is a block of statements.
type block struct {
	previous  *block
	breaks    int // list of the break statements' jumps, if the block is a loop
	active    int // number of locals in scope around the block
	captured  bool
	breakable bool
}

// function is a function being compiled.
type function struct {
	p      *parser
	parent *function
	line   int // 0 for the main chunk

	code   []uint32
	lines  []int
	consts []lua.LValue
	index  map[lua.LValue]int
	protos []*lua.FunctionProto

	params    int
	vararg    uint8
	upvalues  []upvalue
	variables []*lua.DbgLocalInfo // in the order of declaration
	active    []local             // in scope, by register
	pending   []*lua.DbgLocalInfo // declared, not yet in scope
	block     *block
	here      int // list of jumps to the next instruction
	free      int // first free register
	size      int // registers that the function needs in all
}

func (p *parser) newFunction(parent *function, line int) *function {
	var f *function
	if n := len(p.spare); n > 0 {
		f, p.spare = p.spare[n-1], p.spare[:n-1]
	} else {
		p.took(functionBytes)
		f = &function{index: map[lua.LValue]int{}}
	}
	f.p, f.parent, f.line, f.here, f.size = p, parent, line, noJump, 2
	return f
}

// maxSpareIndex bounds the maps that are used again: emptying a map takes time for its largest size ever.
const maxSpareIndex = 64

// reuse keeps the memory of a finished function for one that is compiled later.
func (p *parser) reuse(f *function) {
	clear(f.consts)
	clear(f.protos)
	clear(f.variables)
	clear(f.upvalues)
	if len(f.index) > maxSpareIndex {
		f.index = map[lua.LValue]int{}
	}
	clear(f.index)
	*f = function{
		index: f.index, code: f.code[:0], lines: f.lines[:0], consts: f.consts[:0], protos: f.protos[:0],
		upvalues: f.upvalues[:0], variables: f.variables[:0], active: f.active[:0], pending: f.pending[:0],
	}
	p.spare = push(&p.meter, p.spare, f)
}

func (f *function) pc() int { return len(f.code) }

func (f *function) emit(inst uint32) int {
	pending := f.here
	f.here = noJump
	f.patchList(pending, f.pc(), noReg, f.pc())
	f.code = push(&f.p.meter, f.code, inst)
	f.lines = push(&f.p.meter, f.lines, f.p.lastLine)
	return f.pc() - 1
}

func (f *function) emitABC(op, a, b, c int) int { return f.emit(interp.InstABC(op, a, b, c)) }
func (f *function) emitABx(op, a, bx int) int   { return f.emit(interp.InstABx(op, a, bx)) }
func (f *function) emitAsBx(op, a, n int) int   { return f.emit(interp.InstABx(op, a, n+interp.MaxSbx)) }

// fixLine gives the latest instruction another line.
func (f *function) fixLine(line int) { f.lines[f.pc()-1] = line }

// Jumps.

func (f *function) jump() int {
	pending := f.here
	f.here = noJump
	j := f.emitAsBx(lua.OP_JMP, 0, noJump)
	f.join(&j, pending) // a jump to this jump goes to the target of this jump instead
	return j
}

func (f *function) condJump(op, a, b, c int) int {
	f.emitABC(op, a, b, c)
	return f.jump()
}

func (f *function) fixJump(pc, dest int) {
	offset := dest - (pc + 1)
	if offset > interp.MaxSbx || offset < -interp.MaxSbx {
		f.p.syntax("control structure too long")
	}
	interp.SetSbx(&f.code[pc], offset)
}

// label returns the index of the next instruction, for jumps to it.
func (f *function) label() int {
	return f.pc()
}

// follow returns the jump that comes after the jump at pc in its list, or noJump.
func (f *function) follow(pc int) int {
	offset := interp.ArgSbx(f.code[pc])
	if offset == noJump {
		return noJump
	}
	return pc + 1 + offset
}

// control returns the instruction that decides whether the jump at pc is taken: the test before it, or the jump itself if there is
// no test.
func (f *function) control(pc int) *uint32 {
	if pc >= 1 {
		switch interp.OpOf(f.code[pc-1]) {
		case lua.OP_EQ, lua.OP_LT, lua.OP_LE, lua.OP_TEST, lua.OP_TESTSET:
			return &f.code[pc-1]
		}
	}
	return &f.code[pc]
}

// needsValue reports whether a list has a jump that puts no value into a register: one without a TESTSET.
func (f *function) needsValue(list int) bool {
	for ; list != noJump; list = f.follow(list) {
		f.p.work(1)
		if interp.OpOf(*f.control(list)) != lua.OP_TESTSET {
			return true
		}
	}
	return false
}

// patchTest makes the TESTSET of the jump at pc set reg. Where that is needless, it makes a TEST. Without a TESTSET, it returns false.
func (f *function) patchTest(pc, reg int) bool {
	i := f.control(pc)
	if interp.OpOf(*i) != lua.OP_TESTSET {
		return false
	}
	if reg != noReg && reg != interp.ArgB(*i) {
		interp.SetA(i, reg)
	} else {
		*i = interp.InstABC(lua.OP_TEST, interp.ArgB(*i), 0, interp.ArgC(*i))
	}
	return true
}

func (f *function) dropValues(list int) {
	for ; list != noJump; list = f.follow(list) {
		f.p.work(1)
		f.patchTest(list, noReg)
	}
}

// patchList makes each jump of a list that has a TESTSET put its value into reg (unless reg is noReg) and go to the instruction withValue.
// The jumps that have no TESTSET go to the instruction `without`.
func (f *function) patchList(list, withValue, reg, without int) {
	for list != noJump {
		f.p.work(1)
		next := f.follow(list)
		if f.patchTest(list, reg) {
			f.fixJump(list, withValue)
		} else {
			f.fixJump(list, without)
		}
		list = next
	}
}

func (f *function) patch(list, target int) {
	if target == f.pc() {
		f.patchHere(list)
		return
	}
	f.patchList(list, target, noReg, target)
}

func (f *function) patchHere(list int) {
	f.label()
	f.join(&f.here, list)
}

// join appends the jumps of list to *to, which is a list of jumps, too.
func (f *function) join(to *int, list int) {
	if list == noJump {
		return
	}
	if *to == noJump {
		*to = list
		return
	}
	last := *to
	for next := f.follow(last); next != noJump; next = f.follow(last) {
		f.p.work(1)
		last = next
	}
	f.fixJump(last, list)
}

// Registers and constants.

func (f *function) need(n int) {
	if size := f.free + n; size > f.size {
		if size >= maxStackRegs {
			f.p.syntax("function or expression too complex")
		}
		f.size = size
	}
}

func (f *function) reserve(n int) {
	f.need(n)
	f.free += n
}

func (f *function) release(rk int) {
	if rk&interp.RKConst == 0 && rk >= len(f.active) {
		f.free--
	}
}

func (f *function) constant(v lua.LValue) int {
	f.p.took(boxBytes)
	if i, ok := f.index[v]; ok {
		return i
	}
	if len(f.consts) > interp.MaxBx {
		f.p.syntax("constant table overflow")
	}
	f.p.took(constantBytes)
	f.consts = push(&f.p.meter, f.consts, v)
	f.index[v] = len(f.consts) - 1
	return len(f.consts) - 1
}

func (f *function) stringConst(s string) int { return f.constant(lua.LString(s)) }

// isStringConst reports whether a key is a constant string, for which the interpreter has
// faster instructions.
func (f *function) isStringConst(rk int) bool {
	if rk&interp.RKConst == 0 {
		return false
	}
	_, ok := f.consts[rk&^interp.RKConst].(lua.LString)
	return ok
}

// Variables.

func (f *function) limit(n, limit int, what string) {
	if n <= limit {
		return
	}
	where := "main function"
	if f.line > 0 {
		where = fmt.Sprintf("function at line %d", f.line)
	}
	f.p.x.fail(fmt.Sprintf("%s has more than %d %s", where, limit, what), "")
}

// declare declares variables; activate brings them into scope.
func (f *function) declare(names ...string) {
	for _, name := range names {
		f.limit(len(f.active)+len(f.pending)+1, maxLocals, "local variables")
		f.p.took(infoBytes)
		f.pending = push(&f.p.meter, f.pending, &lua.DbgLocalInfo{Name: name})
	}
}

func (f *function) activate(n int) {
	for _, v := range f.pending[:n] {
		v.StartPc = f.pc()
		f.variables = push(&f.p.meter, f.variables, v)
		hides, known := f.p.scope[v.Name]
		if !known {
			f.p.took(nameBytes)
		}
		f.p.scope[v.Name] = place{f, len(f.active)}
		f.active = push(&f.p.meter, f.active, local{v, f.block, hides})
	}
	f.pending = append(f.pending[:0], f.pending[n:]...)
}

func (f *function) deactivate(to int) {
	for i := len(f.active) - 1; i >= to; i-- {
		v := f.active[i]
		v.EndPc = f.pc()
		if v.hides.f != nil {
			f.p.scope[v.Name] = v.hides
		} else {
			delete(f.p.scope, v.Name)
		}
	}
	f.active = f.active[:to]
}

func (f *function) enter(breakable bool) *block {
	f.p.took(blockBytes)
	b := &block{previous: f.block, breaks: noJump, active: len(f.active), breakable: breakable}
	f.block = b
	return b
}

func (f *function) leave() {
	b := f.block
	f.block = b.previous
	f.deactivate(b.active)
	if b.captured {
		f.emitABC(lua.OP_CLOSE, b.active, 0, 0)
	}
	f.free = len(f.active)
	f.patchHere(b.breaks)
}

// find returns the variable that a name means.
func (f *function) find(name string) exp {
	switch at := f.p.scope[name]; at.f {
	case nil:
		return newExp(expGlobal, noReg)
	case f:
		return newExp(expLocal, at.register)
	default:
		return newExp(expUpvalue, f.upvalue(name, at))
	}
}

// upvalue returns the index of f's upvalue for a variable of an enclosing function. It adds a missing one.
func (f *function) upvalue(name string, of place) int {
	f.p.work(1 + len(f.upvalues)/comparedInStep)
	for i := range f.upvalues {
		if f.upvalues[i].of == of {
			return i
		}
	}
	u := upvalue{name: name, of: of, inFrame: of.f == f.parent, index: of.register}
	if u.inFrame {
		f.parent.capture(of.register)
	} else {
		u.index = f.parent.upvalue(name, of)
	}
	f.limit(len(f.upvalues)+1, maxUpvalues, "upvalues")
	f.upvalues = push(&f.p.meter, f.upvalues, u)
	return len(f.upvalues) - 1
}

// capture notes that a closure uses the local variable in a register, so that the method leave closes the variable at the end of its
// block.
func (f *function) capture(register int) {
	if b := f.active[register].block; b != nil {
		b.captured = true
	}
}

// finish ends a function and returns its prototype for gopher-lua.
func (f *function) finish() *lua.FunctionProto {
	f.deactivate(0)
	f.emitABC(lua.OP_RETURN, 0, 1, 0)
	m := &f.p.meter
	m.keeps(protoBytes)
	// NumUsedRegisters is one more than the function uses, because gopher-lua's tail call
	// does not move the last register of a frame.
	p := &lua.FunctionProto{
		SourceName:         f.p.shown,
		LineDefined:        f.line,
		LastLineDefined:    f.p.lastLine,
		NumUpvalues:        uint8(len(f.upvalues)),
		NumParameters:      uint8(f.params),
		IsVarArg:           f.vararg,
		NumUsedRegisters:   uint8(f.size + 1),
		Code:               exact(m, f.code),
		Constants:          exact(m, f.consts),
		FunctionPrototypes: exact(m, f.protos),
		DbgSourcePositions: exact(m, f.lines),
		DbgLocals:          exact(m, f.variables),
	}
	m.keeps((len(f.upvalues) + len(f.consts)) * size[string]())
	p.DbgUpvalues = make([]string, len(f.upvalues))
	for i, u := range f.upvalues {
		p.DbgUpvalues[i] = u.name
	}
	strs := make([]string, len(f.consts))
	for i, c := range f.consts {
		if s, ok := c.(lua.LString); ok {
			strs[i] = string(s)
		}
	}
	interp.SetStringConstants(p, strs)
	return p
}

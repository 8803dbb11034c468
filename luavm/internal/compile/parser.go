package compile

import (
	"fmt"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// These are limits of C Lua (luaconf.h), except maxSourceBytes: C Lua does not limit the length of a source.
const (
	maxLevels      = 200
	maxLocals      = 200
	maxUpvalues    = 60
	maxSourceBytes = 1 << 20
)

// parser reads a chunk by recursive descent, and calls the code generator.
type parser struct {
	meter
	x        *lexer
	t        token // the current token
	lastLine int   // line of the token before t
	ahead    token // the token after t, if …
	peeked   bool  // … it has been read
	f        *function
	spare    []*function // finished functions, whose memory new functions use
	level    int
	scope    map[string]place // the innermost local variable of a name
	shown    string           // name of the source in errors at run time
}

func parse(source, name, shown string, level int, watch func(Progress)) *lua.FunctionProto {
	p := &parser{lastLine: 1, shown: shown, level: level, scope: map[string]place{}}
	p.watch, p.over = watch, func() { p.syntax("function or expression too complex") }
	p.x = &lexer{m: &p.meter, src: source, name: name, line: 1}
	p.f = p.newFunction(nil, 0)
	p.f.vararg = lua.VarArgIsVarArg
	p.advance()
	p.chunk()
	p.check(tkEOS)
	proto := p.f.finish()
	watch(Progress{Bytes: p.bytes, Kept: p.kept})
	return proto
}

func (p *parser) advance() {
	p.work(1)
	p.lastLine = p.x.line
	if p.peeked {
		p.t, p.peeked = p.ahead, false
		return
	}
	p.t = p.x.next()
}

func (p *parser) peek() tokenKind {
	p.ahead, p.peeked = p.x.next(), true
	return p.ahead.kind
}

// syntax raises an error at the current token.
func (p *parser) syntax(msg string) {
	near := p.t.kind.String()
	switch p.t.kind {
	case tkName, tkNumber, tkString:
		near = p.t.text
	case 0:
		near = "" // C Lua shows no token for a zero byte
	}
	p.x.fail(msg, near)
}

func (p *parser) expected(k tokenKind) { p.syntax("'" + k.String() + "' expected") }

func (p *parser) check(k tokenKind) {
	if p.t.kind != k {
		p.expected(k)
	}
}

func (p *parser) expect(k tokenKind) {
	p.check(k)
	p.advance()
}

func (p *parser) accept(k tokenKind) bool {
	if p.t.kind != k {
		return false
	}
	p.advance()
	return true
}

// match reads the token what, which closes the earlier token who of the given line.
func (p *parser) match(what, who tokenKind, line int) {
	if p.accept(what) {
		return
	}
	if line == p.x.line {
		p.expected(what)
	}
	p.syntax(fmt.Sprintf("'%s' expected (to close '%s' at line %d)", what, who, line))
}

func (p *parser) name() string {
	p.check(tkName)
	s := p.t.value
	p.advance()
	return s
}

func (p *parser) enterLevel() {
	p.level++
	if p.level > maxLevels {
		p.x.fail("chunk has too many syntax levels", "")
	}
}

func (p *parser) blockFollows() bool {
	switch p.t.kind {
	case tkElse, tkElseif, tkEnd, tkUntil, tkEOS:
		return true
	}
	return false
}

func (p *parser) chunk() {
	p.enterLevel()
	for last := false; !last && !p.blockFollows(); {
		last = p.statement()
		p.accept(';')
		p.f.free = len(p.f.active)
	}
	p.level--
}

func (p *parser) block() {
	p.f.enter(false)
	p.chunk()
	p.f.leave()
}

// statement reads a statement; last is true if no other statement may follow.
func (p *parser) statement() (last bool) {
	line := p.x.line
	switch p.t.kind {
	case tkIf:
		p.ifStatement(line)
	case tkWhile:
		p.whileStatement(line)
	case tkDo:
		p.advance()
		p.block()
		p.match(tkEnd, tkDo, line)
	case tkFor:
		p.forStatement(line)
	case tkRepeat:
		p.repeatStatement(line)
	case tkFunction:
		p.functionStatement(line)
	case tkLocal:
		p.advance()
		if p.accept(tkFunction) {
			p.localFunction()
		} else {
			p.localStatement()
		}
	case tkReturn:
		p.returnStatement()
		return true
	case tkBreak:
		p.advance()
		p.breakLoop()
		return true
	default:
		p.exprStatement()
	}
	return false
}

// condition reads an expression, and returns the jumps that are taken if it is false.
func (p *parser) condition() int {
	e := p.expr()
	if e.kind == expNil {
		e.kind = expFalse
	}
	p.f.goOnIfTrue(&e)
	return e.no
}

func (p *parser) ifStatement(line int) {
	f := p.f
	end := noJump
	next := p.thenBlock()
	for p.t.kind == tkElseif {
		f.join(&end, f.jump())
		f.patchHere(next)
		next = p.thenBlock()
	}
	if p.t.kind == tkElse {
		f.join(&end, f.jump())
		f.patchHere(next)
		p.advance()
		p.block()
	} else {
		f.join(&end, next)
	}
	f.patchHere(end)
	p.match(tkEnd, tkIf, line)
}

func (p *parser) thenBlock() int {
	p.advance()
	exit := p.condition()
	p.expect(tkThen)
	p.block()
	return exit
}

func (p *parser) whileStatement(line int) {
	f := p.f
	p.advance()
	start := f.label()
	exit := p.condition()
	f.enter(true)
	p.expect(tkDo)
	p.block()
	f.patch(f.jump(), start)
	p.match(tkEnd, tkWhile, line)
	f.leave()
	f.patchHere(exit)
}

func (p *parser) repeatStatement(line int) {
	f := p.f
	start := f.label()
	f.enter(true)
	scope := f.enter(false)
	p.advance()
	p.chunk()
	p.match(tkUntil, tkRepeat, line)
	exit := p.condition() // the condition may use the variables of the body
	if !scope.captured {
		f.leave()
		f.patch(exit, start)
	} else {
		p.breakLoop()
		f.patchHere(exit)
		f.leave()
		f.patch(f.jump(), start)
	}
	f.leave()
}

func (p *parser) breakLoop() {
	captured := false
	b := p.f.block
	for b != nil && !b.breakable {
		p.work(1)
		captured = captured || b.captured
		b = b.previous
	}
	if b == nil {
		p.syntax("no loop to break")
	}
	if captured {
		p.f.emitABC(lua.OP_CLOSE, b.active, 0, 0)
	}
	p.f.join(&b.breaks, p.f.jump())
}

func (p *parser) forStatement(line int) {
	p.f.enter(true)
	p.advance()
	name := p.name()
	switch p.t.kind {
	case '=':
		p.numericFor(name, line)
	case ',', tkIn:
		p.genericFor(name)
	default:
		p.syntax("'=' or 'in' expected")
	}
	p.match(tkEnd, tkFor, line)
	p.f.leave()
}

func (p *parser) numericFor(name string, line int) {
	f := p.f
	base := f.free
	f.declare("(for index)", "(for limit)", "(for step)", name)
	p.advance()
	value := func() {
		e := p.expr()
		f.toNextReg(&e)
	}
	value()
	p.expect(',')
	value()
	if p.accept(',') {
		value()
	} else {
		f.emitABx(lua.OP_LOADK, f.free, f.constant(lua.LNumber(1)))
		f.reserve(1)
	}
	f.activate(3)
	p.expect(tkDo)
	prepare := f.emitAsBx(lua.OP_FORPREP, base, noJump)
	p.forBody(1)
	f.patchHere(prepare)
	loop := f.emitAsBx(lua.OP_FORLOOP, base, noJump)
	f.fixLine(line)
	f.patch(loop, prepare+1)
}

func (p *parser) genericFor(name string) {
	f := p.f
	base := f.free
	f.declare("(for generator)", "(for state)", "(for control)", name)
	names := 1
	for p.accept(',') {
		f.declare(p.name())
		names++
	}
	p.expect(tkIn)
	line := p.x.line
	n, e := p.exprList()
	p.adjust(3, n, &e)
	f.need(3) // for the call of the generator
	f.activate(3)
	p.expect(tkDo)
	prepare := f.jump()
	p.forBody(names)
	f.patchHere(prepare)
	f.emitABC(lua.OP_TFORLOOP, base, 0, names)
	f.fixLine(line)
	f.patch(f.jump(), prepare+1)
}

func (p *parser) forBody(names int) {
	p.f.enter(false)
	p.f.activate(names)
	p.f.reserve(names)
	p.block()
	p.f.leave()
}

func (p *parser) functionStatement(line int) {
	p.advance()
	name := p.name()
	v := p.variable(name)
	method := false
	for p.t.kind == '.' {
		p.field(&v)
	}
	if p.t.kind == ':' {
		method = true
		p.field(&v)
	}
	fn := p.body(method, line)
	p.f.store(&v, &fn)
	p.f.fixLine(line)
}

func (p *parser) localFunction() {
	f := p.f
	f.declare(p.name())
	v := newExp(expLocal, f.free)
	f.reserve(1)
	f.activate(1)
	fn := p.body(false, p.x.line)
	f.store(&v, &fn)
	// The local has its value only from here on, so the debug information must not name it earlier.
	f.active[len(f.active)-1].StartPc = f.pc()
}

func (p *parser) localStatement() {
	names := 0
	for {
		p.f.declare(p.name())
		names++
		if !p.accept(',') {
			break
		}
	}
	n, e := 0, newExp(expVoid, 0)
	if p.accept('=') {
		n, e = p.exprList()
	}
	p.adjust(names, n, &e)
	p.f.activate(names)
}

func (p *parser) returnStatement() {
	f := p.f
	p.advance()
	first, n := 0, 0
	if !p.blockFollows() && p.t.kind != ';' {
		var e exp
		n, e = p.exprList()
		switch {
		case e.isMulti():
			f.setReturns(&e, multiple)
			if e.kind == expCall && n == 1 {
				interp.SetOp(&f.code[e.info], lua.OP_TAILCALL)
			}
			first, n = len(f.active), multiple
		case n == 1:
			first = f.toAnyReg(&e)
		default:
			f.toNextReg(&e)
			first = len(f.active)
		}
	}
	f.emitABC(lua.OP_RETURN, first, n+1, 0)
}

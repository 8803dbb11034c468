package luavm

import (
	"fmt"

	"github.com/yuin/gopher-lua/ast"
)

// parser is lparser.c's recursive descent.
type parser struct {
	x        *lexer
	t        token // the current token
	line     int   // of the current token
	lastLine int   // of the token before it
	ahead    *token
	fn       *scope
	level    int
}

func parse(source, name string) (chunk []ast.Stmt, last int) {
	p := &parser{x: &lexer{src: source, name: name, line: 1}, lastLine: 1}
	p.fn = newScope(nil, 0)
	p.fn.vararg = true
	p.advance()
	chunk = p.chunk()
	p.check(tkEOS)
	return chunk, p.line
}

func (p *parser) advance() {
	p.lastLine = p.x.line
	if p.ahead != nil {
		p.t, p.ahead = *p.ahead, nil
	} else {
		p.t = p.x.next()
	}
	p.line = p.x.line
}

func (p *parser) peek() tokenKind {
	t := p.x.next()
	p.ahead = &t
	return t.kind
}

// syntax raises an error at the current token.
func (p *parser) syntax(msg string) {
	near := p.t.text
	if near == "" || p.t.kind != tkName && p.t.kind != tkNumber && p.t.kind != tkString {
		near = p.t.kind.String()
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

// match expects what closes something that was opened on a line.
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

// at gives a node the lines that its instructions will have.
func at[N ast.PositionHolder](n N, first, last int) N {
	n.SetLine(first)
	n.SetLastLine(last)
	return n
}

func (p *parser) blockFollows() bool {
	switch p.t.kind {
	case tkElse, tkElseif, tkEnd, tkUntil, tkEOS:
		return true
	}
	return false
}

func (p *parser) chunk() []ast.Stmt {
	p.enter()
	var stmts []ast.Stmt
	for last := false; !last && !p.blockFollows(); {
		var s ast.Stmt
		s, last = p.statement()
		stmts = append(stmts, s)
		p.accept(';')
	}
	p.leave()
	return stmts
}

// block is a chunk with its own names.
func (p *parser) block() []ast.Stmt {
	n := len(p.fn.locals)
	stmts := p.chunk()
	p.fn.locals = p.fn.locals[:n]
	return stmts
}

func (p *parser) loopBlock() []ast.Stmt {
	p.fn.loops++
	stmts := p.block()
	p.fn.loops--
	return stmts
}

func (p *parser) statement() (s ast.Stmt, last bool) {
	line := p.x.line
	switch p.t.kind {
	case tkIf:
		return p.ifStmt(line), false
	case tkWhile:
		p.advance()
		cond := p.expr()
		p.expect(tkDo)
		body := p.loopBlock()
		p.match(tkEnd, tkWhile, line)
		return at(&ast.WhileStmt{Condition: cond, Stmts: body}, line, p.lastLine), false
	case tkDo:
		p.advance()
		body := p.block()
		p.match(tkEnd, tkDo, line)
		return at(&ast.DoBlockStmt{Stmts: body}, line, p.lastLine), false
	case tkFor:
		return p.forStmt(line), false
	case tkRepeat:
		return p.repeatStmt(line), false
	case tkFunction:
		return p.functionStmt(line), false
	case tkLocal:
		p.advance()
		if p.accept(tkFunction) {
			return p.localFunction(line), false
		}
		return p.localStmt(line), false
	case tkReturn:
		return p.returnStmt(line), true
	case tkBreak:
		p.advance()
		if p.fn.loops == 0 {
			p.syntax("no loop to break")
		}
		return at(&ast.BreakStmt{}, line, line), true
	}
	return p.exprStmt(line), false
}

func (p *parser) ifStmt(line int) ast.Stmt {
	top := p.thenBlock()
	tail, chain := top, 0
	for p.t.kind == tkElseif {
		if chain++; chain > maxChain {
			p.x.fail("function or expression too complex", "")
		}
		next := p.thenBlock()
		tail.Else = []ast.Stmt{next}
		tail = next
	}
	if p.accept(tkElse) {
		tail.Else = p.block()
	}
	p.match(tkEnd, tkIf, line)
	return top
}

func (p *parser) thenBlock() *ast.IfStmt {
	line := p.x.line
	p.advance()
	cond := p.expr()
	p.expect(tkThen)
	body := p.block()
	return at(&ast.IfStmt{Condition: cond, Then: body}, line, p.lastLine)
}

func (p *parser) forStmt(line int) ast.Stmt {
	p.advance()
	first := p.name()
	var s ast.Stmt
	n := len(p.fn.locals)
	switch p.t.kind {
	case '=':
		s = p.numericFor(first)
	case ',', tkIn:
		s = p.genericFor(first)
	default:
		p.syntax("'=' or 'in' expected")
	}
	p.fn.locals = p.fn.locals[:n]
	p.match(tkEnd, tkFor, line)
	s.SetLastLine(p.lastLine)
	return s
}

func (p *parser) hidden(names ...string) {
	for _, n := range names {
		p.declare(n)
	}
}

func (p *parser) numericFor(name string) ast.Stmt {
	p.advance()
	s := &ast.NumberForStmt{Name: name}
	s.Init = p.expr()
	p.expect(',')
	s.Limit = p.expr()
	if p.accept(',') {
		s.Step = p.expr()
	}
	p.hidden("(for index)", "(for limit)", "(for step)")
	line := p.x.line // C Lua checks the three values where the body begins
	p.expect(tkDo)
	p.declare(name)
	s.Stmts = p.loopBlock()
	return at(s, line, line)
}

func (p *parser) genericFor(name string) ast.Stmt {
	s := &ast.GenericForStmt{Names: []string{name}}
	for p.accept(',') {
		s.Names = append(s.Names, p.name())
	}
	p.expect(tkIn)
	line := p.x.line
	s.Exprs = p.exprList()
	p.hidden("(for generator)", "(for state)", "(for control)")
	p.expect(tkDo)
	p.hidden(s.Names...)
	s.Stmts = p.loopBlock()
	at(s, line, line)
	if _, call := s.Exprs[0].(*ast.FuncCallExpr); call && len(s.Exprs) == 1 {
		return s
	}
	// The compiler sets all three values of the loop only if one call gives
	// them; otherwise they are put into hidden variables first.
	hidden := []string{"(generator)", "(state)", "(control)"}
	values := at(&ast.LocalAssignStmt{Names: hidden, Exprs: s.Exprs}, line, line)
	s.Exprs = nil
	for _, name := range hidden {
		s.Exprs = append(s.Exprs, at(&ast.IdentExpr{Value: name}, line, line))
	}
	return at(&ast.DoBlockStmt{Stmts: []ast.Stmt{values, s}}, line, line)
}

func (p *parser) repeatStmt(line int) ast.Stmt {
	p.advance()
	n := len(p.fn.locals)
	p.fn.loops++
	body := p.chunk()
	p.fn.loops--
	p.match(tkUntil, tkRepeat, line)
	cond := p.expr() // sees the names of the body
	p.fn.locals = p.fn.locals[:n]
	return at(&ast.RepeatStmt{Condition: cond, Stmts: body}, line, p.lastLine)
}

func (p *parser) functionStmt(line int) ast.Stmt {
	p.advance()
	fline := p.x.line
	name := p.name()
	p.resolve(name)
	var target ast.Expr = at(&ast.IdentExpr{Value: name}, fline, fline)
	fname := &ast.FuncName{}
	method := false
	for p.t.kind == '.' {
		p.advance()
		target = p.field(target)
	}
	if p.accept(':') {
		fname.Receiver, fname.Method, method = target, p.name(), true
		p.constant(fname.Method)
	} else {
		fname.Func = target
	}
	fn := p.body(method, line)
	target.SetLine(line)
	return at(&ast.FuncDefStmt{Name: fname, Func: fn}, line, p.lastLine)
}

// field is a name after a dot, as an index of object.
func (p *parser) field(object ast.Expr) ast.Expr {
	line := p.x.line
	key := p.name()
	p.constant(key)
	return at(&ast.AttrGetExpr{Object: object, Key: at(&ast.StringExpr{Value: key}, line, line)}, line, line)
}

func (p *parser) localFunction(line int) ast.Stmt {
	name := p.name()
	p.declare(name)
	fn := p.body(false, p.x.line)
	return at(&ast.LocalAssignStmt{Names: []string{name}, Exprs: []ast.Expr{fn}}, line, p.lastLine)
}

func (p *parser) localStmt(line int) ast.Stmt {
	s := &ast.LocalAssignStmt{}
	for {
		s.Names = append(s.Names, p.name())
		p.checkLimit(len(p.fn.locals)+len(s.Names), maxLocals, "local variables")
		if !p.accept(',') {
			break
		}
	}
	if p.accept('=') {
		s.Exprs = p.exprList()
	}
	p.hidden(s.Names...)
	if len(s.Exprs) == 1 && len(s.Names) == 1 {
		if _, ok := s.Exprs[0].(*ast.FunctionExpr); ok {
			// A single function makes the compiler take this for "local
			// function", whose body sees the new name. A second value, which
			// is dropped, says otherwise.
			s.Exprs = append(s.Exprs, at(&ast.NilExpr{}, line, line))
		}
	}
	return at(s, line, p.lastLine)
}

func (p *parser) returnStmt(line int) ast.Stmt {
	p.advance()
	s := &ast.ReturnStmt{}
	if !p.blockFollows() && p.t.kind != ';' {
		s.Exprs = p.exprList()
	}
	return at(s, line, p.lastLine)
}

// exprStmt is a call or an assignment.
func (p *parser) exprStmt(line int) ast.Stmt {
	e, kind := p.primary()
	if kind == callExpr {
		return at(&ast.FuncCallStmt{Expr: e}, line, p.lastLine)
	}
	s := &ast.AssignStmt{}
	for {
		if kind != variable {
			p.syntax("syntax error")
		}
		s.Lhs = append(s.Lhs, e)
		if !p.accept(',') {
			break
		}
		e, kind = p.primary()
		p.checkLimit(len(s.Lhs), maxLevels-p.level, "variables in assignment")
	}
	p.expect('=')
	s.Rhs = p.exprList()
	for _, e := range s.Lhs {
		// The instruction that stores stands after the values.
		e.SetLine(p.lastLine)
	}
	at(s, line, p.lastLine)
	if len(s.Lhs) > 1 {
		return p.parallel(s)
	}
	return s
}

// parallel keeps an assignment to several variables from seeing its own
// effects: the compiler writes a value into a local variable while an index
// that was to be evaluated before may still read it. So all operands go into
// hidden variables first.
func (p *parser) parallel(s *ast.AssignStmt) ast.Stmt {
	line := s.Line()
	block := &ast.DoBlockStmt{}
	hide := func(n int, kind string) string { return fmt.Sprintf("(%s %d)", kind, n) }
	ident := func(name string) ast.Expr { return at(&ast.IdentExpr{Value: name}, line, line) }
	local := func(names []string, exprs []ast.Expr) {
		block.Stmts = append(block.Stmts, at(&ast.LocalAssignStmt{Names: names, Exprs: exprs}, line, line))
	}
	for i, e := range s.Lhs {
		if a, ok := e.(*ast.AttrGetExpr); ok {
			local([]string{hide(i, "object")}, []ast.Expr{a.Object})
			a.Object = ident(hide(i, "object"))
			if _, constant := a.Key.(*ast.StringExpr); !constant {
				local([]string{hide(i, "key")}, []ast.Expr{a.Key})
				a.Key = ident(hide(i, "key"))
			}
		}
	}
	names := make([]string, len(s.Lhs))
	for i := range names {
		names[i] = hide(i, "value")
	}
	local(names, s.Rhs)
	for i := len(s.Lhs) - 1; i >= 0; i-- {
		one := &ast.AssignStmt{Lhs: []ast.Expr{s.Lhs[i]}, Rhs: []ast.Expr{ident(names[i])}}
		block.Stmts = append(block.Stmts, at(one, line, line))
	}
	return at(block, line, s.LastLine())
}

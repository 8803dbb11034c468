package luavm

import "github.com/yuin/gopher-lua/ast"

// exprKind says what may be done with a primary expression.
type exprKind int

const (
	otherExpr exprKind = iota
	variable           // may be assigned to
	callExpr           // may stand as a statement
)

func (p *parser) exprList() []ast.Expr {
	list := []ast.Expr{p.expr()}
	for p.accept(',') {
		list = append(list, p.expr())
	}
	return list
}

func (p *parser) prefix() (ast.Expr, exprKind) {
	line := p.x.line
	switch p.t.kind {
	case '(':
		p.advance()
		e := p.expr()
		p.match(')', '(', line)
		switch e := e.(type) {
		case *ast.FuncCallExpr:
			e.AdjustRet = true
		case *ast.Comma3Expr:
			e.AdjustRet = true
		}
		return e, otherExpr
	case tkName:
		name := p.name()
		p.resolve(name)
		return at(&ast.IdentExpr{Value: name}, line, line), variable
	}
	p.syntax("unexpected symbol")
	return nil, otherExpr
}

func (p *parser) primary() (ast.Expr, exprKind) {
	e, kind := p.prefix()
	for chain := 0; ; chain++ {
		if chain > maxChain {
			p.x.fail("function or expression too complex", "")
		}
		switch p.t.kind {
		case '.':
			p.advance()
			e, kind = p.field(e), variable
		case '[':
			p.advance()
			key := p.expr()
			p.expect(']')
			e, kind = at(&ast.AttrGetExpr{Object: e, Key: key}, p.lastLine, p.lastLine), variable
		case ':':
			p.advance()
			name := p.name()
			p.constant(name)
			e, kind = p.call(&ast.FuncCallExpr{Receiver: e, Method: name}), callExpr
		case '(', tkString, '{':
			e, kind = p.call(&ast.FuncCallExpr{Func: e}), callExpr
		default:
			return e, kind
		}
	}
}

// call reads the arguments of a call.
func (p *parser) call(c *ast.FuncCallExpr) ast.Expr {
	line := p.x.line
	switch p.t.kind {
	case '(':
		if line != p.lastLine {
			p.syntax("ambiguous syntax (function call x new statement)")
		}
		p.advance()
		if p.t.kind != ')' {
			c.Args = p.exprList()
		}
		p.match(')', '(', line)
	case '{':
		c.Args = []ast.Expr{p.table()}
	case tkString:
		c.Args = []ast.Expr{p.literal()}
	default:
		p.syntax("function arguments expected")
	}
	return at(c, line, p.lastLine)
}

func (p *parser) literal() ast.Expr {
	line := p.x.line
	s := p.t.value
	p.constant(s)
	p.advance()
	return at(&ast.StringExpr{Value: s}, line, line)
}

func (p *parser) table() ast.Expr {
	line := p.x.line
	p.expect('{')
	t := &ast.TableExpr{}
	items := 0
	for p.t.kind != '}' {
		f := &ast.Field{}
		switch {
		case p.t.kind == '[':
			p.advance()
			f.Key = p.expr()
			p.expect(']')
			p.expect('=')
		case p.t.kind == tkName && p.peek() == '=':
			at := p.x.line
			f.Key = &ast.StringExpr{Value: p.name()}
			p.constant(f.Key.(*ast.StringExpr).Value)
			f.Key.SetLine(at)
			p.expect('=')
		default:
			items++
			p.checkLimit(items, maxItems, "items in a constructor")
		}
		f.Value = p.expr()
		t.Fields = append(t.Fields, f)
		if !p.accept(',') && !p.accept(';') {
			break
		}
	}
	p.match('}', '{', line)
	return at(t, line, p.lastLine)
}

// body is a function from its parameters on; line is that of its keyword.
func (p *parser) body(method bool, line int) *ast.FunctionExpr {
	p.fn = newScope(p.fn, line)
	if method {
		p.declare("self")
	}
	f := &ast.FunctionExpr{ParList: &ast.ParList{}}
	p.expect('(')
	for p.t.kind != ')' {
		switch p.t.kind {
		case tkName:
			f.ParList.Names = append(f.ParList.Names, p.name())
			p.declare(f.ParList.Names[len(f.ParList.Names)-1])
		case tkDots:
			p.advance()
			f.ParList.HasVargs, p.fn.vararg = true, true
			p.declare("arg")
		default:
			p.syntax("<name> or '...' expected")
		}
		if p.fn.vararg || !p.accept(',') {
			break
		}
		if p.t.kind == ')' {
			p.syntax("<name> or '...' expected")
		}
	}
	p.expect(')')
	f.Stmts = p.chunk()
	last := p.x.line
	p.match(tkEnd, tkFunction, line)
	p.fn = p.fn.parent
	return at(f, line, last)
}

// simple is an operand.
func (p *parser) simple() ast.Expr {
	line := p.x.line
	var e ast.Expr
	switch p.t.kind {
	case tkNumber:
		p.constant(p.t.value)
		e = &ast.NumberExpr{Value: p.t.value}
	case tkString:
		return p.literal()
	case tkNil:
		e = &ast.NilExpr{}
	case tkTrue:
		e = &ast.TrueExpr{}
	case tkFalse:
		e = &ast.FalseExpr{}
	case tkDots:
		if !p.fn.vararg {
			p.syntax("cannot use '...' outside a vararg function")
		}
		e = &ast.Comma3Expr{}
	case '{':
		return p.table()
	case tkFunction:
		p.advance()
		return p.body(false, line)
	default:
		e, _ = p.primary()
		return e
	}
	p.advance()
	return at(e, line, line)
}

// priority of the binary operators, to the left and to the right.
var priority = map[tokenKind][2]int{
	'+': {6, 6}, '-': {6, 6}, '*': {7, 7}, '/': {7, 7}, '%': {7, 7},
	'^': {10, 9}, tkConcat: {5, 4},
	tkNe: {3, 3}, tkEq: {3, 3}, '<': {3, 3}, tkLe: {3, 3}, '>': {3, 3}, tkGe: {3, 3},
	tkAnd: {2, 2}, tkOr: {1, 1},
}

const unaryPriority = 8

func (p *parser) expr() ast.Expr { return p.subExpr(0) }

// subExpr reads an expression of operators that bind stronger than limit.
func (p *parser) subExpr(limit int) ast.Expr {
	p.enter()
	var e ast.Expr
	switch p.t.kind {
	case tkNot:
		p.advance()
		e = &ast.UnaryNotOpExpr{Expr: p.subExpr(unaryPriority)}
		at(e, p.lastLine, p.lastLine)
	case '-':
		p.advance()
		e = &ast.UnaryMinusOpExpr{Expr: p.subExpr(unaryPriority)}
		at(e, p.lastLine, p.lastLine)
	case '#':
		p.advance()
		e = &ast.UnaryLenOpExpr{Expr: p.subExpr(unaryPriority)}
		at(e, p.lastLine, p.lastLine)
	default:
		e = p.simple()
	}
	for chain := 0; ; chain++ {
		op := p.t.kind
		prio, ok := priority[op]
		if !ok || prio[0] <= limit {
			break
		}
		if chain > maxChain {
			p.x.fail("function or expression too complex", "")
		}
		p.advance()
		rhs := p.subExpr(prio[1])
		e = at(binaryExpr(op, e, rhs), p.lastLine, p.lastLine)
	}
	p.leave()
	return e
}

func binaryExpr(op tokenKind, lhs, rhs ast.Expr) ast.Expr {
	switch op {
	case tkAnd, tkOr:
		return &ast.LogicalOpExpr{Operator: op.String(), Lhs: lhs, Rhs: rhs}
	case tkEq, tkNe, tkLe, tkGe, '<', '>':
		return &ast.RelationalOpExpr{Operator: op.String(), Lhs: lhs, Rhs: rhs}
	case tkConcat:
		return &ast.StringConcatOpExpr{Lhs: lhs, Rhs: rhs}
	}
	return &ast.ArithmeticOpExpr{Operator: op.String(), Lhs: lhs, Rhs: rhs}
}

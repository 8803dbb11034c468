package luavm

import "fmt"

// Limits of C Lua (luaconf.h), and of what gopher-lua's compiler can take: it
// searches its constants one by one, and its constructors break beyond a size.
const (
	maxLevels      = 200
	maxLocals      = 200
	maxUpvalues    = 60
	maxConstants   = 16384
	maxItems       = 25000
	maxChain       = 1000 // operators on one level, and elseifs of one if
	maxSourceBytes = 1 << 20
)

// scope is a function being parsed: what its names mean decides its limits.
type scope struct {
	parent    *scope
	line      int // where the function begins; 0 for the main chunk
	vararg    bool
	locals    []string
	loops     int
	upvalues  map[string]bool
	constants map[string]bool
}

func newScope(parent *scope, line int) *scope {
	return &scope{parent: parent, line: line, upvalues: map[string]bool{}, constants: map[string]bool{}}
}

func (s *scope) has(name string) bool {
	for i := len(s.locals) - 1; i >= 0; i-- {
		if s.locals[i] == name {
			return true
		}
	}
	return false
}

// checkLimit is errorlimit of lparser.c.
func (p *parser) checkLimit(n, limit int, what string) {
	if n <= limit {
		return
	}
	where := "main function"
	if p.fn.line > 0 {
		where = fmt.Sprintf("function at line %d", p.fn.line)
	}
	p.x.fail(fmt.Sprintf("%s has more than %d %s", where, limit, what), "")
}

func (p *parser) declare(name string) {
	p.checkLimit(len(p.fn.locals)+1, maxLocals, "local variables")
	p.fn.locals = append(p.fn.locals, name)
}

// resolve notes the use of a name: it may make an upvalue of the functions
// between here and where it is declared.
func (p *parser) resolve(name string) {
	owner := p.fn
	for owner != nil && !owner.has(name) {
		owner = owner.parent
	}
	if owner == nil {
		p.constant(name)
		return
	}
	for s := p.fn; s != owner; s = s.parent {
		if !s.upvalues[name] {
			s.upvalues[name] = true
			if len(s.upvalues) > maxUpvalues {
				p.checkLimit(len(s.upvalues), maxUpvalues, "upvalues")
			}
		}
	}
}

// constant counts the constants of a function.
func (p *parser) constant(value string) {
	if !p.fn.constants[value] {
		p.fn.constants[value] = true
		if len(p.fn.constants) > maxConstants {
			p.x.fail("constant table overflow", "")
		}
	}
}

// enter goes one syntactic level down.
func (p *parser) enter() {
	p.level++
	if p.level > maxLevels {
		p.x.fail("chunk has too many syntax levels", "")
	}
}

func (p *parser) leave() { p.level-- }

package luavm

import (
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/clib"
	"github.com/lockstep-io/lockstep/store/redistext"
)

var stringLibrary = library{
	"byte":    (*Engine).stringByte,
	"char":    (*Engine).stringChar,
	"dump":    (*Engine).stringDump,
	"find":    (*Engine).stringFind,
	"format":  (*Engine).stringFormat,
	"gfind":   (*Engine).stringGmatch, // the old name of gmatch
	"gmatch":  (*Engine).stringGmatch,
	"gsub":    (*Engine).stringGsub,
	"len":     (*Engine).stringLen,
	"lower":   (*Engine).stringLower,
	"match":   (*Engine).stringMatch,
	"rep":     (*Engine).stringRep,
	"reverse": (*Engine).stringReverse,
	"sub":     (*Engine).stringSub,
	"upper":   (*Engine).stringUpper,
}

// relative returns the position pos in a string of n bytes, negative from the end, or 0 before the start.
func relative(pos, n int) int {
	if pos < 0 {
		pos += n + 1
	}
	return max(pos, 0)
}

func (e *Engine) stringLen(L *lua.LState) int {
	L.Push(lua.LNumber(len(e.arg.String(L, 1))))
	return 1
}

func (e *Engine) stringSub(L *lua.LState) int {
	s := e.arg.String(L, 1)
	from := max(relative(e.arg.Int(L, 2), len(s)), 1)
	to := min(relative(e.arg.OptInt(L, 3, -1), len(s)), len(s))
	if from > to {
		L.Push(lua.LString(""))
		return 1
	}
	L.Push(e.own(s[from-1 : to]))
	return 1
}

func (e *Engine) stringReverse(L *lua.LState) int {
	s := e.arg.String(L, 1)
	e.charge(int64(len(s)) * 2)
	e.work(len(s) / 64)
	b := make([]byte, len(s))
	for i := range len(s) {
		b[len(s)-1-i] = s[i]
	}
	L.Push(lua.LString(b))
	return 1
}

func (e *Engine) mapBytes(L *lua.LState, fn func(byte) byte) int {
	s := e.arg.String(L, 1)
	e.charge(int64(len(s)) * 2)
	e.work(len(s) / 64)
	b := []byte(s)
	for i, c := range b {
		b[i] = fn(c)
	}
	L.Push(lua.LString(b))
	return 1
}

func (e *Engine) stringLower(L *lua.LState) int {
	return e.mapBytes(L, func(c byte) byte {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		return c
	})
}

func (e *Engine) stringUpper(L *lua.LState) int {
	return e.mapBytes(L, func(c byte) byte {
		if 'a' <= c && c <= 'z' {
			c &^= 0x20
		}
		return c
	})
}

func (e *Engine) stringRep(L *lua.LState) int {
	s, n := e.arg.String(L, 1), e.arg.CInt(L, 2)
	if n <= 0 || s == "" {
		L.Push(lua.LString(""))
		return 1
	}
	if int64(n) > e.opts.MemoryLimit/int64(len(s)) {
		e.halt(msgMemory)
	}
	e.charge(int64(n) * int64(len(s)))
	L.Push(lua.LString(strings.Repeat(s, n)))
	return 1
}

func (e *Engine) stringByte(L *lua.LState) int {
	s := e.arg.String(L, 1)
	from := relative(e.arg.OptInt(L, 2, 1), len(s))
	to := min(relative(e.arg.OptInt(L, 3, from), len(s)), len(s))
	from = max(from, 1)
	if from > to {
		return 0
	}
	n := to - from + 1
	if n+L.GetTop() > auxlib.MaxStack {
		e.throw(L, "stack overflow (string slice too long)")
	}
	e.charge(int64(n) * pushCost)
	for i := from; i <= to; i++ {
		L.Push(lua.LNumber(s[i-1]))
	}
	return n
}

func (e *Engine) stringChar(L *lua.LState) int {
	e.charge(2*int64(L.GetTop()) + boxSize)
	e.work(L.GetTop() / copiedInStep)
	b := make([]byte, L.GetTop())
	for i := range b {
		c := e.arg.CInt(L, i+1)
		if c < 0 || c > 255 {
			e.argError(L, i+1, "invalid value")
		}
		b[i] = byte(c)
	}
	L.Push(lua.LString(b))
	return 1
}

// stringDump always fails: there is no byte code to return, and none can be loaded.
func (e *Engine) stringDump(L *lua.LState) int {
	e.arg.Function(L, 1)
	e.throw(L, "unable to dump given function")
	return 0
}

func (e *Engine) stringFind(L *lua.LState) int  { return e.find(L, true) }
func (e *Engine) stringMatch(L *lua.LState) int { return e.find(L, false) }

func (e *Engine) find(L *lua.LState, find bool) int {
	s, p := e.arg.String(L, 1), e.arg.String(L, 2)
	e.workPattern(p)
	init := relative(e.arg.OptInt(L, 3, 1), len(s)) - 1
	init = min(max(init, 0), len(s))
	if find && (lua.LVAsBool(L.Get(4)) || !hasSpecials(clib.Text(p))) {
		at := redistext.Index(s[init:], p, func(read int) { e.work(read / inStep) })
		if at < 0 {
			L.Push(lua.LNil)
			return 1
		}
		L.Push(lua.LNumber(init + at + 1))
		L.Push(lua.LNumber(init + at + len(p)))
		return 2
	}
	anchor := strings.HasPrefix(p, "^")
	m := matcher{e: e, L: L, s: s, p: clib.Text(p)}
	if anchor {
		m.p = m.p[1:]
	}
	for at := init; at <= len(s); at++ {
		m.level = 0
		if end := m.match(at, 0); end >= 0 {
			if find {
				L.Push(lua.LNumber(at + 1))
				L.Push(lua.LNumber(end))
				return m.push(at, end, false) + 2
			}
			return m.push(at, end, true)
		}
		if anchor {
			break
		}
	}
	L.Push(lua.LNil)
	return 1
}

// iteratorSize is the number of bytes charged for the function that gmatch returns.
const iteratorSize = 400

func (e *Engine) stringGmatch(L *lua.LState) int {
	s, p := e.arg.String(L, 1), e.arg.String(L, 2)
	at := 0
	e.charge(iteratorSize)
	e.workPattern(p)
	text := clib.Text(p)
	L.Push(L.NewClosure(func(L *lua.LState) int {
		m := matcher{e: e, L: L, s: s, p: text}
		for ; at <= len(s); at++ {
			m.level = 0
			if end := m.match(at, 0); end >= 0 {
				from := at
				at = end
				if end == from {
					at++
				}
				return m.push(from, end, true)
			}
		}
		return 0
	}, lua.LString(s), lua.LString(p))) // upvalues of the function, because walk (kept.go) does not see what a Go closure captures
	return 1
}

func (e *Engine) stringGsub(L *lua.LState) int {
	s, p := e.arg.String(L, 1), e.arg.String(L, 2)
	repl := L.Get(3)
	switch repl.Type() {
	case lua.LTNumber, lua.LTString, lua.LTTable, lua.LTFunction:
	default:
		e.argError(L, 3, "string/function/table expected")
	}
	limit := e.arg.OptCInt(L, 4, len(s)+1)
	e.workPattern(p)
	anchor := strings.HasPrefix(p, "^")
	m := matcher{e: e, L: L, s: s, p: clib.Text(p)}
	if anchor {
		m.p = m.p[1:]
	}
	out := e.buffer()
	n, at := 0, 0
	for n < limit {
		m.level = 0
		e.work(1) // matching an empty pattern counts no work
		end := m.match(at, 0)
		if end >= 0 {
			n++
			e.substitute(&m, &out, repl, at, end)
		}
		switch {
		case end > at:
			at = end
		case at < len(s):
			out.Byte(s[at])
			at++
		default:
			at = len(s) + 1
		}
		if at > len(s) || anchor {
			break
		}
	}
	if at < len(s) {
		out.Str(s[at:])
	}
	L.Push(lua.LString(out.Text()))
	L.Push(lua.LNumber(n))
	return 2
}

// substitutionSteps is how many instructions take as long as the replacement of one match.
const substitutionSteps = 4

// substitute appends the replacement of the match m.s[from:end] to out.
func (e *Engine) substitute(m *matcher, out *auxlib.Buffer, repl lua.LValue, from, end int) {
	L := m.L
	e.work(substitutionSteps)
	var v lua.LValue
	switch r := repl.(type) {
	case *lua.LFunction:
		L.Push(r)
		L.Call(m.push(from, end, true), 1)
		v = L.Get(-1)
		L.Pop(1)
	case *lua.LTable:
		key := m.capture(0, from, end)
		e.passKey(key)
		v = L.GetTable(r, key)
	default:
		text, _ := auxlib.ToString(r)
		e.expand(m, out, text, from, end)
		return
	}
	if !lua.LVAsBool(v) {
		v = lua.LString(m.s[from:end])
	}
	text, ok := auxlib.ToString(v)
	if !ok {
		e.throw(L, "invalid replacement value (a "+auxlib.TypeName(v)+")")
	}
	out.Str(text)
}

// expand appends a replacement text to out, with captures in place of %1 and so on.
func (e *Engine) expand(m *matcher, out *auxlib.Buffer, text string, from, end int) {
	for i := 0; i < len(text); i++ {
		plain := strings.IndexByte(text[i:], '%')
		if plain < 0 {
			plain = len(text) - i
		}
		e.pass(plain)
		out.Str(text[i : i+plain])
		if i += plain; i == len(text) {
			break
		}
		e.work(1) // an empty capture counts no other work
		i++
		switch {
		case i >= len(text):
			out.Byte(0) // C reads the zero byte that ends the text
		case !clib.IsDigit(text[i]):
			out.Byte(text[i])
		case text[i] == '0':
			out.Str(m.s[from:end])
		default:
			piece, _ := auxlib.ToString(m.capture(int(text[i]-'1'), from, end))
			out.Str(piece)
		}
	}
}

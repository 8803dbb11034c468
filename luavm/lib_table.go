package luavm

import (
	"fmt"
	"math"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

var tableLibrary = library{
	"concat":   (*Engine).tableConcat,
	"foreach":  (*Engine).tableForeach,
	"foreachi": (*Engine).tableForeachi,
	"getn":     (*Engine).tableGetn,
	"insert":   (*Engine).tableInsert,
	"maxn":     (*Engine).tableMaxn,
	"remove":   (*Engine).tableRemove,
	"setn":     (*Engine).tableSetn,
	"sort":     (*Engine).tableSort,
}

func (e *Engine) tableGetn(L *lua.LState) int {
	L.Push(lua.LNumber(e.length(e.arg.Table(L, 1))))
	return 1
}

func (e *Engine) tableSetn(L *lua.LState) int {
	e.arg.Table(L, 1)
	e.throw(L, "'setn' is obsolete")
	return 0
}

func (e *Engine) tableMaxn(L *lua.LState) int {
	t := e.arg.Table(L, 1)
	e.workSlots(t)
	m := lua.LNumber(t.MaxN())
	for _, k := range interp.HashKeys(t) {
		e.work(1)
		if n, ok := k.(lua.LNumber); ok && n > m && t.RawGet(k) != lua.LNil {
			m = n
		}
	}
	L.Push(m)
	return 1
}

func (e *Engine) tableConcat(L *lua.LState) int {
	sep := e.arg.OptString(L, 2, "")
	t := e.arg.Table(L, 1)
	from := e.arg.OptCInt(L, 3, 1)
	to := 0
	if L.Get(4) == lua.LNil {
		to = e.length(t)
	} else {
		to = e.arg.CInt(L, 4)
	}
	b := e.buffer()
	for i := from; i <= to; i++ {
		v := t.RawGet(lua.LNumber(i))
		s, ok := auxlib.ToString(v)
		if !ok {
			e.throw(L, fmt.Sprintf("invalid value (%s) at index %d in table for 'concat'", auxlib.TypeName(v), i))
		}
		e.work(1)
		b.Str(s)
		if i < to {
			b.Str(sep)
		}
		if i == math.MaxInt64 {
			break
		}
	}
	L.Push(lua.LString(b.Text()))
	return 1
}

func (e *Engine) tableForeach(L *lua.LState) int {
	t, fn := e.arg.Table(L, 1), e.arg.Function(L, 2)
	e.workSlots(t)
	for k, v := next(t, lua.LNil); k != lua.LNil; k, v = next(t, k) {
		e.work(4)
		e.passKey(k)
		if r := e.call1(L, fn, k, v); r != lua.LNil {
			L.Push(r)
			return 1
		}
	}
	return 0
}

func (e *Engine) tableForeachi(L *lua.LState) int {
	t, fn := e.arg.Table(L, 1), e.arg.Function(L, 2)
	n := e.length(t)
	for i := 1; i <= n; i++ {
		e.work(4)
		if r := e.call1(L, fn, lua.LNumber(i), t.RawGetInt(i)); r != lua.LNil {
			L.Push(r)
			return 1
		}
	}
	return 0
}

func (e *Engine) tableInsert(L *lua.LState) int {
	t := e.arg.Table(L, 1)
	end := e.length(t) + 1
	switch L.GetTop() {
	case 2:
		e.setRaw(L, e.writable(L, t), lua.LNumber(end), L.Get(2))
	case 3:
		pos := e.arg.CInt(L, 2)
		e.writable(L, t)
		if pos > end {
			end = pos
		}
		v := L.Get(3)
		if n := len(interp.ArrayPart(t)); pos >= 1 && pos < end && end == n+1 {
			e.refuseLonger(n)
			e.beforeElement(t, end)
			e.work(n / 64)
			t.Insert(pos, v)
			return 0
		}
		for i := end; i > pos; i-- {
			e.work(1)
			e.setRaw(L, t, lua.LNumber(i), t.RawGet(lua.LNumber(i-1)))
		}
		e.setRaw(L, t, lua.LNumber(pos), v)
	default:
		e.throw(L, "wrong number of arguments to 'insert'")
	}
	return 0
}

func (e *Engine) tableRemove(L *lua.LState) int {
	t := e.arg.Table(L, 1)
	end := e.length(t)
	pos := e.arg.OptCInt(L, 2, end)
	if pos < 1 || pos > end {
		return 0
	}
	v := t.RawGetInt(pos)
	e.writable(L, t)
	if end == len(interp.ArrayPart(t)) {
		e.work((end - pos) / 64)
		t.Remove(pos)
	} else {
		e.work(end - pos)
		for i := pos; i < end; i++ {
			t.RawSetInt(i, t.RawGetInt(i+1))
		}
		t.RawSetInt(end, lua.LNil)
	}
	L.Push(v)
	return 1
}

// tableSort follows ltablib.c's quicksort, so that an inconsistent order function has the same effect as in C Lua.
func (e *Engine) tableSort(L *lua.LState) int {
	t := e.arg.Table(L, 1)
	n := e.length(t)
	var fn *lua.LFunction
	if L.Get(2) != lua.LNil {
		fn = e.arg.Function(L, 2)
	}
	s := sorter{e: e, L: L, t: t, fn: fn}
	s.sort(1, n)
	return 0
}

type sorter struct {
	e  *Engine
	L  *lua.LState
	t  *lua.LTable
	fn *lua.LFunction
}

func (s *sorter) get(i int) lua.LValue { return s.t.RawGet(lua.LNumber(i)) }

func (s *sorter) swap(i, j int, vi, vj lua.LValue) {
	s.e.writable(s.L, s.t)
	s.t.RawSet(lua.LNumber(i), vj)
	s.t.RawSet(lua.LNumber(j), vi)
}

func (s *sorter) less(a, b lua.LValue) bool {
	s.e.work(2)
	if s.fn != nil {
		return lua.LVAsBool(s.e.call1(s.L, s.fn, a, b))
	}
	return s.e.lessThan(s.L, a, b)
}

func (s *sorter) sort(lo, up int) {
	for lo < up {
		a, b := s.get(lo), s.get(up)
		if s.less(b, a) {
			s.swap(lo, up, a, b)
		}
		if up-lo == 1 {
			return
		}
		i := int((uint(lo) + uint(up)) / 2)
		a, b = s.get(i), s.get(lo)
		if s.less(a, b) {
			s.swap(i, lo, a, b)
		} else if b = s.get(up); s.less(b, a) {
			s.swap(i, up, a, b)
		}
		if up-lo == 2 {
			return
		}
		pivot := s.get(i)
		s.swap(i, up-1, pivot, s.get(up-1))
		i = s.partition(lo, up, pivot)
		if i-lo < up-i {
			s.sort(lo, i-1)
			lo = i + 1
		} else {
			s.sort(i+1, up)
			up = i - 1
		}
	}
}

func (s *sorter) partition(lo, up int, pivot lua.LValue) int {
	i, j := lo, up-1
	for {
		i++
		for s.less(s.get(i), pivot) {
			if i > up {
				s.e.throw(s.L, "invalid order function for sorting")
			}
			i++
		}
		j--
		for s.less(pivot, s.get(j)) {
			if j < lo {
				s.e.throw(s.L, "invalid order function for sorting")
			}
			j--
		}
		if j < i {
			break
		}
		s.swap(i, j, s.get(i), s.get(j))
	}
	s.swap(up-1, i, s.get(up-1), s.get(i))
	return i
}

// lessThan is Lua's operator < for library functions.
func (e *Engine) lessThan(L *lua.LState, a, b lua.LValue) bool {
	switch x := a.(type) {
	case lua.LNumber:
		if y, ok := b.(lua.LNumber); ok {
			return x < y
		}
	case lua.LString:
		if y, ok := b.(lua.LString); ok {
			e.pass(min(len(x), len(y)))
			return x < y
		}
	case *lua.LTable:
		m := e.metafield(L, a, "__lt")
		if m != lua.LNil && m == e.metafield(L, b, "__lt") {
			return lua.LVAsBool(e.call1(L, m, a, b))
		}
	}
	e.throwHere(L, compareText("attempt to compare "+auxlib.TypeName(a)+" with "+auxlib.TypeName(b)))
	return false
}

package luavm

import (
	"context"
	"math"
	"time"

	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/auxlib"
	"lockstep/luavm/internal/clib"
	"lockstep/luavm/internal/interp"
)

// hook is a context whose Done the interpreter calls before every instruction.
// It never ends a script through that channel: an ended context is an error
// that a pcall of the script could catch. It looks at the instruction instead,
// corrects what gopher-lua does otherwise than C Lua, accounts for memory, and
// leaves by a panic when the script must stop.
type hook struct {
	e     *Engine
	L     *lua.LState
	frame **interp.Frame
	armed bool // L.Panic is ours
}

var _ context.Context = (*hook)(nil)

func newHook(e *Engine, L *lua.LState) *hook { return &hook{e: e, L: L, frame: interp.FramePlace(L)} }

func (*hook) Deadline() (at time.Time, ok bool) { return }
func (*hook) Err() error                        { return nil }
func (*hook) Value(any) any                     { return nil }

// watched has a bit for every opcode that before looks at.
const watched uint64 = 1<<lua.OP_SETGLOBAL | 1<<lua.OP_SETTABLE | 1<<lua.OP_SETTABLEKS |
	1<<lua.OP_CONCAT | 1<<lua.OP_FORPREP | 1<<lua.OP_SETLIST | 1<<lua.OP_VARARG |
	1<<lua.OP_NEWTABLE | 1<<lua.OP_CLOSURE | 1<<lua.OP_LEN | 1<<lua.OP_MOD | 1<<lua.OP_POW

// Done is called before every instruction: keep it cheap.
func (h *hook) Done() <-chan struct{} {
	e := h.e
	e.budget--
	if e.budget < 0 || !h.armed {
		h.look()
	}
	f := *h.frame
	inst := f.Fn.Proto.Code[f.Pc-1]
	if watched>>(inst>>26)&1 != 0 {
		h.before(f, inst)
	}
	return nil
}

// maxTailCalls is how many tail calls of one frame are told apart: gopher-lua lists each of
// them when an error leaves it, and there is no end to them.
const maxTailCalls = 50

// copiedInStep is how many values are copied in the time of an instruction.
const copiedInStep = 8

// look is the part of Done that runs every few hundred instructions, and first
// of all in a new coroutine.
func (h *hook) look() {
	if !h.armed {
		h.armed = true
		h.L.Panic = h.e.onError
	}
	h.e.checkLimits()
	f := *h.frame
	f.TailCall = min(f.TailCall, maxTailCalls)
	h.e.checkDepth(h.L)
}

// before looks at the instruction that is about to run.
func (h *hook) before(f *interp.Frame, inst uint32) {
	e, L, a := h.e, h.L, interp.ArgA(inst)
	switch interp.OpOf(inst) {
	case lua.OP_SETGLOBAL:
		e.throwHere(L, msgReadonlyTable)
	case lua.OP_SETTABLE, lua.OP_SETTABLEKS:
		e.beforeSet(L, f, inst)
	case lua.OP_CONCAT:
		e.beforeConcat(L, interp.ArgB(inst), interp.ArgC(inst))
	case lua.OP_MOD:
		beforeModulo(L, interp.ArgB(inst)+1, interp.ArgC(inst)+1)
	case lua.OP_POW:
		beforePower(L, interp.ArgB(inst)+1, interp.ArgC(inst)+1)
	case lua.OP_FORPREP:
		e.beforeFor(L, a)
	case lua.OP_SETLIST:
		n := interp.ArgB(inst)
		if n == 0 {
			n = max(L.GetTop()-a-1, 0)
		}
		e.charge(int64(n) * 40)
		e.budget -= n / copiedInStep
	case lua.OP_VARARG:
		e.charge(int64(f.NArgs) * 16)
		e.budget -= f.NArgs / copiedInStep
	case lua.OP_NEWTABLE:
		e.charge(100 + 16*int64(interp.ArgB(inst)) + 48*int64(interp.ArgC(inst)))
	case lua.OP_CLOSURE:
		e.charge(100 + 72*int64(f.Fn.Proto.FunctionPrototypes[interp.ArgBx(inst)].NumUpvalues))
	case lua.OP_LEN:
		if t, ok := L.Get(interp.ArgB(inst) + 1).(*lua.LTable); ok && interp.ArgB(inst)&interp.RKConst == 0 {
			e.beforeLen(t)
		}
	}
}

// beforeSet refuses a write that lands in a read-only table, and accounts for an array
// that gopher-lua fills up to the index.
func (e *Engine) beforeSet(L *lua.LState, f *interp.Frame, inst uint32) {
	t, ok := L.Get(interp.ArgA(inst) + 1).(*lua.LTable)
	if !ok {
		return
	}
	_, plain := t.Metatable.(*lua.LNilType)
	if plain && interp.OpOf(inst) == lua.OP_SETTABLEKS {
		return
	}
	b := interp.ArgB(inst)
	var key lua.LValue
	if b&interp.RKConst != 0 {
		key = f.Fn.Proto.Constants[b&^interp.RKConst]
	} else {
		key = L.Get(b + 1)
	}
	if !plain {
		if t = e.landing(L, t, key); t == nil {
			return
		}
	}
	if n, ok := key.(lua.LNumber); ok && n > 64 && n < lua.LNumber(lua.MaxArrayIndex) {
		e.chargeGrowth(t, int(n))
	}
}

// landing follows the __newindex of tables to the one that t[key] = … changes, as the
// interpreter will, and refuses a read-only table wherever it stands on the way. It is
// nil if the write changes no table: a function is called, or the write fails.
func (e *Engine) landing(L *lua.LState, t *lua.LTable, key lua.LValue) *lua.LTable {
	for range lua.MaxTableGetLoop {
		e.refuseReadonly(L, t)
		mt, ok := t.Metatable.(*lua.LTable)
		if !ok || t.RawGet(key) != lua.LNil {
			return t
		}
		switch next := mt.RawGetString("__newindex").(type) {
		case *lua.LNilType:
			return t
		case *lua.LTable:
			t = next
		case *lua.LFunction:
			return nil
		default:
			e.throwHere(L, "attempt to index a "+auxlib.TypeName(next)+" value")
		}
	}
	return nil
}

// chargeGrowth accounts for setting t[n].
func (e *Engine) chargeGrowth(t *lua.LTable, n int) {
	if gap := n - len(interp.ArrayPart(t)); gap > 64 {
		e.charge(int64(n) * 32)
		e.work(gap / 8)
	}
}

// beforeConcat turns numbers into strings as C Lua prints them, and keeps the
// result within the memory limit. Values with metamethods are left alone, and so are numbers that are
// given to one.
func (e *Engine) beforeConcat(L *lua.LState, from, to int) {
	size := int64(0)
	for i := from + 1; i <= to+1; i++ {
		switch v := L.Get(i).(type) {
		case lua.LString:
			size += int64(len(v))
		case lua.LNumber:
			beside := i + 1
			if i == to+1 {
				beside = i - 1
			}
			if !joins(L.Get(beside)) {
				continue
			}
			s := clib.FormatNumber(v)
			size += int64(len(s))
			L.Replace(i, lua.LString(s))
		}
	}
	e.charge(size + 32)
}

// joins reports whether .. takes a value without a metamethod.
func joins(v lua.LValue) bool {
	switch v.(type) {
	case lua.LString, lua.LNumber:
		return true
	}
	return false
}

// beforeModulo replaces the operands of %, which stand in registers of their
// own, by ones of which gopher-lua's remainder is what C Lua computes.
func beforeModulo(L *lua.LState, a, b int) {
	x, y, ok := twoOperands(L, a, b)
	if !ok {
		return
	}
	r := clib.Modulo(x, y)
	if math.IsNaN(r) || math.IsInf(r, 0) {
		L.Replace(a, lua.LString(clib.FormatG(x, 17))) // a string's % is stringArithmetic's
		return
	}
	L.Replace(a, lua.LNumber(r))
	L.Replace(b, lua.LNumber(math.Copysign(math.Inf(1), r)))
}

// beforePower does so for ^: to the power of one.
func beforePower(L *lua.LState, a, b int) {
	if x, y, ok := twoOperands(L, a, b); ok {
		L.Replace(a, lua.LNumber(clib.Pow(x, y)))
		L.Replace(b, lua.LNumber(1))
	}
}

func twoOperands(L *lua.LState, a, b int) (x, y float64, ok bool) {
	n, isN := L.Get(a).(lua.LNumber)
	m, isM := L.Get(b).(lua.LNumber)
	return float64(n), float64(m), isN && isM
}

// beforeFor lets numeric for take numeric strings, which Redisson's read lock
// watchdog loops over.
func (e *Engine) beforeFor(L *lua.LState, a int) {
	for i, what := range [...]string{"initial value", "limit", "step"} {
		switch v := L.Get(a + 1 + i).(type) {
		case lua.LNumber:
		default:
			n, ok := auxlib.ToNumber(v)
			if !ok {
				e.throwHere(L, "'for' "+what+" must be a number")
			}
			L.Replace(a+1+i, n)
		}
	}
}

// beforeLen hides __len, which C Lua 5.1 does not ask for tables.
func (e *Engine) beforeLen(t *lua.LTable) {
	if mt, ok := t.Metatable.(*lua.LTable); ok && mt.RawGetString("__len") != lua.LNil {
		mt.RawSetString("__len", lua.LNil)
	}
	e.workLen(t)
}

// workLen accounts for the walk back over an array that ends in nil.
func (e *Engine) workLen(t *lua.LTable) {
	if a := interp.ArrayPart(t); len(a) > 1000 && a[len(a)-1] == lua.LNil {
		e.work(len(a) / 16)
	}
}

// length is the length of a table, for functions.
func (e *Engine) length(t *lua.LTable) int {
	e.workLen(t)
	return t.Len()
}

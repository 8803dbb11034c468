package luavm

import (
	"context"
	"math"
	"time"
	"unsafe"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/clib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// hook is a context whose Done the interpreter calls before every instruction. Done panics to stop a script: a script could catch the end
// of a context.
type hook struct {
	e     *Engine
	L     *lua.LState
	frame **interp.Frame
	armed bool // L.Panic is set to onError
	// returns says that L waits in a tail call of yield. No frame is left to return to, so the next resume must end L.
	returns bool
}

var _ context.Context = (*hook)(nil)

func newHook(e *Engine, L *lua.LState) *hook { return &hook{e: e, L: L, frame: interp.FramePlace(L)} }

func (*hook) Deadline() (at time.Time, ok bool) { return }
func (*hook) Err() error                        { return nil }
func (*hook) Value(any) any                     { return nil }

// watched has a bit for every opcode that needs h.before. A plain script (link.go) has no hook, so it must not contain these.
const watched uint64 = 1<<lua.OP_SETGLOBAL | 1<<lua.OP_SETTABLE | 1<<lua.OP_SETTABLEKS |
	1<<lua.OP_CONCAT | 1<<lua.OP_FORPREP | 1<<lua.OP_SETLIST | 1<<lua.OP_VARARG |
	1<<lua.OP_NEWTABLE | 1<<lua.OP_CLOSURE | 1<<lua.OP_LEN | 1<<lua.OP_MOD | 1<<lua.OP_POW

// calls has the bits of further opcodes for h.before. A plain script may contain them, because it calls no Lua functions.
const calls uint64 = 1<<lua.OP_CALL | 1<<lua.OP_TAILCALL

// Done runs before every instruction, so it must be cheap.
func (h *hook) Done() <-chan struct{} {
	e := h.e
	e.budget--
	if e.budget < 0 || !h.armed {
		h.look()
	}
	f := *h.frame
	inst := f.Fn.Proto.Code[f.Pc-1]
	if (watched|calls|e.onTexts)>>(inst>>26)&1 != 0 {
		h.before(f, inst)
	}
	return nil
}

// maxTailCalls bounds Frame.TailCall, the number of tail calls of a frame: gopher-lua's traces list each
// of them, and a script can make any number.
const maxTailCalls = 50

// copiedInStep is how many values can be copied in the time of an instruction.
const copiedInStep = 8

// pushCost is the number of bytes charged for a value that is pushed into a register.
const pushCost = 16

// look is the part of Done that runs when the budget is used up, and before the first
// instruction of a new Lua state or coroutine.
func (h *hook) look() {
	if !h.armed {
		h.armed = true
		h.L.Panic = h.e.onError
	}
	h.e.checkLimits()
	f := *h.frame
	f.TailCall = min(f.TailCall, maxTailCalls)
}

// before prepares for the next instruction, or raises an error in its place.
func (h *hook) before(f *interp.Frame, inst uint32) {
	e, L, a := h.e, h.L, interp.ArgA(inst)
	switch interp.OpOf(inst) {
	case lua.OP_CALL, lua.OP_TAILCALL:
		e.beforeCall(L, f, inst)
	case lua.OP_SETGLOBAL:
		e.throwHere(L, msgReadonlyTable)
	case lua.OP_GETTABLE, lua.OP_GETTABLEKS, lua.OP_SELF:
		e.refuseIndex(L, f, inst)
	case lua.OP_EQ, lua.OP_LT, lua.OP_LE:
		e.beforeComparison(L, f, inst)
	case lua.OP_SETTABLE, lua.OP_SETTABLEKS:
		if e.onTexts != 0 {
			e.refuseIndex(L, f, inst)
		}
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
		e.makeRoom(L, f.LocalBase+a+max(f.NArgs, interp.ArgB(inst)))
	case lua.OP_NEWTABLE:
		e.charge(100 + 16*int64(interp.ArgB(inst)) + 48*int64(interp.ArgC(inst)))
	case lua.OP_CLOSURE:
		e.charge(100 + 72*int64(f.Fn.Proto.FunctionPrototypes[interp.ArgBx(inst)].NumUpvalues))
	case lua.OP_LEN:
		e.beforeLen(L, interp.ArgB(inst)+1)
	}
}

// beforeSet refuses a write that changes a read-only table, and charges for the growth of
// the table that the write changes.
func (e *Engine) beforeSet(L *lua.LState, f *interp.Frame, inst uint32) {
	t, ok := L.Get(interp.ArgA(inst) + 1).(*lua.LTable)
	if !ok {
		return
	}
	_, plain := t.Metatable.(*lua.LNilType)
	key := f.Operand(L, interp.ArgB(inst))
	if !plain {
		if t = e.landing(L, t, key); t == nil {
			return
		}
	}
	e.beforeGrowth(t, key, f.Operand(L, interp.ArgC(inst)))
}

// landing follows __newindex to the table that t[key] = … changes, and refuses read-only tables. It returns nil if no table changes.
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

// beforeModulo changes the operands of %, so that gopher-lua computes C Lua's remainder. They are in registers of their own.
func beforeModulo(L *lua.LState, a, b int) {
	x, y, ok := twoOperands(L, a, b)
	if !ok {
		return
	}
	r := clib.Modulo(x, y)
	if math.IsNaN(r) || math.IsInf(r, 0) {
		L.Replace(a, lua.LString(clib.FormatG(x, 17))) // for a string operand gopher-lua calls stringArithmetic
		return
	}
	L.Replace(a, lua.LNumber(r))
	L.Replace(b, lua.LNumber(math.Copysign(math.Inf(1), r)))
}

// beforePower replaces the operands of ^ by C Lua's result and 1, so that gopher-lua computes C Lua's result.
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

// beforeFor lets a numeric for accept numeric strings, which the scripts of Redisson's
// read lock watchdog use.
func (e *Engine) beforeFor(L *lua.LState, a int) {
	for i, what := range [...]string{"initial value", "limit", "step"} {
		switch v := L.Get(a + 1 + i).(type) {
		case lua.LNumber:
		default:
			n, ok := e.arg.ToNumber(v)
			if !ok {
				e.throwHere(L, "'for' "+what+" must be a number")
			}
			L.Replace(a+1+i, n)
		}
	}
}

// C Lua 5.1 ignores __len of tables, so beforeLen replaces the operand by a copy without metatable. The operand has its own register
// (function.unary).
func (e *Engine) beforeLen(L *lua.LState, a int) {
	t, ok := L.Get(a).(*lua.LTable)
	if !ok {
		return
	}
	if mt, ok := t.Metatable.(*lua.LTable); ok && mt.RawGetString("__len") != lua.LNil {
		e.charge(int64(unsafe.Sizeof(*t)))
		bare := *t
		bare.Metatable = lua.LNil
		L.Replace(a, &bare)
	}
	e.workLen(t)
}

// workLen counts the work of the length of a table: gopher-lua walks back over the nils at the end of an array.
func (e *Engine) workLen(t *lua.LTable) {
	if a := interp.ArrayPart(t); len(a) > 1000 && a[len(a)-1] == lua.LNil {
		e.work(len(a) / 16)
	}
}

// length returns the length of a table, for library functions.
func (e *Engine) length(t *lua.LTable) int {
	e.workLen(t)
	return t.Len()
}

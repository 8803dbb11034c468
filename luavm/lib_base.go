package luavm

import (
	"fmt"
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/clib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// baseLibrary has the global functions.
var baseLibrary = library{
	"assert":         (*Engine).baseAssert,
	"collectgarbage": (*Engine).baseCollect,
	"error":          (*Engine).baseError,
	"gcinfo":         (*Engine).baseGCInfo,
	"getmetatable":   (*Engine).baseGetMetatable,
	"ipairs":         (*Engine).baseIpairs,
	"load":           (*Engine).baseLoad,
	"loadstring":     (*Engine).baseLoadString,
	"next":           (*Engine).baseNext,
	"pairs":          (*Engine).basePairs,
	"pcall":          (*Engine).basePcall,
	"rawequal":       (*Engine).baseRawEqual,
	"rawget":         (*Engine).baseRawGet,
	"rawset":         (*Engine).baseRawSet,
	"select":         (*Engine).baseSelect,
	"setmetatable":   (*Engine).baseSetMetatable,
	"tonumber":       (*Engine).baseToNumber,
	"tostring":       (*Engine).baseToString,
	"type":           (*Engine).baseType,
	"unpack":         (*Engine).baseUnpack,
	"xpcall":         (*Engine).baseXpcall,

	"__redis__err__handler": (*Engine).baseErrHandler,
}

func (e *Engine) baseAssert(L *lua.LState) int {
	if lua.LVAsBool(e.arg.Any(L, 1)) {
		return L.GetTop()
	}
	e.throw(L, clib.Text(e.arg.OptString(L, 2, "assertion failed!")))
	return 0
}

// baseCollect never collects: the collector serves the whole process, not one script.
func (e *Engine) baseCollect(L *lua.LState) int {
	var result lua.LValue = lua.LNumber(0)
	switch opt := e.arg.OptString(L, 1, "collect"); opt {
	case "count":
		result = lua.LNumber(float64(e.spent) / 1024)
	case "step":
		result = lua.LFalse
	case "collect", "stop", "restart":
	case "setpause", "setstepmul":
		result = lua.LNumber(200)
	default:
		e.argError(L, 1, e.paste("invalid option '", clib.Text(opt))+"'")
	}
	e.arg.OptCInt(L, 2, 0)
	L.Push(result)
	return 1
}

func (e *Engine) baseGCInfo(L *lua.LState) int {
	L.Push(lua.LNumber(e.spent / 1024))
	return 1
}

func (e *Engine) baseError(L *lua.LState) int {
	level := e.arg.OptCInt(L, 2, 1)
	v := L.Get(1)
	if s, ok := auxlib.ToString(v); ok && level > 0 {
		v = lua.LString(e.paste(e.where(L, level), s))
	}
	e.throwValue(L, v)
	return 0
}

func (e *Engine) baseGetMetatable(L *lua.LState) int {
	v := e.arg.Any(L, 1)
	if t, ok := v.(*lua.LTable); ok && t.Metatable == lua.LValue(e.protect) {
		L.Push(lua.LNil)
		return 1
	}
	L.Push(L.GetMetatable(v))
	return 1
}

func (e *Engine) baseSetMetatable(L *lua.LState) int {
	t := e.arg.Table(L, 1)
	mt := L.Get(2)
	if mt.Type() != lua.LTNil && mt.Type() != lua.LTTable || L.GetTop() < 2 {
		e.argError(L, 2, "nil or table expected")
	}
	if e.metafield(L, t, "__metatable") != lua.LNil {
		e.throw(L, "cannot change a protected metatable")
	}
	e.writable(L, t).Metatable = mt
	L.SetTop(1)
	return 1
}

func (e *Engine) baseIpairs(L *lua.LState) int {
	t := e.arg.Table(L, 1)
	L.Push(e.ipairsStep)
	L.Push(t)
	L.Push(lua.LNumber(0))
	return 3
}

func (e *Engine) ipairsNext(L *lua.LState) int {
	i := e.arg.Number(L, 2) + 1
	v := e.arg.Table(L, 1).RawGet(i)
	if v == lua.LNil {
		L.Push(lua.LNil)
		return 1
	}
	L.Push(i)
	L.Push(v)
	return 2
}

func (e *Engine) baseNext(L *lua.LState) int {
	t := e.arg.Table(L, 1)
	e.passKey(L.Get(2))
	key, value := next(t, L.Get(2))
	e.workNext(t, L.Get(2), key)
	L.Push(key)
	if key == lua.LNil {
		return 1
	}
	L.Push(value)
	return 2
}

// next is gopher-lua's Next, which would skip a key of the hash part after an index that table.remove has cut off the array.
func next(t *lua.LTable, from lua.LValue) (key, value lua.LValue) {
	n, ok := from.(lua.LNumber)
	if keys := interp.HashKeys(t); ok && len(keys) > 0 && removed(t, float64(n)) {
		if value = t.RawGetH(keys[0]); value != lua.LNil {
			return keys[0], value
		}
	}
	return t.Next(from)
}

// removed reports whether n is an index for the array part of t that lies beyond the present end of the array.
func removed(t *lua.LTable, n float64) bool {
	return n > float64(len(interp.ArrayPart(t))) && n < float64(lua.MaxArrayIndex) && n == math.Trunc(n)
}

// slotsInStep is how many elements or keys a walk over a table passes in the time of an instruction.
const slotsInStep = 16

// workSlots counts the work of a walk over a table. The walk also meets elements and keys whose values were set to nil.
func (e *Engine) workSlots(t *lua.LTable) { e.work(interp.Slots(t) / slotsInStep) }

// workNext counts the work of next, which skips elements and keys without a value.
func (e *Engine) workNext(t *lua.LTable, from, to lua.LValue) {
	if interp.DeadKeys(t) > slotsInStep {
		end := interp.PlaceOf(t, to)
		if to == lua.LNil {
			end = len(interp.HashKeys(t))
		}
		e.work(max(end-interp.PlaceOf(t, from), 0) / slotsInStep)
	}
	a, _ := from.(lua.LNumber)
	b, ok := to.(lua.LNumber)
	if size := lua.LNumber(len(interp.ArrayPart(t))); !ok || b > size {
		b = size
	}
	if b > a+64 {
		e.work(int(b-a) / 16)
	}
}

func (e *Engine) basePairs(L *lua.LState) int {
	t := e.arg.Table(L, 1)
	L.Push(e.pairsStep)
	L.Push(t)
	L.Push(lua.LNil)
	return 3
}

// basePcall is Redis's pcall: for an error table whose field err is a text, it returns only that text.
func (e *Engine) basePcall(L *lua.LState) int {
	if L.GetTop() == 0 {
		// Redis pushes false as a placeholder for the first result. Without arguments, Redis then calls this false.
		L.Push(lua.LFalse)
		L.Push(lua.LString("attempt to call a boolean value"))
		return 2
	}
	failure, ok := e.protectedCall(L, L.GetTop()-1, lua.MultRet, nil)
	if ok {
		L.Insert(lua.LTrue, 1)
		return L.GetTop()
	}
	L.SetTop(0)
	L.Push(lua.LFalse)
	if t, isTable := failure.(*lua.LTable); isTable {
		text := L.GetField(t, "err")
		if _, isText := auxlib.ToString(text); !isText {
			L.Push(t)
		}
		failure = text
	}
	L.Push(failure)
	return L.GetTop()
}

func (e *Engine) baseXpcall(L *lua.LState) int {
	if L.GetTop() < 2 {
		e.argError(L, 2, "value expected")
	}
	h := e.newErrorHandler(L, L.Get(2))
	L.SetTop(1)
	failure, ok := e.protectedCall(L, 0, lua.MultRet, h.fn)
	if ok {
		L.Insert(lua.LTrue, 1)
		return L.GetTop()
	}
	if !h.handled {
		failure = lua.LString(msgHandlerFailed)
	}
	L.SetTop(0)
	L.Push(lua.LFalse)
	L.Push(failure)
	return 2
}

func (e *Engine) baseRawEqual(L *lua.LState) int {
	a, b := e.arg.Any(L, 1), e.arg.Any(L, 2)
	e.passKey(a)
	L.Push(lua.LBool(L.RawEqual(a, b)))
	return 1
}

func (e *Engine) baseRawGet(L *lua.LState) int {
	t := e.arg.Table(L, 1)
	key := e.arg.Any(L, 2)
	e.passKey(key)
	L.Push(t.RawGet(key))
	return 1
}

func (e *Engine) baseRawSet(L *lua.LState) int {
	t := e.arg.Table(L, 1)
	key := e.arg.Any(L, 2)
	value := e.arg.Any(L, 3)
	e.setRaw(L, e.writable(L, t), key, value)
	L.SetTop(1)
	return 1
}

// setRaw does what lua_rawset does, with its errors, and charges for the growth of the table.
func (e *Engine) setRaw(L *lua.LState, t *lua.LTable, key, value lua.LValue) {
	switch k := key.(type) {
	case *lua.LNilType:
		e.throwHere(L, "table index is nil")
	case lua.LNumber:
		if k != k {
			e.throwHere(L, "table index is NaN")
		}
	}
	e.passKey(key)
	e.beforeGrowth(t, key, value)
	t.RawSet(key, value)
}

func (e *Engine) baseSelect(L *lua.LState) int {
	top := L.GetTop()
	if s, ok := L.Get(1).(lua.LString); ok && strings.HasPrefix(string(s), "#") {
		L.Push(lua.LNumber(top - 1))
		return 1
	}
	n := e.arg.CInt(L, 1)
	switch {
	case n < 0:
		n = top + n
	case n > top:
		n = top
	}
	if n < 1 {
		e.argError(L, 1, "index out of range")
	}
	return top - n
}

func (e *Engine) baseToNumber(L *lua.LState) int {
	base := e.arg.OptCInt(L, 2, 10)
	var n lua.LNumber
	var ok bool
	if base == 10 {
		n, ok = e.arg.ToNumber(e.arg.Any(L, 1))
	} else {
		s := e.arg.String(L, 1)
		if base < 2 || base > 36 {
			e.argError(L, 2, "base out of range")
		}
		e.work(len(s) / 16)
		n, ok = clib.ParseBase(s, base)
	}
	if !ok {
		L.Push(lua.LNil)
		return 1
	}
	L.Push(n)
	return 1
}

func (e *Engine) baseToString(L *lua.LState) int {
	v := e.arg.Any(L, 1)
	if fn := e.metafield(L, v, "__tostring"); fn != lua.LNil {
		L.Push(e.call1(L, fn, v))
		return 1
	}
	L.Push(lua.LString(e.display(v)))
	return 1
}

// display is tostring without metamethods. In place of an address it prints a number, which is the same on every node.
func (e *Engine) display(v lua.LValue) string {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return clib.FormatNumber(v)
	case lua.LBool, *lua.LNilType:
		return v.String()
	case *lua.LUserData:
		if v == e.ext.Null {
			return "userdata: (nil)"
		}
	}
	if e.shown == nil {
		e.shown = map[lua.LValue]int{}
	}
	id, ok := e.shown[v]
	if !ok {
		id = len(e.shown) + 1
		e.shown[v] = id
	}
	return fmt.Sprintf("%s: 0x7f%010x", auxlib.TypeName(v), id*64)
}

func (e *Engine) baseType(L *lua.LState) int {
	L.Push(lua.LString(auxlib.TypeName(e.arg.Any(L, 1))))
	return 1
}

func (e *Engine) baseUnpack(L *lua.LState) int {
	t := e.arg.Table(L, 1)
	from := e.arg.OptCInt(L, 2, 1)
	var to int
	if L.Get(3) == lua.LNil {
		to = e.length(t)
	} else {
		to = e.arg.CInt(L, 3)
	}
	if from > to {
		return 0
	}
	n := to - from + 1
	if n <= 0 || n+L.GetTop() > auxlib.MaxStack {
		e.throw(L, "too many results to unpack")
	}
	e.charge(int64(n) * pushCost)
	e.work(n / copiedInStep)
	for i := from; i <= to; i++ {
		L.Push(t.RawGet(lua.LNumber(i)))
	}
	return n
}

// baseErrHandler is Redis's error handler, a global. In Redis it is a Lua function, so an error in it has a position.
func (e *Engine) baseErrHandler(L *lua.LState) int {
	t, ok := L.Get(1).(*lua.LTable)
	if !ok {
		t = e.record(L, "err", lua.LString(e.paste("ERR ", e.display(L.Get(1)))))
	}
	if e.isReadonly(t) {
		e.errSource, e.errLine = "@err_handler_def", 10
		panic(&lua.ApiError{Type: lua.ApiErrorRun, Object: lua.LString("err_handler_def:10: " + msgReadonlyTable), StackTrace: "-"})
	}
	e.notePosition(L)
	t.RawSetString("source", lua.LString(e.errSource))
	t.RawSetString("line", lua.LNumber(e.errLine))
	L.Push(t)
	return 1
}

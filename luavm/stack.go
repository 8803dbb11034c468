package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// gopher-lua panics if a tail call finds too few registers. So the hook makes room before each call.

const (
	// callDepth is how deeply calls may nest: C Lua's LUAI_MAXCALLS.
	callDepth = 20000
	// maxRegisters bounds the registers of a state; C Lua has no such limit.
	maxRegisters = 1 << 20
	// handlerCalls and handlerRegisters are how far the error handler may exceed these two limits after a stack overflow.
	handlerCalls     = 2000
	handlerRegisters = 1 << 15
	// calleeRegisters is more registers than any Lua function needs above its arguments.
	calleeRegisters = 600
	// While a state has fewer than fewRegisters registers, makeRoom reserves none for the results of a Go function: gopher-lua
	// itself makes room for these.
	fewRegisters = 1 << 14
	// registerSize is the number of bytes of a register.
	registerSize = 16
)

// beforeCall raises the error of a stack overflow if a call is nested too deeply, and makes room for the registers of the called
// function.
func (e *Engine) beforeCall(L *lua.LState, f *interp.Frame, inst uint32) {
	most := callDepth + e.overflowed.share(handlerCalls)
	if f.Idx >= most && interp.OpOf(inst) == lua.OP_CALL {
		e.overflow(L)
	}
	top := interp.ArgA(inst) + interp.ArgB(inst)
	if interp.ArgB(inst) == 0 {
		top = L.GetTop()
	}
	e.makeRoom(L, f.LocalBase+top)
}

// makeRoom makes room for calleeRegisters above top, the end of the arguments for a call or of the values that a vararg expression
// copies.
func (e *Engine) makeRoom(L *lua.LState, top int) {
	reg := interp.Registers(L)
	size, most := top+calleeRegisters, maxRegisters+e.overflowed.share(handlerRegisters)
	if cap(*reg) >= fewRegisters {
		size += auxlib.MaxStack // for the results, if the function is written in Go
	}
	if size > most {
		e.overflow(L)
	}
	if size > cap(*reg) {
		n := min(max(2*cap(*reg), size), most)
		e.charge(int64(n) * registerSize)
		grown := make([]lua.LValue, n)
		copy(grown, *reg)
		*reg = grown
	}
}

// overflowed says whether a stack overflow waits for a protected call to catch it. Until then, the error handler has room beyond the
// limits.
type overflowed int8

const (
	notOverflowed overflowed = iota
	// inOverflow: C Lua has doubled its stack for the error handler. A second overflow ends the handler.
	inOverflow
	// overflowCaught: a protected call has caught an error in the handler. C Lua then calls a handler for the next overflow.
	overflowCaught
)

// share returns how much of the additional room for the handler may be used.
func (o overflowed) share(room int) int {
	switch o {
	case inOverflow:
		return room
	case overflowCaught:
		return room / 2
	}
	return 0
}

// afterCatch returns the new value of e.overflowed when a protected call has caught an error, given the value before that call.
func (e *Engine) afterCatch(L *lua.LState, before overflowed) overflowed {
	if before == inOverflow && interp.TopFrame(L).Idx < callDepth+overflowCaught.share(handlerCalls) {
		return overflowCaught
	}
	return before
}

// overflow raises C Lua's error for a stack overflow.
func (e *Engine) overflow(L *lua.LState) {
	if e.overflowed == inOverflow {
		e.unhandled = true
		e.throwValue(L, lua.LString(msgHandlerFailed))
	}
	e.overflowed = inOverflow
	e.throwHere(L, "stack overflow")
}

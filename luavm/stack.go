package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/auxlib"
	"lockstep/luavm/internal/interp"
)

// gopher-lua's registers grow by the same number each time, and it panics if there is no room for them in the middle of a
// tail call. So the hook makes room before each call, and raises C Lua's error if there are too many calls or registers.

const (
	// callDepth is C Lua's LUAI_MAXCALLS.
	callDepth = 20000
	// maxRegisters bounds the registers of a state; C Lua has no such limit.
	maxRegisters = 1 << 20
	// handlerCalls and handlerRegisters are what the handler of an overflow may use beyond these limits.
	handlerCalls     = 2000
	handlerRegisters = 1 << 15
	// calleeRegisters is more than a Lua function needs above its arguments.
	calleeRegisters = 600
	// Below fewRegisters, gopher-lua itself makes room when a Go function pushes many results.
	fewRegisters = 1 << 14
	// registerSize is the number of bytes of a register.
	registerSize = 16
)

// beforeCall refuses a call that is nested too deeply, and makes room for the registers of the called function.
func (e *Engine) beforeCall(L *lua.LState, f *interp.Frame, inst uint32) {
	most := callDepth
	if e.overflowed {
		most += handlerCalls
	}
	if f.Idx >= most && interp.OpOf(inst) == lua.OP_CALL {
		e.overflow(L)
	}
	top := interp.ArgA(inst) + interp.ArgB(inst)
	if interp.ArgB(inst) == 0 {
		top = L.GetTop()
	}
	e.makeRoom(L, f.LocalBase+top)
}

// makeRoom makes room for the registers of a function above top, the end of its arguments.
func (e *Engine) makeRoom(L *lua.LState, top int) {
	reg := interp.Registers(L)
	size, most := top+calleeRegisters, maxRegisters
	if cap(*reg) >= fewRegisters {
		size += auxlib.MaxStack // the results of a Go function
	}
	if e.overflowed {
		most += handlerRegisters
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

// overflow raises C Lua's error. Until a protected call has caught the error, its handler may use handlerCalls and
// handlerRegisters more.
func (e *Engine) overflow(L *lua.LState) {
	e.overflowed = true
	e.throwHere(L, "stack overflow")
}

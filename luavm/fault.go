package luavm

import (
	"fmt"
	"runtime"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// A panic that is neither an error of Lua nor a stop is a fault: of gopher-lua, of this package, or of a command that the script
// called. A fault ends the script as a limit does, and the Lua state is not used again. passErrors must recover the panic before
// gopher-lua does. gopher-lua's protected call would make a trace for the panic, in steps that grow with the square of the calls
// on the stack. The coroutines of gopher-lua would make an error of it that the script can catch.

// fault stops the script because of a panic; it can be called only while the panic is on the stack.
func (e *Engine) fault(p any) {
	e.dirty = true
	e.budget = -1
	if e.stop != "" {
		return
	}
	e.stop = msgFault
	e.tell(firstLine(fmt.Sprint(p)) + ", at " + faultPlace())
	e.errSource, e.errLine = "", 0
	defer func() { _ = recover() }() // notePosition may panic if the fault has broken the call frames
	e.notePosition(e.running())
}

// faultPlace returns the function and line that raised the panic which is being recovered.
func faultPlace() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	panicking := false
	for {
		f, more := frames.Next()
		if ofRuntime := strings.HasPrefix(f.Function, "runtime."); panicking && !ofRuntime {
			return fmt.Sprintf("%s:%d", f.Function, f.Line)
		}
		panicking = panicking || f.Function == "runtime.gopanic"
		if !more {
			return "an unknown place"
		}
	}
}

// contain recovers every panic; a panic that is not a stop becomes a fault. Either way, e.stop then says why the script was
// stopped. The functions that compile Lua or call gopher-lua for a command defer contain, so that no panic leaves the engine
// half changed.
func (e *Engine) contain() {
	if p := recover(); p != nil && !isStopped(p) {
		e.fault(p)
	}
}

// passErrors lets a panic continue if the panic is an error of Lua, a stop or noRoomForHandler. Any other panic becomes a fault, which
// no pcall of the script can catch.
func (e *Engine) passErrors() {
	p := recover()
	if p == nil {
		return
	}
	if _, isError := p.(*lua.ApiError); !isError && p != noRoomForHandler && !isStopped(p) {
		e.fault(p)
		panicStopped()
	}
	panic(p)
}

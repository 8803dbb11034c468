package luavm

import (
	"fmt"
	"runtime"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// A panic that is neither an error of Lua nor a stop is a fault: of gopher-lua, of this package, or of a command. A fault ends the
// script, and the Lua state is not used again. passErrors must recover the panic before gopher-lua does: a protected call would make a
// costly trace, and a coroutine an error that the script can catch.

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

// contain recovers every panic, so that none leaves the engine half changed. Code that compiles or runs Lua defers it. e.stop has the
// reason.
func (e *Engine) contain() {
	if p := recover(); p != nil && !isStopped(p) {
		e.fault(p)
	}
}

// passErrors passes errors of Lua, stops and noRoomForHandler on. Any other panic becomes a fault, which no pcall can catch.
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

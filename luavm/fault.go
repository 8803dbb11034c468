package luavm

import (
	"fmt"
	"runtime"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// A panic that is no error of Lua is a fault: of gopher-lua, of this package, or of a command that the script called. It
// ends the script as a limit does, and the Lua state is not used again. passErrors must recover it before gopher-lua does.
// gopher-lua's protected call would make a trace for it, in steps that grow with the square of the calls on the stack. The
// coroutines of gopher-lua would make an error of it that the script can catch.

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
	defer func() { _ = recover() }() // the call frames may be what is broken
	e.notePosition(e.running())
}

// faultPlace returns where the panic began that is being recovered from.
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

// contain ends every panic, and makes it a fault unless the script is being stopped. Each function that runs Lua for a command
// defers contain, so that no panic leaves the engine between two states. The reason of the stop is in e.stop.
func (e *Engine) contain() {
	if p := recover(); p != nil && !isStopped(p) {
		e.fault(p)
	}
}

// passErrors lets errors of Lua pass, and makes any other panic a fault that no call of the script can catch.
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

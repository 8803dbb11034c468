package luavm

import (
	"fmt"
	"strings"
	"unsafe"

	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/interp"
)

// What outlives a call is what the libraries keep: the locals of their code, and all that
// can be reached from there. Each call may add a little, so their sum is bounded, beside
// what one script may hold while it runs.
//
// What calls allocate is known roughly (charge). When enough of that has come together,
// what the libraries keep is measured by a walk over it. Who keeps most then begins anew
// from its code, as every library does when a script is stopped.

// keptShare is which part of a script's memory all libraries may keep together.
const keptShare = 2

// mayKeep is what all libraries may keep together.
func (e *Engine) mayKeep() int64 { return e.opts.MemoryLimit / keptShare }

// keeping is what is known of that.
type keeping struct {
	since int64 // what calls have allocated since libraries were measured
	next  int64 // value of since at which they are measured again

	objects int // that were met then
}

// Kept returns what libraries keep from call to call, as of the last time that it was
// measured. It may be called from any goroutine.
func (e *Engine) Kept() int64 { return e.kept.Load() }

// forget drops all libraries of the Lua state.
func (e *Engine) forget() {
	clear(e.libs)
	e.kept.Store(0)
	e.keeping = keeping{next: e.mayKeep() / 8}
}

// keepsTooMuch is asked when code of a library has run: it measures, if it is time, and
// has libraries begin anew until the others keep little enough. It reports whether this
// one must, which is so if it keeps the larger part of what there may be; one that is
// loaded, if it keeps more than that alone.
func (e *Engine) keepsTooMuch(l *loadedLibrary) (is bool) {
	e.since += e.spent + int64(e.pace-e.budget)*instructionCost
	if e.since < e.next {
		return false
	}
	limit := e.mayKeep()
	total := e.measure(l)
	if is = total > limit && (l.size > limit || e.loading == nil && l.size > limit/2); is {
		total -= e.restart(l)
	}
	for total > limit {
		var most *loadedLibrary
		for _, other := range e.libs {
			if other != l && (most == nil || other.size > most.size) {
				most = other
			}
		}
		total -= e.restart(most)
	}
	e.kept.Store(total)
	// An instruction may keep more than it is taken to allocate.
	e.since, e.next = 0, max((limit-total)/4, limit/32)
	return is
}

// restart drops a library, which is loaded again when it is called, and returns what it kept.
func (e *Engine) restart(l *loadedLibrary) (kept int64) {
	if e.libs[l.lib.Name] == l {
		delete(e.libs, l.lib.Name)
	}
	e.log(logWarning, fmt.Sprintf("library %s begins anew: it kept %d bytes from call to call", l.lib.Name, l.size))
	kept, l.size = l.size, 0
	return kept
}

// measure sets the size of every library, and of one that is being loaded.
func (e *Engine) measure(l *loadedLibrary) (total int64) {
	w := walk{e: e, seen: make(map[unsafe.Pointer]bool, e.objects)}
	visit := func(l *loadedLibrary) {
		from := w.size
		for _, fn := range l.fns {
			w.add(fn)
		}
		w.run()
		l.size = w.size - from
	}
	for _, other := range e.libs {
		if other != l {
			visit(other)
		}
	}
	visit(l)
	e.objects = len(w.seen)
	return w.size
}

// walk adds up what can be reached. What is shared with the engine is not entered.
type walk struct {
	e    *Engine
	seen map[unsafe.Pointer]bool
	todo []lua.LValue
	size int64
}

// first reports whether something is met for the first time, and counts it then.
func (w *walk) first(p unsafe.Pointer, size int) bool {
	if p == nil || w.seen[p] {
		return false
	}
	w.seen[p] = true
	w.size += int64(size)
	return true
}

// What things take, apart from what they hold.
const (
	tableSize    = 160
	pairSize     = 200 // of a hash: its key and value, in three places
	functionSize = 160
	upvalueSize  = 72
	threadSize   = 2 << 10
	boxSize      = 16 // a number, or the head of a string
	shortString  = 64 // is counted wherever it is met
)

func (w *walk) add(v lua.LValue) {
	switch v := v.(type) {
	case lua.LNumber:
		w.size += boxSize
	case lua.LString:
		w.text(string(v))
	case *lua.LTable:
		if !w.e.isReadonly(v) && w.first(unsafe.Pointer(v), tableSize) {
			w.todo = append(w.todo, v)
		}
	case *lua.LFunction:
		if w.first(unsafe.Pointer(v), functionSize) {
			w.todo = append(w.todo, v)
		}
	case *lua.LState:
		if v != w.e.L && w.first(unsafe.Pointer(v), threadSize) {
			w.todo = append(w.todo, v)
		}
	}
}

func (w *walk) text(s string) {
	w.size += boxSize
	// Texts are made in steps, and may have room for half of their length more.
	if n := len(s) + len(s)/2; n <= shortString {
		w.size += int64(n)
	} else {
		w.first(unsafe.Pointer(unsafe.StringData(s)), n)
	}
}

func (w *walk) run() {
	for len(w.todo) > 0 {
		v := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		switch v := v.(type) {
		case *lua.LTable:
			w.table(v)
		case *lua.LFunction:
			w.function(v)
		case *lua.LState:
			w.thread(v)
		}
	}
}

func (w *walk) table(t *lua.LTable) {
	if mt, ok := t.Metatable.(*lua.LTable); ok {
		w.add(mt)
	}
	array := interp.ArrayPart(t)
	w.size += int64(cap(array)) * boxSize
	for _, v := range array[:cap(array)] {
		w.add(v)
	}
	// Keys stay when their values go.
	keys := interp.HashKeys(t)
	w.size += int64(cap(keys)) * pairSize
	for _, k := range keys {
		w.add(k)
		w.add(t.RawGet(k))
	}
}

func (w *walk) function(fn *lua.LFunction) {
	if fn.Env != nil {
		w.add(fn.Env)
	}
	if !fn.IsG {
		w.proto(fn.Proto)
	}
	for _, up := range fn.Upvalues {
		if up != nil && w.first(unsafe.Pointer(up), upvalueSize) {
			w.add(up.Value())
		}
	}
}

func (w *walk) proto(p *lua.FunctionProto) {
	if !w.first(unsafe.Pointer(p), protoSize(p)) {
		return
	}
	for _, v := range p.Constants {
		w.add(v)
	}
	for _, inner := range p.FunctionPrototypes {
		w.proto(inner)
	}
}

// protoSize is what a compiled function takes without its constants and inner functions.
func protoSize(p *lua.FunctionProto) int {
	return 320 + len(p.SourceName) + 4*cap(p.Code) + 8*cap(p.DbgSourcePositions) + 16*cap(p.Constants) +
		16*cap(interp.StringConstants(p)) + 8*cap(p.FunctionPrototypes) + 48*cap(p.DbgLocals) + 24*cap(p.DbgCalls) + 32*cap(p.DbgUpvalues)
}

// compiledSize is what a compiled chunk takes.
func compiledSize(p *lua.FunctionProto) int64 {
	w := walk{seen: map[unsafe.Pointer]bool{}}
	w.proto(p)
	return w.size
}

// thread visits a coroutine: its registers, and the functions that it stands in.
func (w *walk) thread(th *lua.LState) {
	if reg := interp.Registers(th); reg != nil {
		w.size += int64(cap(*reg)) * boxSize
		for _, v := range *reg {
			w.add(v)
		}
	}
	for f := interp.TopFrame(th); f != nil; f = f.Parent {
		w.size += int64(unsafe.Sizeof(*f))
		if f.Fn != nil {
			w.add(f.Fn)
		}
	}
}

// own returns a part of a larger text: one that may be kept does not keep the rest.
func (e *Engine) own(part string) lua.LString {
	if e.keeps {
		part = strings.Clone(part)
	}
	return lua.LString(part)
}

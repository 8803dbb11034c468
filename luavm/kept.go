package luavm

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// Function libraries keep memory from call to call: the locals of their code, and all that can be reached from these. The limit of one
// running script does not see the sum, so this file bounds it.
//
// When calls have allocated enough, a walk measures the kept values. No library reaches another's values. So the walk enters only
// libraries whose calls have since allocated much (grownShare); for the others, these allocations are added. The walk over the called
// library is work of the call. If the total is too large, the engine drops the largest libraries, whose code runs again before their next
// call.

// All libraries together may keep 1/keptShare of the memory limit of a script.
const keptShare = 2

// A measurement enters libraries whose calls have since allocated more than 1/grownShare of their size. Above the limit, a second one
// enters all libraries with any allocation.
const grownShare = 8

// mayKeep returns how many bytes all libraries together may keep.
func (e *Engine) mayKeep() int64 { return e.opts.MemoryLimit / keptShare }

// keeping says when the next measurement of the kept values is due.
type keeping struct {
	since int64 // bytes that calls have allocated since the last measurement
	next  int64 // value of since at which the next measurement is due

	walked int // calls of walk.count since the engine began
}

// Kept returns how many bytes libraries keep from call to call, by the last measurement. It
// may be called from any goroutine.
func (e *Engine) Kept() int64 { return e.kept.Load() }

// forget drops all libraries of the Lua state.
func (e *Engine) forget() {
	clear(e.libs)
	e.kept.Store(0)
	e.keeping = keeping{next: e.mayKeep() / 8, walked: e.walked}
}

// Forget drops all loaded libraries. A node that begins to lead calls it, because functions have run elsewhere meanwhile.
func (e *Engine) Forget() { e.forget() }

// Settle says that nothing of what has run so far will be undone by Undo.
func (e *Engine) Settle() { e.settled++ }

// Undo says that all that has run since the last Settle is undone. It drops the libraries whose functions have run since.
func (e *Engine) Undo() {
	if e.lastRan != e.settled {
		return // most batches run no function, and there may be many libraries
	}
	for name, l := range e.libs {
		if l.ranIn == e.settled {
			delete(e.libs, name)
		}
	}
}

// keepsTooMuch must be called after code of l has run. At a measurement above the limit, it restarts l, if l keeps more than half of the
// limit (while loading: all), then the largest others. It reports whether l was restarted. After a stop it returns false.
func (e *Engine) keepsTooMuch(l *loadedLibrary) (is bool) {
	if e.stop != "" || e.dirty {
		return false // finish will drop all libraries
	}
	defer e.contain()
	by := e.spent + int64(e.pace-e.budget)*instructionCost
	e.since += by
	l.since += by
	if e.since < e.next {
		return false
	}
	limit := e.mayKeep()
	total := e.measure(l, grownShare)
	if total > limit {
		total = e.measure(l, math.MaxInt64)
	}
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
	// Measure well before the limit: an instruction may allocate more than is charged for it.
	e.since, e.next = 0, max((limit-total)/4, limit/32)
	return is
}

// restart drops a library, and returns how many bytes it kept. The next call of one of its functions loads it again.
func (e *Engine) restart(l *loadedLibrary) (kept int64) {
	if e.libs[l.lib.Name] == l {
		delete(e.libs, l.lib.Name)
	}
	e.log(logWarning, fmt.Sprintf("library %s begins anew: it kept %d bytes from call to call", l.lib.Name, l.size))
	kept, l.size = l.size, 0
	return kept
}

// measure bounds the bytes that l and the loaded libraries keep. It measures libraries whose calls have allocated more than 1/share of
// their size.
func (e *Engine) measure(l *loadedLibrary, share int64) (total int64) {
	w := walk{e: e, seen: map[unsafe.Pointer]bool{}, blocks: map[uintptr]bool{}}
	visit := func(l *loadedLibrary) {
		if l.since > l.size/share {
			from := w.size
			for _, fn := range l.fns {
				w.add(fn)
			}
			w.run()
			l.size, l.since = w.size-from, 0
		}
		total += l.size + l.since
	}
	w.work = e.work
	visit(l)
	w.work = nil // the walk over the other libraries is not work of the call
	for _, other := range e.libs {
		if other != l {
			visit(other)
		}
	}
	return total
}

// walk adds up the memory that can be reached from the values passed to add, except what all scripts share.
type walk struct {
	e    *Engine
	work func(steps int) // counts the walk as work; may be nil
	seen map[unsafe.Pointer]bool

	blocks map[uintptr]bool // the blocks of numbers that are counted already

	todo []lua.LValue
	size int64
}

// first reports whether the walk meets the object at p for the first time; if so, it adds size to w.size.
func (w *walk) first(p unsafe.Pointer, size int) bool {
	if p == nil || w.seen[p] {
		return false
	}
	w.seen[p] = true
	w.size += int64(size)
	return true
}

// These are the sizes of objects in bytes, without the values that they hold.
const (
	tableSize    = 160
	pairSize     = 200 // a key with its value in a hash part: gopher-lua has the key in a list and in two maps
	placesSize   = 256 // the smallest map of keys, which has room for smallMap keys, …
	mapSize      = 336 // … and the smallest map of values
	smallMap     = 8
	placeSize    = 80 // a key of a larger map, which may be half full
	functionSize = 160
	upvalueSize  = 72
	threadSize   = 26 << 10
	boxSize      = 16 // the head of a string
	shortString  = 64 // a string up to this size is counted each time it is met
)

func (w *walk) add(value lua.LValue) {
	switch v := value.(type) {
	case lua.LNumber:
		if block, size := interp.BlockOf(value); !w.blocks[block] {
			w.blocks[block] = true
			w.size += size
		}
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
	// A string that was built piece by piece may have memory for half as many bytes again.
	if n := len(s) + len(s)/2; n <= shortString {
		w.size += int64(n)
	} else {
		w.first(unsafe.Pointer(unsafe.StringData(s)), n)
	}
}

func (w *walk) run() {
	for len(w.todo) > 0 {
		w.count(walkSteps)
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

// walkSteps is how many instructions take as long as the visit of one object.
const walkSteps = 4

// count counts steps of the walk; if w.work is set, they count as work of the called function.
func (w *walk) count(steps int) {
	w.e.walked++
	if w.work != nil {
		w.work(steps)
	}
}

func (w *walk) table(t *lua.LTable) {
	if mt, ok := t.Metatable.(*lua.LTable); ok {
		w.add(mt)
	}
	array := interp.ArrayPart(t)
	w.size += int64(cap(array)) * boxSize
	w.count(cap(array) / 4)
	for _, v := range array[:cap(array)] {
		w.add(v)
	}
	// These include keys whose values were set to nil: gopher-lua keeps such keys.
	keys := interp.HashKeys(t)
	if cap(keys) > 0 || interp.Maps(t) > 0 {
		w.size += placesSize + int64(interp.Maps(t))*mapSize + int64(cap(keys))*boxSize
	}
	if len(keys) > smallMap {
		w.size += int64(len(keys)) * placeSize * int64(1+interp.Maps(t))
	}
	w.count(len(keys) * walkSteps)
	for _, k := range keys {
		if s, ok := k.(lua.LString); ok && len(s) > longText {
			w.count(len(s) / passedInStep)
		}
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

// protoSize returns the bytes of a compiled function without its constants and inner functions.
func protoSize(p *lua.FunctionProto) int {
	return 320 + len(p.SourceName) + 4*cap(p.Code) + 8*cap(p.DbgSourcePositions) + 16*cap(p.Constants) +
		16*cap(interp.StringConstants(p)) + 8*cap(p.FunctionPrototypes) + 48*cap(p.DbgLocals) + 24*cap(p.DbgCalls) + 16*cap(p.DbgUpvalues)
}

// compiledSize returns the bytes of a compiled chunk. It counts all functions and strings, because no other chunk shares them.
func compiledSize(p *lua.FunctionProto) int64 {
	size := int64(protoSize(p))
	for _, v := range p.Constants {
		size += boxSize
		if s, ok := v.(lua.LString); ok {
			size += int64(len(s) + len(s)/2)
		}
	}
	for _, inner := range p.FunctionPrototypes {
		size += compiledSize(inner)
	}
	return size
}

// thread visits a coroutine: its registers, and the functions of its call frames.
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

// own returns part as a Lua string, as a copy if the running code may keep it: part keeps a larger string in memory.
func (e *Engine) own(part string) lua.LString {
	if e.keeps {
		e.charge(int64(len(part)) + boxSize)
		part = strings.Clone(part)
	}
	return lua.LString(part)
}

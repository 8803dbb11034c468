package luavm

import (
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/compile"
	"github.com/lockstep-io/lockstep/store"
)

func (e *Engine) baseLoadString(L *lua.LState) int {
	s := e.arg.String(L, 1)
	name, _, _ := strings.Cut(e.arg.OptString(L, 2, s), "\x00")
	return e.loadChunk(L, s, name)
}

// pieceSteps is how many instructions a call of load's function counts as: a function in Go runs none.
const pieceSteps = 8

// baseLoad implements load: it joins the pieces that a function returns, and compiles them.
func (e *Engine) baseLoad(L *lua.LState) int {
	name, _, _ := strings.Cut(e.arg.OptString(L, 2, "=(load)"), "\x00")
	fn := e.arg.Function(L, 1)
	b := e.buffer()
	for {
		e.work(pieceSteps)
		L.Push(fn)
		if failure, ok := e.protectedCall(L, 0, 1, nil); !ok {
			L.Push(lua.LNil)
			L.Push(failure)
			return 2
		}
		piece := L.Get(-1)
		L.Pop(1)
		if piece == lua.LNil {
			break
		}
		s, ok := auxlib.ToString(piece)
		if !ok {
			L.Push(lua.LNil)
			L.Push(lua.LString("reader function must return a string"))
			return 2
		}
		if s == "" {
			break
		}
		b.Str(s)
	}
	return e.loadChunk(L, b.Text(), name)
}

func (e *Engine) loadChunk(L *lua.LState, source, name string) int {
	e.work(len(source) * 4)
	e.pass(len(name))
	proto, err := compile.Chunk(source, name, e.depth, e.watchCompiler)
	if err != nil {
		L.Push(lua.LNil)
		L.Push(lua.LString(err.Error()))
		return 2
	}
	if e.sources == nil {
		e.sources = map[string]string{}
	}
	e.sources[proto.SourceName] = name
	L.Push(L.NewFunctionFromProto(proto))
	return 1
}

// compiled is what the method compile returns.
type compiled struct {
	proto  *lua.FunctionProto
	took   time.Duration // the time that compiling took; 0 if it ended before the first look at the clock
	killed bool          // SCRIPT KILL was answered OK during the compiling
	used   allocated     // what compiling allocated
}

// compile compiles a script or library within a script's time limit. stateRunning allows SCRIPT KILL. A stop sets e.stop. c.used also
// counts for the run.
func (e *Engine) compile(ctx *store.Ctx, source, name string, state uint32) (c compiled, err error) {
	e.begin(ctx, "", true)
	e.heapBase = heapBytes()
	e.start(state, ctx.ScriptTime)
	defer func() {
		if e.started.Load() >= 0 {
			c.took = e.now() - time.Duration(e.started.Load())
		}
		c.killed = e.state.Swap(0)&stateKilled != 0
		c.used = e.allocated
		e.call, e.dirty = store.Ctx{}, false // no Lua has run, so the Lua state is good even after a stop
	}()
	defer e.contain()
	c.proto, err = compile.Chunk(source, name, 0, e.watchCompiler)
	return c, err
}

// watchCompiler charges for compiling, and limits the size of the compiled form (compiledShare). compile.Chunk calls it.
func (e *Engine) watchCompiler(p compile.Progress) {
	e.charge(p.Bytes)
	if p.Kept > e.opts.MemoryLimit/compiledShare {
		e.halt(msgMemory)
	}
	e.work(p.Steps)
}

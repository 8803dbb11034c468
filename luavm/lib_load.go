package luavm

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func (e *Engine) baseLoadString(L *lua.LState) int {
	s := e.checkString(L, 1)
	name, _, _ := strings.Cut(e.optString(L, 2, s), "\x00")
	return e.loadChunk(L, s, name)
}

// baseLoad joins the pieces that a function returns.
func (e *Engine) baseLoad(L *lua.LState) int {
	name, _, _ := strings.Cut(e.optString(L, 2, "=(load)"), "\x00")
	fn := e.checkFunction(L, 1)
	b := buffer{e: e}
	for {
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
		s, ok := toString(piece)
		if !ok {
			L.Push(lua.LNil)
			L.Push(lua.LString("reader function must return a string"))
			return 2
		}
		if s == "" {
			break
		}
		b.str(s)
	}
	return e.loadChunk(L, b.text(), name)
}

func (e *Engine) loadChunk(L *lua.LState, source, name string) int {
	// The tree of a chunk is many times its text.
	e.charge(int64(len(source)) * 50)
	e.work(len(source) * 4)
	proto, err := compileWithin(source, name, e.depth)
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

// How much of a source's name error messages show: LUA_IDSIZE at run time,
// llex.c's MAXSRC for faults of syntax.
const (
	runtimeIDSize = 60
	syntaxIDSize  = 80
)

// chunkID is luaO_chunkid: how a chunk is called in error messages.
func chunkID(name string, size int) string {
	switch {
	case strings.HasPrefix(name, "="):
		return name[1:min(len(name), size)]
	case strings.HasPrefix(name, "@"):
		name = name[1:]
		if room := size - len(" '...' ") - 1; len(name) > room {
			return "..." + name[len(name)-room:]
		}
		return name
	}
	line, _, cut := strings.Cut(name, "\n")
	if i := strings.IndexByte(line, '\r'); i >= 0 {
		line, cut = line[:i], true
	}
	room := size - len(` [string "..."] `) - 1
	if len(line) > room {
		line, cut = line[:room], true
	}
	if cut {
		line += "..."
	}
	return `[string "` + line + `"]`
}

package compile

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// Chunk compiles a chunk, with C Lua's error texts. name has the form of luaL_loadbuffer. nested is how many calls of Lua from Go are in
// progress: C Lua counts them and levels of syntax together.
//
// Chunk calls watch now and then with the steps and bytes since the last call. watch may panic to end the compiling; Chunk passes the
// panic on.
func Chunk(source, name string, nested int, watch func(Progress)) (proto *lua.FunctionProto, err error) {
	shown := strings.Clone(chunkID(name, runtimeIDSize)) // name may be the whole source, which shown must not keep in memory
	if len(source) > maxSourceBytes {
		return nil, syntaxError(shown + ":1: chunk is longer than 1mb")
	}
	if strings.HasPrefix(source, "\x1b") {
		return nil, syntaxError(shown + ":1: unexpected symbol near 'char(27)'") // bytecode is not loaded
	}
	defer func() {
		if p := recover(); p != nil {
			fault, ok := p.(syntaxError)
			if !ok {
				panic(p)
			}
			err = fault
		}
	}()
	return parse(source, chunkID(name, syntaxIDSize), shown, nested, watch), nil
}

// These bound a chunk's name in errors: C Lua's LUA_IDSIZE at run time, llex.c's MAXSRC in syntax errors.
const (
	runtimeIDSize = 60
	syntaxIDSize  = 80
)

// chunkID returns the name of a chunk in error messages, as luaO_chunkid does.
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

package luavm

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// compile compiles a chunk. name is as luaL_loadbuffer takes it: "@" before a
// file name, "=" before a name to be shown as it is, otherwise the source.
func compile(source, name string) (proto *lua.FunctionProto, err error) {
	return compileWithin(source, name, 0)
}

// compileWithin compiles a chunk for a script with so many calls nested already: C Lua
// counts them and the levels of syntax as one.
func compileWithin(source, name string, nested int) (proto *lua.FunctionProto, err error) {
	shown := strings.Clone(chunkID(name, runtimeIDSize)) // the name may be the source
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
	return parse(source, chunkID(name, syntaxIDSize), shown, nested), nil
}

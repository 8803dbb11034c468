package luavm

import (
	"errors"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// compile compiles a chunk. name is as luaL_loadbuffer takes it: "@" before a
// file name, "=" before a name to be shown as it is, otherwise the source.
func compile(source, name string) (proto *lua.FunctionProto, err error) {
	if len(source) > maxSourceBytes {
		return nil, syntaxError(chunkID(name, runtimeIDSize) + ":1: chunk is longer than 1mb")
	}
	if strings.HasPrefix(source, "\x1b") {
		return nil, syntaxError(chunkID(name, runtimeIDSize) + ": bytecode is not loaded")
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
	chunk, last := parse(source, chunkID(name, syntaxIDSize))
	shown := chunkID(name, runtimeIDSize)
	if proto, err = lua.Compile(chunk, shown); err != nil {
		var fault *lua.CompileError
		if errors.As(err, &fault) {
			return nil, syntaxError(shown + ":" + formatNumber(lua.LNumber(max(fault.Line, 1))) + ": function or expression too complex")
		}
		return nil, err
	}
	// Only functions have the table arg; making one for every call of a script
	// would cost more than the call.
	proto.IsVarArg &^= lua.VarArgNeedsArg
	// Returning from the end of the chunk happens on its last line.
	if n := len(proto.DbgSourcePositions); n > 0 {
		proto.DbgSourcePositions[n-1] = last
	}
	return proto, nil
}

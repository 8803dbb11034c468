package interp

import (
	"unsafe"

	lua "github.com/yuin/gopher-lua"
)

// An upvalue is open while its variable has a register. A state lists its open upvalues by register, the lowest first.
var (
	openOffset    = checkedOffset[lua.LState, *lua.Upvalue]("uvcache")
	nextOffset    = checkedOffset[lua.Upvalue, *lua.Upvalue]("next")
	handledOffset = checkedOffset[lua.LState, bool]("hasErrorFunc")
)

// OpenPlace returns the address of the field of L that points to the first of its open upvalues.
func OpenPlace(L *lua.LState) **lua.Upvalue {
	return (**lua.Upvalue)(unsafe.Add(unsafe.Pointer(L), openOffset))
}

// NextPlace returns the address of the field of u that points to the next upvalue in the list.
func NextPlace(u *lua.Upvalue) **lua.Upvalue {
	return (**lua.Upvalue)(unsafe.Add(unsafe.Pointer(u), nextOffset))
}

// HandledPlace returns the address of L's field hasErrorFunc: while true, an error leaves all upvalues open. PCall sets it for a handler,
// and clears it at its end.
func HandledPlace(L *lua.LState) *bool { return (*bool)(unsafe.Add(unsafe.Pointer(L), handledOffset)) }

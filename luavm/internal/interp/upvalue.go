package interp

import (
	"unsafe"

	lua "github.com/yuin/gopher-lua"
)

// An upvalue is open while the local variable that it stands for has a register. A state keeps its open upvalues in a list
// that is sorted by their registers, the lowest first.
var (
	openOffset    = checkedOffset[lua.LState, *lua.Upvalue]("uvcache")
	nextOffset    = checkedOffset[lua.Upvalue, *lua.Upvalue]("next")
	handledOffset = checkedOffset[lua.LState, bool]("hasErrorFunc")
)

// OpenPlace returns the address of L's list of open upvalues.
func OpenPlace(L *lua.LState) **lua.Upvalue {
	return (**lua.Upvalue)(unsafe.Add(unsafe.Pointer(L), openOffset))
}

// NextPlace returns the address of the upvalue behind u in its list.
func NextPlace(u *lua.Upvalue) **lua.Upvalue {
	return (**lua.Upvalue)(unsafe.Add(unsafe.Pointer(u), nextOffset))
}

// HandledPlace returns the address of a mark of L. While it is set, a raised error leaves all upvalues open; otherwise it
// closes those of all frames. A protected call with a handler sets it, and every protected call clears it at its end.
func HandledPlace(L *lua.LState) *bool { return (*bool)(unsafe.Add(unsafe.Pointer(L), handledOffset)) }

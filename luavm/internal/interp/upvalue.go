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

// OpenPlace returns the address of the field of L that points to the first of its open upvalues.
func OpenPlace(L *lua.LState) **lua.Upvalue {
	return (**lua.Upvalue)(unsafe.Add(unsafe.Pointer(L), openOffset))
}

// NextPlace returns the address of the field of u that points to the next upvalue in the list.
func NextPlace(u *lua.Upvalue) **lua.Upvalue {
	return (**lua.Upvalue)(unsafe.Add(unsafe.Pointer(u), nextOffset))
}

// HandledPlace returns the address of L's field hasErrorFunc. While the field is true, gopher-lua leaves all upvalues open when
// an error is raised; while it is false, gopher-lua then closes the upvalues of all frames. PCall sets the field to true if it
// has a handler, and always sets it to false when it ends.
func HandledPlace(L *lua.LState) *bool { return (*bool)(unsafe.Add(unsafe.Pointer(L), handledOffset)) }

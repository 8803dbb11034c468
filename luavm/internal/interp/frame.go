package interp

import (
	"fmt"
	"reflect"
	"unsafe"

	lua "github.com/yuin/gopher-lua"
)

// Frame mirrors gopher-lua's callFrame, which it does not export. What is
// about to run and where it stands is needed before every instruction
// and for C Lua's error texts, so it is read in place.
type Frame struct {
	Idx        int
	Fn         *lua.LFunction
	Parent     *Frame
	Pc         int
	Base       int
	LocalBase  int
	ReturnBase int
	NArgs      int
	NRet       int
	TailCall   int
}

// frameOffset is where an LState keeps its current frame.
var frameOffset = checkedFrameOffset()

func checkedFrameOffset() uintptr {
	field, ok := reflect.TypeFor[lua.LState]().FieldByName("currentFrame")
	if !ok || field.Type.Kind() != reflect.Pointer {
		panic("luavm: this gopher-lua has no LState.currentFrame")
	}
	theirs, ours := field.Type.Elem(), reflect.TypeFor[Frame]()
	if theirs.NumField() != ours.NumField() {
		panic("luavm: gopher-lua's call frame has another layout")
	}
	for i := range ours.NumField() {
		a, b := theirs.Field(i), ours.Field(i)
		if a.Name != b.Name || a.Offset != b.Offset || a.Type.Kind() != b.Type.Kind() {
			panic(fmt.Sprintf("luavm: gopher-lua's call frame differs in %s", b.Name))
		}
	}
	return field.Offset
}

// LowestFrames are those that gopher-lua keeps when they have been left, with what their
// functions hold; it gives the others back. L must have been made with MinimizeStackMemory.
func LowestFrames(L *lua.LState) []Frame {
	stack := reflect.ValueOf(L).Elem().FieldByName("stack").Elem().Elem()
	lowest := stack.FieldByName("segments").Index(0).Elem().FieldByName("array")
	return unsafe.Slice((*Frame)(unsafe.Pointer(lowest.UnsafeAddr())), lowest.Len())
}

// FramePlace returns where L keeps its current frame.
func FramePlace(L *lua.LState) **Frame {
	return (**Frame)(unsafe.Add(unsafe.Pointer(L), frameOffset))
}

// TopFrame is the frame that L is in.
func TopFrame(L *lua.LState) *Frame { return *FramePlace(L) }

// Line is the source line that a Lua frame is executing.
func (f *Frame) Line() int {
	if f.Fn.IsG {
		return -1
	}
	pc := max(f.Pc-1, 0)
	if pc >= len(f.Fn.Proto.DbgSourcePositions) {
		return -1
	}
	return f.Fn.Proto.DbgSourcePositions[pc]
}

// Inst is the instruction that a frame is executing.
func (f *Frame) Inst() uint32 { return f.Fn.Proto.Code[max(f.Pc-1, 0)] }

// Operand reads a register or constant of the running frame.
func (f *Frame) Operand(L *lua.LState, rk int) lua.LValue {
	if rk&RKConst != 0 {
		return f.Fn.Proto.Constants[rk&^RKConst]
	}
	return L.Get(rk + 1)
}

package interp

import (
	"fmt"
	"reflect"
	"unsafe"

	lua "github.com/yuin/gopher-lua"
)

// Frame mirrors gopher-lua's callFrame, which is not exported: the engine reads the running instruction and its position in memory.
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

// frameOffset is the offset of the field currentFrame in an LState.
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

// LowestFrames returns the lowest segment of L's call stack. Its frames refer to functions even after the calls. L must have
// MinimizeStackMemory.
func LowestFrames(L *lua.LState) []Frame {
	stack := reflect.ValueOf(L).Elem().FieldByName("stack").Elem().Elem()
	lowest := stack.FieldByName("segments").Index(0).Elem().FieldByName("array")
	return unsafe.Slice((*Frame)(unsafe.Pointer(lowest.UnsafeAddr())), lowest.Len())
}

// FramePlace returns the address of the field of L that points to its current frame.
func FramePlace(L *lua.LState) **Frame {
	return (**Frame)(unsafe.Add(unsafe.Pointer(L), frameOffset))
}

// TopFrame returns the current frame of L; nil if L runs no function.
func TopFrame(L *lua.LState) *Frame { return *FramePlace(L) }

// Line returns the source line that f executes; -1 if f's function is a Go function or the line
// is not known.
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

// Inst returns the instruction that f executes. f's function must be a Lua function.
func (f *Frame) Inst() uint32 { return f.Fn.Proto.Code[max(f.Pc-1, 0)] }

// Operand returns the value of the operand rk, a register or a constant. f must be L's current
// frame, with a Lua function.
func (f *Frame) Operand(L *lua.LState, rk int) lua.LValue {
	if rk&RKConst != 0 {
		return f.Fn.Proto.Constants[rk&^RKConst]
	}
	return L.Get(rk + 1)
}

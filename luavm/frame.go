package luavm

import (
	"fmt"
	"reflect"
	"unsafe"

	lua "github.com/yuin/gopher-lua"
)

// frame mirrors gopher-lua's callFrame, which it does not export. What is
// about to run and where it stands is needed before every instruction (hook.go)
// and for C Lua's error texts (varinfo.go), so it is read in place. The library
// is pinned; frameOffset refuses to work with a layout it does not know.
type frame struct {
	Idx        int
	Fn         *lua.LFunction
	Parent     *frame
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
	theirs, ours := field.Type.Elem(), reflect.TypeFor[frame]()
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

// lowestFrames are those that gopher-lua keeps when they have been left, with what their
// functions hold; it gives the others back.
func lowestFrames(L *lua.LState) []frame {
	stack := reflect.ValueOf(L).Elem().FieldByName("stack").Elem().Elem()
	lowest := stack.FieldByName("segments").Index(0).Elem().FieldByName("array")
	return unsafe.Slice((*frame)(unsafe.Pointer(lowest.UnsafeAddr())), lowest.Len())
}

// arrayOffset is where an LTable keeps its array part.
var arrayOffset = checkedArrayOffset()

func checkedArrayOffset() uintptr {
	field, ok := reflect.TypeFor[lua.LTable]().FieldByName("array")
	if !ok || field.Type != reflect.TypeFor[[]lua.LValue]() {
		panic("luavm: this gopher-lua has no LTable.array")
	}
	return field.Offset
}

// arrayPart returns the array part of a table, nil values included. It must
// not be kept.
func arrayPart(t *lua.LTable) []lua.LValue {
	return *(*[]lua.LValue)(unsafe.Add(unsafe.Pointer(t), arrayOffset))
}

// setArrayPart gives a table another array part.
func setArrayPart(t *lua.LTable, elems []lua.LValue) {
	*(*[]lua.LValue)(unsafe.Add(unsafe.Pointer(t), arrayOffset)) = elems
}

// stringConstantsOffset is where a FunctionProto keeps its constants once more,
// as plain strings.
var stringConstantsOffset = checkedStringConstantsOffset()

func checkedStringConstantsOffset() uintptr {
	field, ok := reflect.TypeFor[lua.FunctionProto]().FieldByName("stringConstants")
	if !ok || field.Type != reflect.TypeFor[[]string]() {
		panic("luavm: this gopher-lua has no FunctionProto.stringConstants")
	}
	return field.Offset
}

func stringConstants(p *lua.FunctionProto) []string {
	return *(*[]string)(unsafe.Add(unsafe.Pointer(p), stringConstantsOffset))
}

func setStringConstants(p *lua.FunctionProto, strs []string) {
	*(*[]string)(unsafe.Add(unsafe.Pointer(p), stringConstantsOffset)) = strs
}

// framePlace returns where L keeps its current frame.
func framePlace(L *lua.LState) **frame {
	return (**frame)(unsafe.Add(unsafe.Pointer(L), frameOffset))
}

func topFrame(L *lua.LState) *frame { return *framePlace(L) }

// line is the source line that a Lua frame is executing.
func (f *frame) line() int {
	if f.Fn.IsG {
		return -1
	}
	pc := max(f.Pc-1, 0)
	if pc >= len(f.Fn.Proto.DbgSourcePositions) {
		return -1
	}
	return f.Fn.Proto.DbgSourcePositions[pc]
}

// level walks up the stack as lua_getstack does: every tail call counts as a
// frame of its own, for which lost is true. nil means that there is no such
// level.
func (e *Engine) level(L *lua.LState, level int) (f *frame, lost bool) {
	f = e.skip(topFrame(L))
	for level > 0 && f != nil {
		level--
		if !f.Fn.IsG {
			level -= f.TailCall
		}
		f = e.skip(f.Parent)
	}
	if level < 0 {
		return nil, true
	}
	return f, false
}

// skip leaves out the frames that protected calls add and C Lua does not have.
func (e *Engine) skip(f *frame) *frame {
	for f != nil && f.Fn == e.guard {
		f = f.Parent
	}
	return f
}

// where is luaL_where: the position to put before an error message.
func (e *Engine) where(L *lua.LState, level int) string {
	f, _ := e.level(L, level)
	if f == nil || f.Fn.IsG || f.line() <= 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", f.Fn.Proto.SourceName, f.line())
}

// Instruction fields; gopher-lua keeps its accessors to itself.
func opOf(inst uint32) int   { return int(inst >> 26) }
func argA(inst uint32) int   { return int(inst>>18) & 0xff }
func argB(inst uint32) int   { return int(inst & 0x1ff) }
func argC(inst uint32) int   { return int(inst>>9) & 0x1ff }
func argBx(inst uint32) int  { return int(inst & 0x3ffff) }
func argSbx(inst uint32) int { return int(inst&0x3ffff) - 0x1ffff }

// rkConst marks an operand that is a constant.
const rkConst = 1 << 8

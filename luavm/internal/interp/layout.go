package interp

import (
	"fmt"
	"reflect"
	"unsafe"

	lua "github.com/yuin/gopher-lua"
)

// Where gopher-lua keeps the array part of a table, the keys of its hash part, the
// constants of a function once more as plain strings, and the registers and the main
// loop of a state.
var (
	arrayOffset           = checkedOffset[lua.LTable, []lua.LValue]("array")
	keysOffset            = checkedOffset[lua.LTable, []lua.LValue]("keys")
	stringConstantsOffset = checkedOffset[lua.FunctionProto, []string]("stringConstants")
	registryOffset        = checkedRegistryOffset()
	loopOffset            = checkedLoopOffset()
)

// checkedOffset is where a struct of gopher-lua has a field of a type.
func checkedOffset[S, F any](name string) uintptr {
	field, ok := reflect.TypeFor[S]().FieldByName(name)
	if !ok || field.Type != reflect.TypeFor[F]() {
		panic(fmt.Sprintf("luavm: this gopher-lua has no %v.%s", reflect.TypeFor[S](), name))
	}
	return field.Offset
}

func checkedRegistryOffset() uintptr {
	field, ok := reflect.TypeFor[lua.LState]().FieldByName("reg")
	if !ok || field.Type.Kind() != reflect.Pointer {
		panic("luavm: this gopher-lua has no LState.reg")
	}
	first := field.Type.Elem().Field(0)
	if first.Name != "array" || first.Type != reflect.TypeFor[[]lua.LValue]() {
		panic("luavm: gopher-lua's registry has another layout")
	}
	return field.Offset
}

func checkedLoopOffset() uintptr {
	field, ok := reflect.TypeFor[lua.LState]().FieldByName("mainLoop")
	current, known := reflect.TypeFor[lua.LState]().FieldByName("currentFrame")
	if !ok || !known || field.Type != reflect.FuncOf([]reflect.Type{reflect.TypeFor[*lua.LState](), current.Type}, nil, false) {
		panic("luavm: this gopher-lua has no LState.mainLoop")
	}
	return field.Offset
}

// ArrayPart returns the array part of a table, nil values included. It must
// not be kept.
func ArrayPart(t *lua.LTable) []lua.LValue {
	return *(*[]lua.LValue)(unsafe.Add(unsafe.Pointer(t), arrayOffset))
}

// SetArrayPart gives a table another array part.
func SetArrayPart(t *lua.LTable, elems []lua.LValue) {
	*(*[]lua.LValue)(unsafe.Add(unsafe.Pointer(t), arrayOffset)) = elems
}

// HashKeys returns the keys of the hash part of a table, those included whose values
// are gone. It must not be kept.
func HashKeys(t *lua.LTable) []lua.LValue {
	return *(*[]lua.LValue)(unsafe.Add(unsafe.Pointer(t), keysOffset))
}

// StringConstants returns the constants of a function as strings; those that are none
// are empty. The instructions that look up a field by its name read it there.
func StringConstants(p *lua.FunctionProto) []string {
	return *(*[]string)(unsafe.Add(unsafe.Pointer(p), stringConstantsOffset))
}

// SetStringConstants gives a function other constants of that kind.
func SetStringConstants(p *lua.FunctionProto, strs []string) {
	*(*[]string)(unsafe.Add(unsafe.Pointer(p), stringConstantsOffset)) = strs
}

// Registers returns the registers of a state; nil if it has none.
func Registers(L *lua.LState) *[]lua.LValue {
	return *(**[]lua.LValue)(unsafe.Add(unsafe.Pointer(L), registryOffset))
}

// Loop is gopher-lua's main loop: it runs what was called last until that returns.
type Loop func(L *lua.LState, base *Frame)

// LoopPlace returns where L keeps its main loop, which looks at a context or does not.
func LoopPlace(L *lua.LState) *Loop { return (*Loop)(unsafe.Add(unsafe.Pointer(L), loopOffset)) }

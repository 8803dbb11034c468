package interp

import (
	"fmt"
	"reflect"
	"unsafe"

	lua "github.com/yuin/gopher-lua"
)

// These are the offsets of gopher-lua's fields that are not exported.
var (
	arrayOffset           = checkedOffset[lua.LTable, []lua.LValue]("array")
	keysOffset            = checkedOffset[lua.LTable, []lua.LValue]("keys")
	placesOffset          = checkedOffset[lua.LTable, map[lua.LValue]int]("k2i")
	stringsOffset         = checkedOffset[lua.LTable, map[string]lua.LValue]("strdict")
	othersOffset          = checkedOffset[lua.LTable, map[lua.LValue]lua.LValue]("dict")
	stringConstantsOffset = checkedOffset[lua.FunctionProto, []string]("stringConstants")
	registryOffset        = checkedRegistryOffset()
	loopOffset            = checkedLoopOffset()
)

// checkedOffset returns the offset of a field in a struct of gopher-lua. It panics if the
// struct has no such field of type F.
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

// ArrayPart returns the array part of a table, including elements that are nil. The caller
// must not keep the slice: gopher-lua changes and replaces it.
func ArrayPart(t *lua.LTable) []lua.LValue {
	return *(*[]lua.LValue)(unsafe.Add(unsafe.Pointer(t), arrayOffset))
}

// SetArrayPart replaces the array part of a table.
func SetArrayPart(t *lua.LTable, elems []lua.LValue) {
	*(*[]lua.LValue)(unsafe.Add(unsafe.Pointer(t), arrayOffset)) = elems
}

// HashKeys returns the keys of a table's hash part, even those set to nil. gopher-lua may change the slice afterwards.
func HashKeys(t *lua.LTable) []lua.LValue {
	return *(*[]lua.LValue)(unsafe.Add(unsafe.Pointer(t), keysOffset))
}

// Slots returns how many array elements and hash keys a walk over a table meets, including those whose values were set to nil.
func Slots(t *lua.LTable) int { return len(ArrayPart(t)) + len(HashKeys(t)) }

// DeadKeys returns how many keys of the hash part have no value.
func DeadKeys(t *lua.LTable) int {
	alive := len(part[map[string]lua.LValue](t, stringsOffset)) + len(part[map[lua.LValue]lua.LValue](t, othersOffset))
	return len(HashKeys(t)) - alive
}

// PlaceOf returns the index of a key in HashKeys(t), -1 if the key is not there.
func PlaceOf(t *lua.LTable, key lua.LValue) int {
	if i, ok := part[map[lua.LValue]int](t, placesOffset)[key]; ok {
		return i
	}
	return -1
}

func part[T any](t *lua.LTable, offset uintptr) T {
	return *(*T)(unsafe.Add(unsafe.Pointer(t), offset))
}

// StringConstants returns a function's constants as strings ("" for other types).
func StringConstants(p *lua.FunctionProto) []string {
	return *(*[]string)(unsafe.Add(unsafe.Pointer(p), stringConstantsOffset))
}

// SetStringConstants replaces the string constants of a function.
func SetStringConstants(p *lua.FunctionProto, strs []string) {
	*(*[]string)(unsafe.Add(unsafe.Pointer(p), stringConstantsOffset)) = strs
}

// Registers returns the address of the slice of L's registers; nil if L has none.
func Registers(L *lua.LState) *[]lua.LValue {
	return *(**[]lua.LValue)(unsafe.Add(unsafe.Pointer(L), registryOffset))
}

// Loop is a main loop of gopher-lua: it runs the function that was called last until that function returns.
type Loop func(L *lua.LState, base *Frame)

// LoopPlace returns the address of L's main loop, so that another loop can take its place.
func LoopPlace(L *lua.LState) *Loop { return (*Loop)(unsafe.Add(unsafe.Pointer(L), loopOffset)) }

// BeginHash makes the map for string keys of a table that has no such map, with room for few keys.
func BeginHash(t *lua.LTable) {
	if part[map[string]lua.LValue](t, stringsOffset) == nil {
		setPart(t, stringsOffset, map[string]lua.LValue{})
	}
}

// Compact rids the hash part of a table of the keys without a value. The order of the others stays.
func Compact(t *lua.LTable) {
	strings, others := part[map[string]lua.LValue](t, stringsOffset), part[map[lua.LValue]lua.LValue](t, othersOffset)
	alive := len(strings) + len(others)
	keys, places := make([]lua.LValue, 0, 2*max(alive, 8)), make(map[lua.LValue]int, alive)
	newStrings, newOthers := make(map[string]lua.LValue, len(strings)), make(map[lua.LValue]lua.LValue, len(others))
	for _, k := range HashKeys(t) {
		v := t.RawGetH(k)
		if v == lua.LNil {
			continue
		}
		if s, ok := k.(lua.LString); ok {
			newStrings[string(s)] = v
		} else {
			newOthers[k] = v
		}
		places[k] = len(keys)
		keys = append(keys, k)
	}
	setPart(t, keysOffset, keys)
	setPart(t, placesOffset, places)
	setPart(t, stringsOffset, newStrings)
	setPart(t, othersOffset, newOthers)
}

// Maps returns how many maps a table's hash part has: one for strings and one for other keys, each if needed.
func Maps(t *lua.LTable) (n int) {
	if part[map[string]lua.LValue](t, stringsOffset) != nil {
		n++
	}
	if part[map[lua.LValue]lua.LValue](t, othersOffset) != nil {
		n++
	}
	return n
}

func setPart[T any](t *lua.LTable, offset uintptr, v T) {
	*(*T)(unsafe.Add(unsafe.Pointer(t), offset)) = v
}

// numberBlock is the size of the blocks, in bytes, in which gopher-lua allocates numbers.
const numberBlock = 256

// BlockOf identifies the block of memory with the number v, and returns its size. A number keeps its whole block in memory.
func BlockOf(v lua.LValue) (block uintptr, size int64) {
	at := (*[2]uintptr)(unsafe.Pointer(&v))[1]
	return at / numberBlock, numberBlock
}

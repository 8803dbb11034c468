package ext

import (
	"fmt"
	"math"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/clib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// jsonFunctions has the functions of lua-cjson 2.1.0 except cjson.new, which jsonModule adds. Each module that cjson.new makes has
// settings of its own.
var jsonFunctions = map[string]func(*JSONSettings, *Libraries, *lua.LState) int{
	"decode": func(c *JSONSettings, lib *Libraries, L *lua.LState) int { return lib.jsonDecode(L, c) },
	"encode": func(c *JSONSettings, lib *Libraries, L *lua.LState) int { return lib.jsonEncode(L, c) },

	"decode_invalid_numbers":  (*JSONSettings).setDecodeInvalid,
	"decode_max_depth":        (*JSONSettings).setDecodeDepth,
	"encode_invalid_numbers":  (*JSONSettings).setEncodeInvalid,
	"encode_keep_buffer":      (*JSONSettings).setKeepBuffer,
	"encode_max_depth":        (*JSONSettings).setEncodeDepth,
	"encode_number_precision": (*JSONSettings).setPrecision,
	"encode_sparse_array":     (*JSONSettings).setSparse,
}

// These are the values of the settings encode_invalid_numbers and decode_invalid_numbers.
const (
	invalidRefused = iota
	invalidAllowed
	invalidNull
)

// JSONSettings are the settings of one cjson module. Those of the global module end with a script: no script may depend on another.
type JSONSettings struct {
	encodeInvalid, decodeInvalid int
	keepBuffer                   bool
	encodeDepth, decodeDepth     int
	precision                    int
	sparseConvert                bool
	sparseRatio, sparseSafe      int
}

// defaultJSON has the settings with which a module begins.
var defaultJSON = JSONSettings{decodeInvalid: invalidAllowed, keepBuffer: true, encodeDepth: 1000, decodeDepth: 1000,
	precision: 14, sparseRatio: 2, sparseSafe: 10}

// Reset gives the settings their defaults.
func (c *JSONSettings) Reset() { *c = defaultJSON }

// jsonModule makes a cjson module.
func (lib *Libraries) jsonModule(L *lua.LState, c *JSONSettings) *lua.LTable {
	t := L.CreateTable(0, len(jsonFunctions)+4)
	for name, fn := range jsonFunctions {
		t.RawSetString(name, L.NewFunction(func(L *lua.LState) int { return fn(c, lib, L) }))
	}
	t.RawSetString("new", lib.function(L, (*Libraries).jsonNew))
	t.RawSetString("null", lib.Null)
	t.RawSetString("_NAME", lua.LString("cjson"))
	t.RawSetString("_VERSION", lua.LString("2.1.0"))
	return t
}

// jsonModuleCost is the number of bytes charged for a module that cjson.new makes.
const jsonModuleCost = 5 << 10

func (lib *Libraries) jsonNew(L *lua.LState) int {
	lib.host.Charge(jsonModuleCost)
	c := defaultJSON
	L.Push(lib.jsonModule(L, &c))
	return 1
}

// maxArgs raises an error if there are more than n arguments, and sets missing ones to nil.
func (lib *Libraries) maxArgs(L *lua.LState, n int) {
	if L.GetTop() > n {
		lib.host.ArgError(L, n+1, "found too many arguments")
	}
	for L.GetTop() < n {
		L.Push(lua.LNil)
	}
}

func (lib *Libraries) integerOption(L *lua.LState, n, low, high int, setting *int) {
	if L.Get(n) != lua.LNil {
		v := lib.arg.CInt(L, n)
		if v < low || v > high {
			lib.host.ArgError(L, 1, fmt.Sprintf("expected integer between %d and %d", low, high))
		}
		*setting = v
	}
	L.Push(lua.LNumber(*setting))
}

// enumOption sets a setting to argument n, unless that is nil, and pushes the setting. A boolean stands for one of the first two words.
func (lib *Libraries) enumOption(L *lua.LState, n int, words []string, setting *int) {
	switch v := L.Get(n).(type) {
	case *lua.LNilType:
	case lua.LBool:
		*setting = 0
		if v {
			*setting = 1
		}
	default:
		s := lib.arg.String(L, n)
		found := false
		for i, w := range words {
			if w == s {
				*setting, found = i, true
			}
		}
		if !found {
			why := auxlib.Paste(lib.host, "invalid option '", clib.Text(s))
			lib.host.ArgError(L, n, why+"'")
		}
	}
	if *setting < 2 {
		L.Push(lua.LBool(*setting == 1))
	} else {
		L.Push(lua.LString(words[*setting]))
	}
}

var onOff = []string{"off", "on"}

func (c *JSONSettings) setSparse(lib *Libraries, L *lua.LState) int {
	lib.maxArgs(L, 3)
	convert := 0
	if c.sparseConvert {
		convert = 1
	}
	lib.enumOption(L, 1, onOff, &convert)
	c.sparseConvert = convert == 1
	lib.integerOption(L, 2, 0, math.MaxInt32, &c.sparseRatio)
	lib.integerOption(L, 3, 0, math.MaxInt32, &c.sparseSafe)
	return 3
}

func (c *JSONSettings) setEncodeDepth(lib *Libraries, L *lua.LState) int {
	lib.maxArgs(L, 1)
	lib.integerOption(L, 1, 1, math.MaxInt32, &c.encodeDepth)
	return 1
}

func (c *JSONSettings) setDecodeDepth(lib *Libraries, L *lua.LState) int {
	lib.maxArgs(L, 1)
	lib.integerOption(L, 1, 1, math.MaxInt32, &c.decodeDepth)
	return 1
}

func (c *JSONSettings) setPrecision(lib *Libraries, L *lua.LState) int {
	lib.maxArgs(L, 1)
	lib.integerOption(L, 1, 1, 14, &c.precision)
	return 1
}

func (c *JSONSettings) setKeepBuffer(lib *Libraries, L *lua.LState) int {
	lib.maxArgs(L, 1)
	keep := 0
	if c.keepBuffer {
		keep = 1
	}
	lib.enumOption(L, 1, onOff, &keep)
	c.keepBuffer = keep == 1
	return 1
}

func (c *JSONSettings) setEncodeInvalid(lib *Libraries, L *lua.LState) int {
	lib.maxArgs(L, 1)
	lib.enumOption(L, 1, []string{"off", "on", "null"}, &c.encodeInvalid)
	return 1
}

func (c *JSONSettings) setDecodeInvalid(lib *Libraries, L *lua.LState) int {
	lib.maxArgs(L, 1)
	lib.enumOption(L, 1, onOff, &c.decodeInvalid)
	return 1
}

// jsonEncoder writes one value.
type jsonEncoder struct {
	host Host
	null *lua.LUserData
	L    *lua.LState
	c    *JSONSettings
	out  auxlib.Buffer
}

func (lib *Libraries) jsonEncode(L *lua.LState, c *JSONSettings) int {
	if L.GetTop() != 1 {
		lib.host.ArgError(L, 1, "expected 1 argument")
	}
	j := jsonEncoder{host: lib.host, null: lib.Null, L: L, c: c, out: auxlib.Buffer{Memory: lib.host}}
	j.value(L.Get(1), 0, 1)
	L.Push(lua.LString(j.out.Text()))
	return 1
}

func (j *jsonEncoder) fail(v lua.LValue, why string) {
	j.host.Throw(j.L, "Cannot serialise "+auxlib.TypeName(v)+": "+why)
}

// value writes a value. slots is how many slots of C Lua's stack cjson would use here: that stack bounds the depth, too.
func (j *jsonEncoder) value(v lua.LValue, depth, slots int) {
	j.host.Work(1)
	switch v := v.(type) {
	case lua.LString:
		j.str(string(v))
	case lua.LNumber:
		j.number(v)
	case lua.LBool:
		j.out.Str(v.String())
	case *lua.LNilType:
		j.out.Str("null")
	case *lua.LTable:
		j.table(v, depth+1, slots)
	case *lua.LUserData:
		if v != j.null {
			j.fail(v, "type not supported")
		}
		j.out.Str("null")
	default:
		j.fail(v, "type not supported")
	}
}

func (j *jsonEncoder) number(n lua.LNumber) {
	f := float64(n)
	if math.IsInf(f, 0) || math.IsNaN(f) {
		switch j.c.encodeInvalid {
		case invalidRefused:
			j.fail(n, "must not be NaN or Inf")
		case invalidNull:
			j.out.Str("null")
			return
		}
		switch {
		case math.IsNaN(f):
			j.out.Str("nan")
		case f > 0:
			j.out.Str("inf")
		default:
			j.out.Str("-inf")
		}
		return
	}
	j.out.Str(clib.FormatG(f, j.c.precision))
}

func (j *jsonEncoder) table(t *lua.LTable, depth, slots int) {
	if depth > j.c.encodeDepth || slots+3 > auxlib.MaxStack {
		j.host.Throw(j.L, fmt.Sprintf("Cannot serialise, excessive nesting (%d)", depth))
	}
	if n := j.arrayLength(t); n > 0 {
		j.out.Byte('[')
		for i := 1; i <= n; i++ {
			if i > 1 {
				j.out.Byte(',')
			}
			j.value(t.RawGet(lua.LNumber(i)), depth, slots+1)
		}
		j.out.Byte(']')
		return
	}
	j.out.Byte('{')
	first := true
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		passKey(j.host, k)
		if !first {
			j.out.Byte(',')
		}
		first = false
		switch k := k.(type) {
		case lua.LNumber:
			j.out.Byte('"')
			j.number(k)
			j.out.Str(`":`)
		case lua.LString:
			j.str(string(k))
			j.out.Byte(':')
		default:
			j.fail(k, "table key must be a number or string")
		}
		j.value(v, depth, slots+2)
	}
	j.out.Byte('}')
}

// arrayLength returns t's length as a JSON array, or -1 for an object. It raises cjson's error for a sparse array.
func (j *jsonEncoder) arrayLength(t *lua.LTable) int {
	highest, items := 0, 0
	j.host.Work(interp.Slots(t) / 8) // one or two walks over the table pass its empty slots, too
	for k, _ := t.Next(lua.LNil); k != lua.LNil; k, _ = t.Next(k) {
		n, ok := k.(lua.LNumber)
		if !ok || n != lua.LNumber(math.Floor(float64(n))) || n < 1 {
			return -1
		}
		if n > lua.LNumber(highest) {
			highest = clib.ToCInt(n)
		}
		items++
		j.host.Work(1)
	}
	if j.c.sparseRatio > 0 && highest > j.c.sparseSafe && highest > items*j.c.sparseRatio {
		if !j.c.sparseConvert {
			j.fail(t, "excessively sparse array")
		}
		return -1
	}
	return highest
}

const hexDigits = "0123456789abcdef"

func (j *jsonEncoder) str(s string) {
	j.host.Work(len(s) / 64)
	b := &j.out
	b.Room(len(s) + 2)
	b.Byte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '/':
			b.Byte('\\')
			b.Byte(c)
		case c == '\b':
			b.Str(`\b`)
		case c == '\t':
			b.Str(`\t`)
		case c == '\n':
			b.Str(`\n`)
		case c == '\f':
			b.Str(`\f`)
		case c == '\r':
			b.Str(`\r`)
		case c < 32 || c == 127:
			b.Str(`\u00`)
			b.Byte(hexDigits[c>>4])
			b.Byte(hexDigits[c&15])
		default:
			b.Byte(c)
		}
	}
	b.Byte('"')
}

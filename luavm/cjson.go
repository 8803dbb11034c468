package luavm

import (
	"fmt"
	"math"

	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/clib"
	"lockstep/luavm/internal/interp"
)

// cjsonLibrary is lua-cjson 2.1.0.
var cjsonLibrary = library{
	"decode": func(e *Engine, L *lua.LState) int { return e.jsonDecode(L, e.cjson) },
	"encode": func(e *Engine, L *lua.LState) int { return e.jsonEncode(L, e.cjson) },
	"new":    (*Engine).jsonNew,

	"decode_invalid_numbers":  jsonSetting((*jsonConfig).setDecodeInvalid),
	"decode_max_depth":        jsonSetting((*jsonConfig).setDecodeDepth),
	"encode_invalid_numbers":  jsonSetting((*jsonConfig).setEncodeInvalid),
	"encode_keep_buffer":      jsonSetting((*jsonConfig).setKeepBuffer),
	"encode_max_depth":        jsonSetting((*jsonConfig).setEncodeDepth),
	"encode_number_precision": jsonSetting((*jsonConfig).setPrecision),
	"encode_sparse_array":     jsonSetting((*jsonConfig).setSparse),
}

// Values of the invalid_numbers settings.
const (
	invalidRefused = iota
	invalidAllowed
	invalidNull
)

// jsonConfig are the settings of one cjson module. Those of the global one go
// back to their defaults after every script: a script must not depend on which
// scripts its node ran before.
type jsonConfig struct {
	encodeInvalid, decodeInvalid int
	keepBuffer                   bool
	encodeDepth, decodeDepth     int
	precision                    int
	sparseConvert                bool
	sparseRatio, sparseSafe      int
}

func newJSONConfig() *jsonConfig {
	c := &jsonConfig{}
	c.reset()
	return c
}

func (c *jsonConfig) reset() {
	*c = jsonConfig{decodeInvalid: invalidAllowed, keepBuffer: true, encodeDepth: 1000, decodeDepth: 1000,
		precision: 14, sparseRatio: 2, sparseSafe: 10}
}

func (e *Engine) openJSON() {
	e.null = e.L.NewUserData()
	t := e.lib("cjson")
	t.RawSetString("null", e.null)
	t.RawSetString("_NAME", lua.LString("cjson"))
	t.RawSetString("_VERSION", lua.LString("2.1.0"))
}

// jsonSetters are the settings of a module made by cjson.new.
var jsonSetters = map[string]func(*jsonConfig, *Engine, *lua.LState) int{
	"decode":                  func(c *jsonConfig, e *Engine, L *lua.LState) int { return e.jsonDecode(L, c) },
	"encode":                  func(c *jsonConfig, e *Engine, L *lua.LState) int { return e.jsonEncode(L, c) },
	"decode_invalid_numbers":  (*jsonConfig).setDecodeInvalid,
	"decode_max_depth":        (*jsonConfig).setDecodeDepth,
	"encode_invalid_numbers":  (*jsonConfig).setEncodeInvalid,
	"encode_keep_buffer":      (*jsonConfig).setKeepBuffer,
	"encode_max_depth":        (*jsonConfig).setEncodeDepth,
	"encode_number_precision": (*jsonConfig).setPrecision,
	"encode_sparse_array":     (*jsonConfig).setSparse,
}

func (e *Engine) jsonNew(L *lua.LState) int {
	c := newJSONConfig()
	t := L.CreateTable(0, len(jsonSetters)+4)
	for name, fn := range jsonSetters {
		t.RawSetString(name, L.NewFunction(func(L *lua.LState) int { return fn(c, e, L) }))
	}
	t.RawSetString("new", e.function((*Engine).jsonNew))
	t.RawSetString("null", e.null)
	t.RawSetString("_NAME", lua.LString("cjson"))
	t.RawSetString("_VERSION", lua.LString("2.1.0"))
	L.Push(t)
	return 1
}

func jsonSetting(fn func(*jsonConfig, *Engine, *lua.LState) int) func(*Engine, *lua.LState) int {
	return func(e *Engine, L *lua.LState) int { return fn(e.cjson, e, L) }
}

// maxArgs refuses superfluous arguments and makes the missing ones nil.
func (e *Engine) maxArgs(L *lua.LState, n int) {
	if L.GetTop() > n {
		e.argError(L, n+1, "found too many arguments")
	}
	for L.GetTop() < n {
		L.Push(lua.LNil)
	}
}

func (e *Engine) integerOption(L *lua.LState, n, low, high int, setting *int) {
	if L.Get(n) != lua.LNil {
		v := e.checkCInt(L, n)
		if v < low || v > high {
			e.argError(L, 1, fmt.Sprintf("expected integer between %d and %d", low, high))
		}
		*setting = v
	}
	L.Push(lua.LNumber(*setting))
}

// enumOption reads a setting that is a boolean or, with a third value, a word.
func (e *Engine) enumOption(L *lua.LState, n int, words []string, setting *int) {
	switch v := L.Get(n).(type) {
	case *lua.LNilType:
	case lua.LBool:
		*setting = 0
		if v {
			*setting = 1
		}
	default:
		s := e.checkString(L, n)
		found := false
		for i, w := range words {
			if w == s {
				*setting, found = i, true
			}
		}
		if !found {
			e.argError(L, n, e.paste("invalid option '", clib.Text(s))+"'")
		}
	}
	if *setting < 2 {
		L.Push(lua.LBool(*setting == 1))
	} else {
		L.Push(lua.LString(words[*setting]))
	}
}

var onOff = []string{"off", "on"}

func (c *jsonConfig) setSparse(e *Engine, L *lua.LState) int {
	e.maxArgs(L, 3)
	convert := 0
	if c.sparseConvert {
		convert = 1
	}
	e.enumOption(L, 1, onOff, &convert)
	c.sparseConvert = convert == 1
	e.integerOption(L, 2, 0, math.MaxInt32, &c.sparseRatio)
	e.integerOption(L, 3, 0, math.MaxInt32, &c.sparseSafe)
	return 3
}

func (c *jsonConfig) setEncodeDepth(e *Engine, L *lua.LState) int {
	e.maxArgs(L, 1)
	e.integerOption(L, 1, 1, math.MaxInt32, &c.encodeDepth)
	return 1
}

func (c *jsonConfig) setDecodeDepth(e *Engine, L *lua.LState) int {
	e.maxArgs(L, 1)
	e.integerOption(L, 1, 1, math.MaxInt32, &c.decodeDepth)
	return 1
}

func (c *jsonConfig) setPrecision(e *Engine, L *lua.LState) int {
	e.maxArgs(L, 1)
	e.integerOption(L, 1, 1, 14, &c.precision)
	return 1
}

func (c *jsonConfig) setKeepBuffer(e *Engine, L *lua.LState) int {
	e.maxArgs(L, 1)
	keep := 0
	if c.keepBuffer {
		keep = 1
	}
	e.enumOption(L, 1, onOff, &keep)
	c.keepBuffer = keep == 1
	return 1
}

func (c *jsonConfig) setEncodeInvalid(e *Engine, L *lua.LState) int {
	e.maxArgs(L, 1)
	e.enumOption(L, 1, []string{"off", "on", "null"}, &c.encodeInvalid)
	return 1
}

func (c *jsonConfig) setDecodeInvalid(e *Engine, L *lua.LState) int {
	e.maxArgs(L, 1)
	e.enumOption(L, 1, onOff, &c.decodeInvalid)
	return 1
}

// jsonEncoder writes one value.
type jsonEncoder struct {
	e   *Engine
	L   *lua.LState
	c   *jsonConfig
	out buffer
}

func (e *Engine) jsonEncode(L *lua.LState, c *jsonConfig) int {
	if L.GetTop() != 1 {
		e.argError(L, 1, "expected 1 argument")
	}
	j := jsonEncoder{e: e, L: L, c: c, out: buffer{e: e}}
	j.value(L.Get(1), 0, 1)
	L.Push(lua.LString(j.out.text()))
	return 1
}

func (j *jsonEncoder) fail(v lua.LValue, why string) {
	j.e.throw(j.L, "Cannot serialise "+typeName(v)+": "+why)
}

// value writes a value. slots is how much of C Lua's stack cjson would have taken until
// here, which bounds the depth however large the setting is.
func (j *jsonEncoder) value(v lua.LValue, depth, slots int) {
	j.e.work(1)
	switch v := v.(type) {
	case lua.LString:
		j.str(string(v))
	case lua.LNumber:
		j.number(v)
	case lua.LBool:
		j.out.str(v.String())
	case *lua.LNilType:
		j.out.str("null")
	case *lua.LTable:
		j.table(v, depth+1, slots)
	case *lua.LUserData:
		if v != j.e.null {
			j.fail(v, "type not supported")
		}
		j.out.str("null")
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
			j.out.str("null")
			return
		}
		switch {
		case math.IsNaN(f):
			j.out.str("nan")
		case f > 0:
			j.out.str("inf")
		default:
			j.out.str("-inf")
		}
		return
	}
	j.out.str(clib.FormatG(f, j.c.precision))
}

func (j *jsonEncoder) table(t *lua.LTable, depth, slots int) {
	if depth > j.c.encodeDepth || slots+3 > maxStack {
		j.e.throw(j.L, fmt.Sprintf("Cannot serialise, excessive nesting (%d)", depth))
	}
	if n := j.arrayLength(t); n > 0 {
		j.out.byte('[')
		for i := 1; i <= n; i++ {
			if i > 1 {
				j.out.byte(',')
			}
			j.value(t.RawGet(lua.LNumber(i)), depth, slots+1)
		}
		j.out.byte(']')
		return
	}
	j.out.byte('{')
	first := true
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		if !first {
			j.out.byte(',')
		}
		first = false
		switch k := k.(type) {
		case lua.LNumber:
			j.out.byte('"')
			j.number(k)
			j.out.str(`":`)
		case lua.LString:
			j.str(string(k))
			j.out.byte(':')
		default:
			j.fail(k, "table key must be a number or string")
		}
		j.value(v, depth, slots+2)
	}
	j.out.byte('}')
}

// arrayLength is the length of a table that is an array, 0 for an empty one
// and -1 for an object.
func (j *jsonEncoder) arrayLength(t *lua.LTable) int {
	highest, items := 0, 0
	j.e.work(len(interp.ArrayPart(t)) / 16)
	for k, _ := t.Next(lua.LNil); k != lua.LNil; k, _ = t.Next(k) {
		n, ok := k.(lua.LNumber)
		if !ok || n != lua.LNumber(math.Floor(float64(n))) || n < 1 {
			return -1
		}
		if n > lua.LNumber(highest) {
			highest = clib.ToCInt(n)
		}
		items++
		j.e.work(1)
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
	j.e.work(len(s) / 64)
	b := &j.out
	b.room(len(s) + 2)
	b.byte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '/':
			b.byte('\\')
			b.byte(c)
		case c == '\b':
			b.str(`\b`)
		case c == '\t':
			b.str(`\t`)
		case c == '\n':
			b.str(`\n`)
		case c == '\f':
			b.str(`\f`)
		case c == '\r':
			b.str(`\r`)
		case c < 32 || c == 127:
			b.str(`\u00`)
			b.byte(hexDigits[c>>4])
			b.byte(hexDigits[c&15])
		default:
			b.byte(c)
		}
	}
	b.byte('"')
}

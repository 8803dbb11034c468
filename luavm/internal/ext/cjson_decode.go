package ext

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/clib"
)

// These are the tokens of JSON, with their names in cjson's error messages.
const (
	tokenObject    = "T_OBJ_BEGIN"
	tokenObjectEnd = "T_OBJ_END"
	tokenArray     = "T_ARR_BEGIN"
	tokenArrayEnd  = "T_ARR_END"
	tokenString    = "T_STRING"
	tokenNumber    = "T_NUMBER"
	tokenBoolean   = "T_BOOLEAN"
	tokenNull      = "T_NULL"
	tokenColon     = "T_COLON"
	tokenComma     = "T_COMMA"
	tokenEnd       = "T_END"
	tokenError     = "T_ERROR"
)

var jsonPunctuation = map[byte]string{
	'{': tokenObject, '}': tokenObjectEnd, '[': tokenArray, ']': tokenArrayEnd, ':': tokenColon, ',': tokenComma,
}

// jsonDecoder reads one value.
type jsonDecoder struct {
	host  Host
	null  *lua.LUserData
	L     *lua.LState
	c     *JSONSettings
	s     string
	i     int // offset of the next token
	depth int
	slots int // slots of C Lua's stack that cjson would use at this point

	kind  string
	at    int        // offset of the current token
	value lua.LValue // value of a string, number or boolean
	wrong string     // the error, if kind is tokenError
}

func (lib *Libraries) jsonDecode(L *lua.LState, c *JSONSettings) int {
	if L.GetTop() != 1 {
		lib.host.ArgError(L, 1, "expected 1 argument")
	}
	s := lib.arg.String(L, 1)
	if len(s) >= 2 && (s[0] == 0 || s[1] == 0) {
		lib.host.Throw(L, "JSON parser does not support UTF-16 or UTF-32")
	}
	// cjson reads a C string, which ends at the first zero byte.
	s, _, _ = strings.Cut(s, "\x00")
	lib.host.Charge(int64(len(s)))
	d := &jsonDecoder{host: lib.host, null: lib.Null, L: L, c: c, s: s, slots: 1}
	d.next()
	v := d.parse()
	d.next()
	if d.kind != tokenEnd {
		d.expected("the end")
	}
	L.Push(v)
	return 1
}

func (d *jsonDecoder) expected(what string) {
	found := d.kind
	if found == tokenError {
		found = d.wrong
	}
	d.host.Throw(d.L, fmt.Sprintf("Expected %s but found %s at character %d", what, found, d.at+1))
}

func (d *jsonDecoder) parse() lua.LValue {
	switch d.kind {
	case tokenString, tokenNumber, tokenBoolean:
		return d.value
	case tokenObject:
		return d.object()
	case tokenArray:
		return d.array()
	case tokenNull:
		return d.null
	}
	d.expected("value")
	return nil
}

// These are the slots of C Lua's stack for an object (table, key, value) and for an array (table, value).
const (
	objectSlots = 3
	arraySlots  = 2
)

// descend begins an array or object, which needs slots of C Lua's stack. That stack bounds the depth, too.
func (d *jsonDecoder) descend(slots int) {
	d.depth++
	d.host.Charge(100)
	if d.depth > d.c.decodeDepth || d.slots+slots > auxlib.MaxStack {
		d.host.Throw(d.L, fmt.Sprintf("Found too many nested data structures (%d) at character %d", d.depth, d.i))
	}
	d.slots += slots - 1
}

func (d *jsonDecoder) ascend(slots int) {
	d.depth--
	d.slots -= slots - 1
}

func (d *jsonDecoder) object() lua.LValue {
	d.descend(objectSlots)
	t := d.L.CreateTable(0, 1)
	d.next()
	if d.kind == tokenObjectEnd {
		d.ascend(objectSlots)
		return t
	}
	for {
		if d.kind != tokenString {
			d.expected("object key string")
		}
		key := d.value
		d.next()
		if d.kind != tokenColon {
			d.expected("colon")
		}
		d.next()
		d.host.RawSet(d.L, t, key, d.parse())
		d.next()
		if d.kind == tokenObjectEnd {
			d.ascend(objectSlots)
			return t
		}
		if d.kind != tokenComma {
			d.expected("comma or object end")
		}
		d.next()
	}
}

func (d *jsonDecoder) array() lua.LValue {
	d.descend(arraySlots)
	t := d.L.CreateTable(0, 0)
	d.next()
	if d.kind == tokenArrayEnd {
		d.ascend(arraySlots)
		return t
	}
	for i := 1; ; i++ {
		d.host.RawSet(d.L, t, lua.LNumber(i), d.parse())
		d.next()
		if d.kind == tokenArrayEnd {
			d.ascend(arraySlots)
			return t
		}
		if d.kind != tokenComma {
			d.expected("comma or array end")
		}
		d.next()
	}
}

func (d *jsonDecoder) fail(why string, at int) {
	d.kind, d.wrong, d.at = tokenError, why, at
}

// next reads the next token.
func (d *jsonDecoder) next() {
	d.host.Work(1)
	d.host.Charge(32)
	d.at = d.i
	for d.i < len(d.s) && strings.IndexByte(" \t\n\r", d.s[d.i]) >= 0 {
		d.i++
	}
	d.host.Work((d.i - d.at) / 16)
	d.at = d.i
	if d.i >= len(d.s) {
		d.kind = tokenEnd
		return
	}
	c := d.s[d.i]
	if kind, ok := jsonPunctuation[c]; ok {
		d.kind = kind
		d.i++
		return
	}
	switch {
	case c == '"':
		d.str()
	case c == '-' || clib.IsDigit(c):
		if d.c.decodeInvalid == invalidRefused && invalidNumber(d.s[d.i:]) {
			d.fail("invalid number", d.i)
			return
		}
		d.number()
	case d.word("true", tokenBoolean, lua.LTrue), d.word("false", tokenBoolean, lua.LFalse),
		d.word("null", tokenNull, nil):
	case d.c.decodeInvalid != invalidRefused && invalidNumber(d.s[d.i:]):
		d.number()
	default:
		d.fail("invalid token", d.i)
	}
}

func (d *jsonDecoder) word(w, kind string, v lua.LValue) bool {
	if !strings.HasPrefix(d.s[d.i:], w) {
		return false
	}
	d.kind, d.value = kind, v
	d.i += len(w)
	return true
}

// invalidNumber reports whether s begins like a number that strtod reads but JSON forbids. s must not be empty.
func invalidNumber(s string) bool {
	if s[0] == '+' {
		return true
	}
	s = strings.TrimPrefix(s, "-")
	if s == "" {
		return false
	}
	switch c := s[0]; {
	case c == '0':
		return len(s) > 1 && (s[1]|0x20 == 'x' || clib.IsDigit(s[1]))
	case clib.IsDigit(c):
		return false
	}
	low := strings.ToLower(s[:min(len(s), 3)])
	return low == "inf" || low == "nan"
}

// number reads the longest prefix that strtod would read as a number.
func (d *jsonDecoder) number() {
	n := clib.NumberPrefix(d.s[d.i:])
	d.host.Work(n / 16)
	v, ok := clib.ParseNumber(d.s[d.i : d.i+n])
	if !ok {
		d.fail("invalid number", d.i)
		return
	}
	d.kind, d.value = tokenNumber, v
	d.i += n
}

var jsonEscapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 't': '\t', 'n': '\n', 'f': '\f', 'r': '\r'}

// readInStep bytes of a string are read in the time of an instruction, readAtOnce bytes between two calls of Work.
const (
	readInStep = 64
	readAtOnce = 16 << 10
)

func (d *jsonDecoder) str() {
	b := auxlib.Buffer{Memory: d.host}
	i := d.i + 1
	counted := i
	for {
		if i-counted >= readAtOnce {
			d.host.Work((i - counted) / readInStep)
			counted = i
		}
		if i >= len(d.s) {
			d.fail("unexpected end of string", i)
			return
		}
		c := d.s[i]
		if c == '"' {
			break
		}
		if c != '\\' {
			b.Byte(c)
			i++
			continue
		}
		if i+1 < len(d.s) && d.s[i+1] == 'u' {
			text, n := unescape(d.s[i:])
			if n == 0 {
				d.fail("invalid unicode escape code", i)
				return
			}
			b.Str(text)
			i += n
			continue
		}
		var plain byte
		ok := false
		if i+1 < len(d.s) {
			plain, ok = jsonEscapes[d.s[i+1]]
		}
		if !ok {
			d.fail("invalid escape code", i)
			return
		}
		b.Byte(plain)
		i += 2
	}
	d.i = i + 1
	d.host.Work((i - counted) / readInStep)
	d.kind, d.value = tokenString, lua.LString(b.Text())
}

// unescape reads \uXXXX, or two of them that are a surrogate pair; n is the number of
// bytes read, 0 if they are invalid.
func unescape(s string) (text string, n int) {
	first, ok := hex4(s)
	switch {
	case !ok || first&0xfc00 == 0xdc00:
		return "", 0
	case first&0xf800 != 0xd800:
		return encodeRune(first), 6
	}
	second, ok := hex4(s[6:])
	if !ok || second&0xfc00 != 0xdc00 {
		return "", 0
	}
	return encodeRune((first&0x3ff<<10 | second&0x3ff) + 0x10000), 12
}

func hex4(s string) (int, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	n := 0
	for i := 2; i < 6; i++ {
		d := clib.DigitValue(s[i])
		if d > 15 {
			return 0, false
		}
		n = n<<4 | d
	}
	return n, true
}

func encodeRune(r int) string { return string(rune(r)) }

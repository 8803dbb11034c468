package compile

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/clib"
)

// The scanner and the parser accept exactly Lua 5.1, with C Lua's error texts, and bound the nesting of a script.

// tokenKind is a character, or one of the constants below.
type tokenKind int

const (
	tkEOS tokenKind = 256 + iota
	tkAnd
	tkBreak
	tkDo
	tkElse
	tkElseif
	tkEnd
	tkFalse
	tkFor
	tkFunction
	tkIf
	tkIn
	tkLocal
	tkNil
	tkNot
	tkOr
	tkRepeat
	tkReturn
	tkThen
	tkTrue
	tkUntil
	tkWhile
	tkConcat
	tkDots
	tkEq
	tkGe
	tkLe
	tkNe
	tkNumber
	tkName
	tkString
)

// tokenText has the names of tokens in C Lua's messages.
var tokenText = map[tokenKind]string{
	tkEOS: "<eof>", tkAnd: "and", tkBreak: "break", tkDo: "do", tkElse: "else", tkElseif: "elseif", tkEnd: "end",
	tkFalse: "false", tkFor: "for", tkFunction: "function", tkIf: "if", tkIn: "in", tkLocal: "local", tkNil: "nil",
	tkNot: "not", tkOr: "or", tkRepeat: "repeat", tkReturn: "return", tkThen: "then", tkTrue: "true",
	tkUntil: "until", tkWhile: "while", tkConcat: "..", tkDots: "...", tkEq: "==", tkGe: ">=", tkLe: "<=",
	tkNe: "~=", tkNumber: "<number>", tkName: "<name>", tkString: "<string>",
}

var reservedWords = func() map[string]tokenKind {
	words := map[string]tokenKind{}
	for k := tkAnd; k <= tkWhile; k++ {
		words[tokenText[k]] = k
	}
	return words
}()

func (k tokenKind) String() string {
	if s, ok := tokenText[k]; ok {
		return s
	}
	if k < 32 || k == 127 {
		return fmt.Sprintf("char(%d)", int(k))
	}
	return string([]byte{byte(k)})
}

// token is one token. text is what error messages quote. value is a name, or the content of a string.
type token struct {
	kind   tokenKind
	text   string
	value  string
	number lua.LNumber
}

// syntaxError is the error that Chunk returns for a source that it does not compile.
type syntaxError string

func (e syntaxError) Error() string { return string(e) }

// lexer splits a source into tokens. On an error it panics with a syntaxError,
// which Chunk catches.
type lexer struct {
	m    *meter
	src  string
	pos  int
	name string // the name of the source in messages
	line int
	buf  []byte // text of the token being read
}

const eof = -1

func (x *lexer) cur() int {
	if x.pos < len(x.src) {
		return int(x.src[x.pos])
	}
	return eof
}

func (x *lexer) save() {
	x.put(x.src[x.pos])
	x.pos++
}

func (x *lexer) put(c byte) { x.buf = push(x.m, x.buf, c) }

// accept appends the next character to buf if set contains it. As for C's strchr, every set contains the zero byte.
func (x *lexer) accept(set string) bool {
	c := x.cur()
	if c == eof || c != 0 && strings.IndexByte(set, byte(c)) < 0 {
		return false
	}
	x.save()
	return true
}

// text returns the text of the token.
func (x *lexer) text() string {
	x.m.took(len(x.buf) + len(x.buf)/8 + 8) // the bytes of the text, with what the allocator adds
	return string(x.buf)
}

// fail raises an error. The argument near is the text that the message quotes, if any.
func (x *lexer) fail(msg, near string) {
	msg = fmt.Sprintf("%s:%d: %s", x.name, x.line, msg)
	if near != "" {
		near, _, _ = strings.Cut(near, "\x00")
		msg += " near '" + near + "'"
	}
	panic(syntaxError(msg))
}

func (x *lexer) failText(msg string) { x.fail(msg, string(x.buf)) }

func (x *lexer) atNewline() bool { c := x.cur(); return c == '\n' || c == '\r' }

// newline skips \n, \r, \r\n or \n\r.
func (x *lexer) newline() {
	old := x.cur()
	x.pos++
	if x.atNewline() && x.cur() != old {
		x.pos++
	}
	x.line++
}

// next reads the next token.
func (x *lexer) next() token {
	x.buf = x.buf[:0]
	for {
		c := x.cur()
		switch {
		case c == eof:
			return token{kind: tkEOS}
		case c == '\n' || c == '\r':
			x.newline()
		case clib.IsSpace(byte(c)):
			x.pos++
		case c == '-':
			x.pos++
			if x.cur() != '-' {
				return token{kind: '-'}
			}
			x.pos++
			x.comment()
		case c == '"' || c == '\'':
			return x.str()
		case clib.IsDigit(byte(c)):
			return x.number()
		case clib.IsAlpha(byte(c)) || c == '_':
			return x.word()
		default:
			return x.symbol(c)
		}
	}
}

func (x *lexer) comment() {
	if x.cur() == '[' {
		level := x.bracket()
		x.buf = x.buf[:0]
		if level >= 0 {
			x.long(level, "unfinished long comment", false)
			x.buf = x.buf[:0]
			return
		}
	}
	for !x.atNewline() && x.cur() != eof {
		x.pos++
	}
}

func (x *lexer) word() token {
	for c := x.cur(); c != eof && (clib.IsAlpha(byte(c)) || clib.IsDigit(byte(c)) || c == '_'); c = x.cur() {
		x.save()
	}
	if k, ok := reservedWords[string(x.buf)]; ok {
		return token{kind: k}
	}
	s := x.text()
	return token{kind: tkName, text: s, value: s}
}

func (x *lexer) symbol(c int) token {
	two := func(second byte, kind tokenKind) token {
		x.pos++
		if x.cur() == int(second) {
			x.pos++
			return token{kind: kind}
		}
		return token{kind: tokenKind(c)}
	}
	switch c {
	case '[':
		level := x.bracket()
		if level >= 0 {
			start := x.long(level, "unfinished long string", true)
			s := x.text()
			return token{kind: tkString, text: s, value: s[start : len(s)-level-2]}
		}
		if level == -1 {
			return token{kind: '['}
		}
		x.failText("invalid long string delimiter")
	case '=':
		return two('=', tkEq)
	case '<':
		return two('=', tkLe)
	case '>':
		return two('=', tkGe)
	case '~':
		return two('=', tkNe)
	case '.':
		x.save()
		if x.accept(".") {
			if x.accept(".") {
				return token{kind: tkDots}
			}
			return token{kind: tkConcat}
		}
		if n := x.cur(); n != eof && clib.IsDigit(byte(n)) {
			return x.number()
		}
		return token{kind: '.'}
	}
	x.pos++
	return token{kind: tokenKind(c)}
}

// number reads all characters that C Lua's read_numeral accepts, and then checks the numeral.
func (x *lexer) number() token {
	for c := x.cur(); c != eof && (clib.IsDigit(byte(c)) || c == '.'); c = x.cur() {
		x.save()
	}
	if x.accept("Ee") {
		x.accept("+-")
	}
	for c := x.cur(); c != eof && (clib.IsAlpha(byte(c)) || clib.IsDigit(byte(c)) || c == '_'); c = x.cur() {
		x.save()
	}
	s := x.text()
	digits, _, _ := strings.Cut(s, "\x00")
	n, ok := clib.ParseNumber(digits)
	if !ok {
		x.failText("malformed number")
	}
	return token{kind: tkNumber, text: s, number: n}
}

// bracket reads a bracket and the equal signs after it. If the same bracket comes next, it returns their number; otherwise -1 minus their
// number.
func (x *lexer) bracket() int {
	first := x.cur()
	x.save()
	count := 0
	for x.cur() == '=' {
		x.save()
		count++
	}
	if x.cur() == first {
		return count
	}
	return -count - 1
}

// long reads a long string or comment from its second bracket on. Its content begins at start in buf, if kept.
func (x *lexer) long(level int, unfinished string, keep bool) (start int) {
	x.save()
	if x.atNewline() {
		x.newline()
	}
	start = len(x.buf)
	for {
		switch c := x.cur(); c {
		case eof:
			x.fail(unfinished, tkEOS.String())
		case ']':
			if x.bracket() == level {
				x.save()
				return start
			}
		case '\n', '\r':
			x.put('\n')
			x.newline()
			if !keep {
				x.buf = x.buf[:start]
			}
		default:
			if keep {
				x.save()
			} else {
				x.pos++
			}
		}
	}
}

func (x *lexer) str() token {
	quote := x.cur()
	x.save()
	for x.cur() != quote {
		switch x.cur() {
		case eof:
			x.fail("unfinished string", tkEOS.String())
		case '\n', '\r':
			x.failText("unfinished string")
		case '\\':
			x.pos++
			x.escape()
		default:
			x.save()
		}
	}
	x.save()
	s := x.text()
	return token{kind: tkString, text: s, value: s[1 : len(s)-1]}
}

var escapes = map[int]byte{'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}

func (x *lexer) escape() {
	c := x.cur()
	if b, ok := escapes[c]; ok {
		x.put(b)
		x.pos++
		return
	}
	switch {
	case c == eof:
	case c == '\n' || c == '\r':
		x.put('\n')
		x.newline()
	case !clib.IsDigit(byte(c)):
		x.save()
	default:
		n := 0
		for i := 0; i < 3 && x.cur() != eof && clib.IsDigit(byte(x.cur())); i++ {
			n = n*10 + x.cur() - '0'
			x.pos++
		}
		if n > 255 {
			x.failText("escape sequence too large")
		}
		x.put(byte(n))
	}
}

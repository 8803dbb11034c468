package luavm

import (
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/clib"
)

// formatSpec is one conversion of a format: %[flags][width][.precision]verb.
type formatSpec struct {
	minus, plus, space, alt, zero bool
	width, prec                   int // prec is -1 if the format has none
}

func (e *Engine) stringFormat(L *lua.LState) int {
	format := e.arg.String(L, 1)
	out := e.buffer()
	arg := 1
	for i := 0; i < len(format); i++ {
		plain := strings.IndexByte(format[i:], '%')
		if plain < 0 {
			out.Str(format[i:])
			break
		}
		out.Str(format[i : i+plain])
		i += plain + 1
		if i < len(format) && format[i] == '%' {
			e.work(1)
			out.Byte('%')
			continue
		}
		arg++
		if arg > L.GetTop() {
			e.argError(L, arg, "no value")
		}
		spec, next := e.parseSpec(L, format, i)
		i = next
		verb := byte(0)
		if i < len(format) {
			verb = format[i]
		}
		e.work(4)
		out.Str(e.formatOne(L, spec, verb, arg))
	}
	L.Push(lua.LString(out.Text()))
	return 1
}

func (e *Engine) parseSpec(L *lua.LState, format string, i int) (spec formatSpec, next int) {
	start := i
	for ; i < len(format) && strings.IndexByte("-+ #0", format[i]) >= 0; i++ {
		switch format[i] {
		case '-':
			spec.minus = true
		case '+':
			spec.plus = true
		case ' ':
			spec.space = true
		case '#':
			spec.alt = true
		case '0':
			spec.zero = true
		}
	}
	if i-start >= 6 {
		e.throw(L, "invalid format (repeated flags)")
	}
	number := func() int {
		n := 0
		for digits := 0; digits < 2 && i < len(format) && clib.IsDigit(format[i]); digits++ {
			n = n*10 + int(format[i]-'0')
			i++
		}
		return n
	}
	spec.width, spec.prec = number(), -1
	if i < len(format) && format[i] == '.' {
		i++
		spec.prec = number()
	}
	if i < len(format) && clib.IsDigit(format[i]) {
		e.throw(L, "invalid format (width or precision too long)")
	}
	return spec, i
}

func (e *Engine) formatOne(L *lua.LState, spec formatSpec, verb byte, arg int) string {
	switch verb {
	case 'c':
		s, _, _ := strings.Cut(spec.pad(string([]byte{byte(e.arg.Int(L, arg))})), "\x00")
		return s
	case 'd', 'i':
		return spec.integer(clib.ToInt64(e.arg.Number(L, arg)))
	case 'o', 'u', 'x', 'X':
		return spec.unsigned(clib.ToUint64(e.arg.Number(L, arg)), verb)
	case 'e', 'E', 'f', 'g', 'G':
		return spec.float(float64(e.arg.Number(L, arg)), verb)
	case 'q':
		return e.quoted(e.arg.String(L, arg))
	case 's':
		s := e.arg.String(L, arg)
		if spec.prec < 0 && len(s) >= 100 {
			// C Lua's lstrlib.c does not cut a long string, and the width, which is at most 99, has no effect on it.
			return s
		}
		e.pass(len(s))
		if end := strings.IndexByte(s, 0); end >= 0 {
			s = s[:end]
		}
		if spec.prec >= 0 && len(s) > spec.prec {
			s = s[:spec.prec]
		}
		return spec.pad(s)
	}
	option := ""
	if verb != 0 {
		option = string([]byte{verb})
	}
	e.throw(L, "invalid option '%"+option+"' to 'format'")
	return ""
}

func (f formatSpec) pad(s string) string {
	if n := f.width - len(s); n > 0 {
		if f.minus {
			return s + strings.Repeat(" ", n)
		}
		return strings.Repeat(" ", n) + s
	}
	return s
}

// zeroPad pads prefix and digits to the width, with zeros between the two only for the flag 0 without the flag -.
func (f formatSpec) zeroPad(prefix, digits string) string {
	if n := f.width - len(prefix) - len(digits); n > 0 && f.zero && !f.minus {
		return prefix + strings.Repeat("0", n) + digits
	}
	return f.pad(prefix + digits)
}

func (f formatSpec) sign(negative bool) string {
	switch {
	case negative:
		return "-"
	case f.plus:
		return "+"
	case f.space:
		return " "
	}
	return ""
}

func (f formatSpec) digits(s string) string {
	if f.prec == 0 && s == "0" {
		return ""
	}
	if n := f.prec - len(s); n > 0 {
		return strings.Repeat("0", n) + s
	}
	return s
}

func (f formatSpec) integer(n int64) string {
	u := uint64(n)
	if n < 0 {
		u = -u
	}
	f.zero = f.zero && f.prec < 0
	return f.zeroPad(f.sign(n < 0), f.digits(strconv.FormatUint(u, 10)))
}

func (f formatSpec) unsigned(u uint64, verb byte) string {
	base, prefix := 10, ""
	switch verb {
	case 'o':
		base = 8
	case 'x', 'X':
		base = 16
		if f.alt && u != 0 {
			prefix = "0x"
		}
	}
	s := f.digits(strconv.FormatUint(u, base))
	if verb == 'o' && f.alt && !strings.HasPrefix(s, "0") {
		s = "0" + s
	}
	f.zero = f.zero && f.prec < 0
	s = f.zeroPad(prefix, s)
	if verb == 'X' {
		s = strings.ToUpper(s)
	}
	return s
}

func (f formatSpec) float(x float64, verb byte) string {
	negative := math.Signbit(x)
	x = math.Abs(x)
	prec := f.prec
	if prec < 0 {
		prec = 6
	}
	var s string
	switch {
	case math.IsNaN(x):
		s, f.zero = "nan", false
	case math.IsInf(x, 0):
		s, f.zero = "inf", false
	case verb|0x20 == 'g':
		s = formatFloatG(x, max(prec, 1), f.alt)
	default:
		s = strconv.FormatFloat(x, verb|0x20, prec, 64)
		if f.alt && prec == 0 {
			if i := strings.IndexByte(s, 'e'); i >= 0 {
				s = s[:i] + "." + s[i:]
			} else {
				s += "."
			}
		}
	}
	s = f.zeroPad(f.sign(negative), s)
	if verb < 'a' {
		s = strings.ToUpper(s)
	}
	return s
}

// formatFloatG formats with %g; alt (the flag #) keeps trailing zeros.
func formatFloatG(x float64, prec int, alt bool) string {
	if !alt {
		return clib.FormatG(x, prec)
	}
	e := strconv.FormatFloat(x, 'e', prec-1, 64)
	i := strings.IndexByte(e, 'e')
	exp, err := strconv.Atoi(e[i+1:])
	if err != nil || exp < -4 || exp >= prec {
		if prec == 1 {
			return e[:i] + "." + e[i:]
		}
		return e
	}
	s := strconv.FormatFloat(x, 'f', prec-1-exp, 64)
	if !strings.Contains(s, ".") {
		s += "."
	}
	return s
}

// quotedInStep is how many bytes are quoted in the time of an instruction.
const quotedInStep = 8

// quoted formats with %q: it returns a literal that the Lua parser reads as s.
func (e *Engine) quoted(s string) string {
	b := e.buffer()
	b.Byte('"')
	for i := range len(s) {
		if i%quotedInStep == 0 {
			e.work(1)
		}
		switch c := s[i]; c {
		case '"', '\\', '\n':
			b.Byte('\\')
			b.Byte(c)
		case '\r':
			b.Str(`\r`)
		case 0:
			b.Str(`\000`)
		default:
			b.Byte(c)
		}
	}
	b.Byte('"')
	return b.Text()
}

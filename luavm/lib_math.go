package luavm

import (
	"math"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/clib"
)

var mathLibrary = library{
	"abs":   (*Engine).mathAbs,
	"acos":  oneNumber(math.Acos, clib.NaN),
	"asin":  oneNumber(math.Asin, clib.NaN),
	"atan":  oneNumber(math.Atan, clib.NaN),
	"atan2": twoNumbers(clib.Atan2),
	"ceil":  oneNumber(math.Ceil, clib.NaN),
	"cos":   oneNumber(math.Cos, clib.Indefinite),
	"cosh":  oneNumber(clib.Cosh, clib.NaN),
	"deg":   oneNumber(func(x float64) float64 { return x / (math.Pi / 180) }, clib.NaN),
	"exp":   oneNumber(clib.Exp, clib.NaN),
	"floor": oneNumber(math.Floor, clib.NaN),
	"fmod":  twoNumbers(clib.Fmod),
	"frexp": (*Engine).mathFrexp,
	"ldexp": (*Engine).mathLdexp,
	"log":   oneNumber(clib.Log, clib.Indefinite),
	"log10": oneNumber(clib.Log10, clib.NaN),
	"max":   (*Engine).mathMax,
	"min":   (*Engine).mathMin,
	"mod":   twoNumbers(clib.Fmod),
	"modf":  (*Engine).mathModf,
	"pow":   twoNumbers(clib.Pow),
	"rad":   oneNumber(func(x float64) float64 { return x * (math.Pi / 180) }, clib.NaN),
	"sin":   oneNumber(math.Sin, clib.Indefinite),
	"sinh":  oneNumber(clib.Sinh, clib.NaN),
	"sqrt":  oneNumber(math.Sqrt, clib.Indefinite),
	"tan":   oneNumber(math.Tan, clib.Indefinite),
	"tanh":  oneNumber(math.Tanh, clib.NaN),

	"random":     (*Engine).mathRandom,
	"randomseed": (*Engine).mathRandomSeed,
}

func (e *Engine) openMath() {
	e.lib("math").RawSetString("pi", lua.LNumber(math.Pi))
	e.lib("math").RawSetString("huge", lua.LNumber(math.Inf(1)))
}

// oneNumber makes a library function of fn. As in C, a NaN argument comes back quiet, and invalid replaces other NaN results.
func oneNumber(fn func(float64) float64, invalid float64) func(*Engine, *lua.LState) int {
	return func(e *Engine, L *lua.LState) int {
		x := float64(e.arg.Number(L, 1))
		r := fn(x)
		switch {
		case math.IsNaN(x):
			r = clib.Quiet(x)
		case math.IsNaN(r):
			r = invalid
		}
		L.Push(lua.LNumber(r))
		return 1
	}
}

func twoNumbers(fn func(a, b float64) float64) func(*Engine, *lua.LState) int {
	return func(e *Engine, L *lua.LState) int {
		b := float64(e.arg.Number(L, 2)) // the C code of Redis reads argument 2 before argument 1, too
		L.Push(lua.LNumber(fn(float64(e.arg.Number(L, 1)), b)))
		return 1
	}
}

// mathAbs removes the sign, even that of a NaN.
func (e *Engine) mathAbs(L *lua.LState) int {
	L.Push(lua.LNumber(math.Abs(float64(e.arg.Number(L, 1)))))
	return 1
}

func (e *Engine) mathFrexp(L *lua.LState) int {
	fraction, exponent := math.Frexp(clib.Quiet(float64(e.arg.Number(L, 1))))
	L.Push(lua.LNumber(fraction))
	L.Push(lua.LNumber(exponent))
	return 2
}

func (e *Engine) mathLdexp(L *lua.LState) int {
	exponent := e.arg.CInt(L, 2)
	x := clib.Quiet(float64(e.arg.Number(L, 1)))
	L.Push(lua.LNumber(math.Ldexp(x, exponent)))
	return 1
}

func (e *Engine) mathModf(L *lua.LState) int {
	x := float64(e.arg.Number(L, 1))
	whole, fraction := math.Trunc(x), 0.0
	if !math.IsInf(x, 0) {
		fraction = x - whole
	}
	L.Push(lua.LNumber(whole))
	L.Push(lua.LNumber(math.Copysign(fraction, x)))
	return 2
}

func (e *Engine) mathMax(L *lua.LState) int {
	m := e.arg.Number(L, 1)
	for i := 2; i <= L.GetTop(); i++ {
		if n := e.arg.Number(L, i); n > m {
			m = n
		}
	}
	L.Push(m)
	return 1
}

func (e *Engine) mathMin(L *lua.LState) int {
	m := e.arg.Number(L, 1)
	for i := 2; i <= L.GetTop(); i++ {
		if n := e.arg.Number(L, i); n < m {
			m = n
		}
	}
	L.Push(m)
	return 1
}

// drand48 is the random generator that Redis gives to scripts: POSIX's 48-bit linear
// congruential generator. Its state lives as long as the engine.
type drand48 struct{ x uint64 }

// seed sets the state from n, as srand48 does.
func (d *drand48) seed(n int32) { d.x = uint64(uint32(n))<<16 | 0x330e }

func (d *drand48) next() int64 {
	d.x = (d.x*0x5deece66d + 0xb) & (1<<48 - 1)
	return int64(d.x >> 17)
}

func (e *Engine) mathRandom(L *lua.LState) int {
	r := float64(e.random.next()%math.MaxInt32) / math.MaxInt32
	switch L.GetTop() {
	case 0:
	case 1:
		upper := int64(e.arg.CInt(L, 1))
		if upper < 1 {
			e.argError(L, 1, "interval is empty")
		}
		r = math.Floor(r*float64(upper)) + 1
	case 2:
		lower, upper := int64(e.arg.CInt(L, 1)), int64(e.arg.CInt(L, 2))
		if lower > upper {
			e.argError(L, 2, "interval is empty")
		}
		r = math.Floor(r*float64(upper-lower+1)) + float64(lower)
	default:
		e.throw(L, "wrong number of arguments")
	}
	L.Push(lua.LNumber(r))
	return 1
}

func (e *Engine) mathRandomSeed(L *lua.LState) int {
	e.random.seed(int32(e.arg.Int(L, 1)))
	return 0
}

package clib

import "math"

// The functions of math as C computes them on amd64, where Go's answer is another: NaN
// keeps its sign, and what has no result is one of two NaN, of which tostring shows which.

// Indefinite is the NaN of the processor, -nan; NaN is that of the functions that do not
// leave the result to the processor.
var (
	Indefinite = math.Float64frombits(0xfff8 << 48)
	NaN        = math.Float64frombits(0x7ff8 << 48)
)

// Quiet is x, as the processor passes on a NaN.
func Quiet(x float64) float64 {
	if math.IsNaN(x) {
		return math.Float64frombits(math.Float64bits(x) | 1<<51)
	}
	return x
}

// nanOf is the NaN that comes from two operands: that of the first which is one.
func nanOf(a, b float64) float64 {
	switch {
	case math.IsNaN(a):
		return Quiet(a)
	case math.IsNaN(b):
		return Quiet(b)
	}
	return Indefinite
}

// Modulo is the remainder as Lua 5.1 defines it, rounding errors included.
func Modulo(a, b float64) float64 {
	r := a - float64(math.Floor(a/b)*b)
	if math.IsNaN(r) {
		return nanOf(a, b)
	}
	return r
}

func Fmod(x, y float64) float64 {
	r := math.Mod(x, y)
	if math.IsNaN(r) {
		return nanOf(x, y)
	}
	return r
}

// Atan2 has the sign of y also where y/x is too small for a number.
func Atan2(y, x float64) float64 {
	r := math.Atan2(y, x)
	if math.IsNaN(r) {
		return nanOf(x, y)
	}
	return math.Copysign(r, y)
}

// Log10 is exact for the powers of ten, of which scripts count the digits: fdlibm's
// e_log10.c.
func Log10(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 1) {
		return math.Log10(x)
	}
	const perLn, twoHigh, twoLow = 4.34294481903251816668e-01, 3.01029995663611771306e-01, 3.69423907715893078616e-13
	fraction, exponent := math.Frexp(x)
	if exponent >= 1 {
		fraction, exponent = 2*fraction, exponent-1
	}
	return float64(float64(exponent)*twoLow+float64(perLn*Log(fraction))) + float64(float64(exponent)*twoHigh)
}

// Cosh and Sinh do not overflow before their results do.
func Cosh(x float64) float64 {
	if x = math.Abs(x); x > 700 {
		half := Exp(x / 2)
		return half / 2 * half
	}
	return math.Cosh(x)
}

func Sinh(x float64) float64 {
	if math.Abs(x) > 700 {
		return math.Copysign(Cosh(x), x)
	}
	return math.Sinh(x)
}

func Pow(x, y float64) float64 {
	switch {
	case y == 0 || x == 1:
		return 1
	case y == 2:
		return x * x
	case math.IsNaN(y) || math.IsInf(y, 0) || math.IsInf(x, 0) || x == 0:
		if r := math.Pow(x, y); !math.IsNaN(r) {
			return r
		}
		return nanOf(x, y)
	case math.IsNaN(x) && isOdd(y): // C takes x for a number to this power
		return math.Abs(Quiet(x))
	case math.IsNaN(x):
		return Quiet(x)
	case x < 0 && isOdd(y):
		return -Pow(-x, y)
	case x < 0 && y != math.Trunc(y):
		return Indefinite
	}
	return power(math.Abs(x), y)
}

func isOdd(y float64) bool { return math.Abs(math.Mod(y, 2)) == 1 }

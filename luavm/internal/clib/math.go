package clib

import "math"

// This file has the functions of math that differ between Go and C on amd64: in C, NaN has a sign, which tostring prints.

// Indefinite is the NaN that amd64's instructions make, printed as -nan. NaN is the one that C functions choose, printed as nan.
var (
	Indefinite = math.Float64frombits(0xfff8 << 48)
	NaN        = math.Float64frombits(0x7ff8 << 48)
)

// Quiet returns x. For a signaling NaN it returns the quiet NaN that an instruction of the processor would make of x.
func Quiet(x float64) float64 {
	if math.IsNaN(x) {
		return math.Float64frombits(math.Float64bits(x) | 1<<51)
	}
	return x
}

// nanOf returns the NaN that results from two operands: the first operand that is a NaN, or Indefinite if neither is.
func nanOf(a, b float64) float64 {
	switch {
	case math.IsNaN(a):
		return Quiet(a)
	case math.IsNaN(b):
		return Quiet(b)
	}
	return Indefinite
}

// Modulo returns a % b of Lua 5.1, with the rounding errors of C Lua's formula.
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

// Atan2 returns a result with the sign of y even where y/x underflows to zero.
func Atan2(y, x float64) float64 {
	r := math.Atan2(y, x)
	if math.IsNaN(r) {
		return nanOf(x, y)
	}
	return math.Copysign(r, y)
}

// Log10 computes as fdlibm's e_log10.c does. It is exact for 10^0 to 10^22, which matters to scripts that count digits.
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

// Unlike math.Cosh and math.Sinh, Cosh and Sinh return infinity only if the result is too large for a float64.
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
	case math.IsNaN(x) && isOdd(y): // for an odd y, C negates the result if x has a minus sign: -nan becomes nan
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

package clib

import "math"

// Go's pow, exp and log are less exact than C's, even in digits that tostring shows. So this file computes with twice the digits.

// wide is the number high+low, where low is smaller than the last digit of high.
type wide struct{ high, low float64 }

var (
	wideLn2 = wide{math.Ln2, 2.319046813846299558e-17}
	one     = wide{high: 1}
)

func wideSum(a, b float64) wide {
	s := a + b
	t := s - a
	return wide{s, (a - (s - t)) + (b - t)}
}

func (a wide) plus(b wide) wide {
	s := wideSum(a.high, b.high)
	return wideSum(s.high, s.low+(a.low+b.low))
}

func (a wide) times(b wide) wide {
	p := float64(a.high * b.high)
	rest := math.FMA(a.high, b.high, -p)
	return wideSum(p, rest+(float64(a.high*b.low)+float64(a.low*b.high)))
}

func (a wide) over(b wide) wide {
	q := a.high / b.high
	rest := a.plus(b.times(wide{high: -q}))
	return wideSum(q, rest.high/b.high)
}

// wideLog returns the logarithm of x > 0. With x = m·2^e, it computes the logarithm of m by
// the series of the inverse hyperbolic tangent.
func wideLog(x float64) wide {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	z := wide{high: m - 1}.over(wideSum(m, 1))
	square, sum := z.times(z), wide{}
	for n := 41.0; n >= 1; n -= 2 {
		sum = sum.times(square).plus(one.over(wide{high: n}))
	}
	return sum.times(z).times(wide{high: 2}).plus(wideLn2.times(wide{high: float64(e)}))
}

// wideExp returns e^x for |x| < 1000. With x = k·ln 2 + 256·r, it computes e^r by its series, and squares it eight times.
func wideExp(x wide) float64 {
	k := math.Round(x.high / math.Ln2)
	r := x.plus(wideLn2.times(wide{high: -k})).times(wide{high: 1. / 256})
	sum := one
	for n := 11.0; n >= 1; n-- {
		sum = one.plus(sum.times(r).over(wide{high: n}))
	}
	for range 8 {
		sum = sum.times(sum)
	}
	return math.Ldexp(sum.high, int(k))
}

func Exp(x float64) float64 {
	if math.Abs(x) < 800 {
		return wideExp(wide{high: x})
	}
	return math.Exp(x)
}

func Log(x float64) float64 {
	if x > 0 && !math.IsInf(x, 1) {
		return wideLog(x).high
	}
	return math.Log(x)
}

// power returns x^y for x > 0 and finite x and y.
func power(x, y float64) float64 {
	ln := wideLog(x)
	switch rough := ln.high * y; {
	case rough > 800:
		return math.Inf(1)
	case rough < -800:
		return 0
	}
	return wideExp(ln.times(wide{high: y}))
}

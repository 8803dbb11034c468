package redistext

import "math/big"

// Redis adds the numbers of INCRBYFLOAT and HINCRBYFLOAT as C long doubles, and stores 17 decimals. A big.Float of precision 64 gives the
// same sums as on x86-64. Only the ends of the exponent range need a check.
const (
	LongDoublePrec   = 64
	longDoubleMaxExp = 16384  // finite numbers are below 2^16384
	longDoubleMinExp = -16446 // numbers up to 2^-16446 round to zero
	longDoubleMaxLen = 5119   // bytes of the longest text that Redis parses as a number: its buffer has one byte more

	longDoubleMaxDigits = 5000 // numbers from 10^5000 up, or below 10^-5000, are out of the range of the type
)

// ParseLongDouble parses a number as strtold does, but rejects leading blanks, NaN and finite numbers out of range.
func ParseLongDouble(s string) (*big.Float, bool) {
	if len(s) > longDoubleMaxLen {
		return nil, false
	}
	n, ok := ScanNumber(s)
	if !ok {
		return nil, false
	}
	f := new(big.Float).SetPrec(LongDoublePrec)
	switch {
	case n.Inf:
		return f.SetInf(n.Neg), true
	case n.Digits == "":
		return signed(f, n.Neg), true
	}
	// Reject a number that cannot fit before the conversion: its power of ten could take all
	// memory.
	base, magnitude, limit := 10, len(n.Digits)+n.exp, longDoubleMaxDigits
	if n.Hex {
		base, magnitude, limit = 16, 4*len(n.Digits)+n.exp, 2*longDoubleMaxExp
	}
	if magnitude > limit || magnitude < -limit {
		return nil, false
	}
	mant, ok := new(big.Int).SetString(n.Digits, base)
	if !ok {
		return nil, false
	}
	if n.Hex {
		f.SetMantExp(f.SetInt(mant), n.exp)
	} else {
		setDecimal(f, mant, n.exp)
	}
	if f.MantExp(nil) > longDoubleMaxExp || f.Cmp(longDoubleTiny) <= 0 {
		return nil, false
	}
	return signed(f, n.Neg), true
}

// longDoubleTiny is the largest number that rounds to zero.
var longDoubleTiny = new(big.Float).SetMantExp(big.NewFloat(1), longDoubleMinExp)

// setDecimal sets f to mant*10^exp, and may change mant. It multiplies or divides exact numbers, and rounds
// only the result, so the result is correctly rounded.
func setDecimal(f *big.Float, mant *big.Int, exp int) {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exp, -exp))), nil)
	if exp >= 0 {
		f.SetInt(mant.Mul(mant, scale))
		return
	}
	f.Quo(new(big.Float).SetInt(mant), new(big.Float).SetInt(scale))
}

func signed(f *big.Float, neg bool) *big.Float {
	if neg {
		f.Neg(f)
	}
	return f
}

// AddLongDoubles returns a+b; ok is false if the sum is not finite.
func AddLongDoubles(a, b *big.Float) (sum *big.Float, ok bool) {
	if a.IsInf() || b.IsInf() {
		return nil, false
	}
	sum = new(big.Float).SetPrec(LongDoublePrec).Add(a, b)
	return sum, sum.MantExp(nil) <= longDoubleMaxExp
}

// FormatLongDouble formats f with up to 17 decimals, never in exponential form.
func FormatLongDouble(f *big.Float) string {
	s := TrimZeros(f.Text('f', 17))
	if s == "-0" {
		return "0"
	}
	return s
}

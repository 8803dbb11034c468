package store

import (
	"math"
	"strconv"
	"unsafe"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// Kind is the RESP type of a Reply. If RESP2 lacks the type, the encoder sends the form that Redis
// sends to a RESP2 client.
type Kind uint8

const (
	// None means that nothing is sent for this Reply: the handler has sent its messages itself, or the client gets no reply.
	None Kind = iota
	// Null is the null bulk string ("$-1"; "_" in RESP3).
	Null
	// NullArray is the null array ("*-1"; "_" in RESP3).
	NullArray
	// Simple is a status such as OK.
	Simple
	// Failure is an error; Str is its code and message without the leading '-'.
	Failure
	// Integer carries Int.
	Integer
	// Bulk carries Str.
	Bulk
	// Array carries Elems.
	Array
	// Map carries Elems as key, value, key, value, …
	Map
	// Set carries Elems.
	Set
	// Double carries a float64; see Reply.Float.
	Double
	// Bool is true when Int is 1.
	Bool
	// BigNumber carries decimal digits in Str.
	BigNumber
	// Verbatim carries Str, with a three-letter format in front ("txt:…").
	Verbatim
	// Push is an out-of-band message (an array to a RESP2 client).
	Push
	// Multi holds several replies to one command, which are sent one after the other.
	Multi
	// Noted holds a reply, as the first element, and denials for the ACL log. The server separates
	// them (DetachDenials) before it sends the reply.
	Noted
	// Attribute carries Elems as a Map does, and precedes the reply that it describes. RESP2 has no attributes. They never go to a peer.
	Attribute
	// Packed is an array, map or set from a peer, in encoded form (Str) to save memory. Only the RESP encoder unpacks it.
	Packed
)

// Reply is the result of a command as a value: the server encodes it, Lua converts it, a peer link
// transfers it.
type Reply struct {
	Kind  Kind
	Int   int64
	Str   string
	Elems []Reply
}

// OK is the status reply of most writes.
var OK = Reply{Kind: Simple, Str: "OK"}

// Nil is the null bulk string.
var Nil = Reply{Kind: Null}

// Zero and One are the integer replies for no and yes, for example those of EXPIRE.
var (
	Zero = Reply{Kind: Integer}
	One  = Reply{Kind: Integer, Int: 1}
)

// Status returns a simple string reply.
func Status(s string) Reply { return Reply{Kind: Simple, Str: s} }

// Int returns an integer reply.
func Int(n int64) Reply { return Reply{Kind: Integer, Int: n} }

// Flag returns One for true and Zero for false.
func Flag(b bool) Reply {
	if b {
		return One
	}
	return Zero
}

// Str returns a bulk string reply.
func Str(s string) Reply { return Reply{Kind: Bulk, Str: s} }

// Err returns an error reply.
func Err(e Error) Reply { return Reply{Kind: Failure, Str: string(e)} }

// With returns a map reply with more elements.
func (r Reply) With(elems ...Reply) Reply {
	r.Elems = append(r.Elems, elems...)
	return r
}

// List returns an array reply.
func List(elems ...Reply) Reply { return Reply{Kind: Array, Elems: elems} }

// Strs returns an array of bulk strings.
func Strs(ss ...string) Reply {
	elems := make([]Reply, len(ss))
	for i, s := range ss {
		elems[i] = Str(s)
	}
	return Reply{Kind: Array, Elems: elems}
}

// MapOf returns a map reply of alternating keys and values.
func MapOf(kv ...Reply) Reply { return Reply{Kind: Map, Elems: kv} }

// Float returns a double reply (a bulk string to a RESP2 client).
func Float(f float64) Reply { return Reply{Kind: Double, Int: int64(math.Float64bits(f))} }

// Text returns a verbatim text reply (a bulk string to a RESP2 client).
func Text(s string) Reply { return Reply{Kind: Verbatim, Str: "txt:" + s} }

// Float returns the number in a Double.
func (r Reply) Float() float64 { return math.Float64frombits(uint64(r.Int)) }

// IsError reports whether r is an error reply.
func (r Reply) IsError() bool { return r.Kind == Failure }

// FormatFloat formats a double as Redis does in replies and scores: integral values of moderate size as plain digits, all others
// with %.17g.
func FormatFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f) && math.Signbit(f):
		return "-nan" // C prints the sign; the result of 0/0 has one
	case math.IsNaN(f):
		return "nan"
	case f == 0:
		if math.Signbit(f) {
			return "-0"
		}
		return "0"
	}
	// The limits are those of d2string in Redis's util.c.
	if f > -4503599627370495 && f < 4503599627370496 && f == math.Trunc(f) {
		return strconv.FormatInt(int64(f), 10)
	}
	return FormatG(f, 17)
}

// FormatG formats f as C's printf does with %.<prec>g, but any NaN as -nan.
func FormatG(f float64, prec int) string {
	if f == 0 || math.IsInf(f, 0) || math.IsNaN(f) {
		switch {
		case math.IsInf(f, 1):
			return "inf"
		case math.IsInf(f, -1):
			return "-inf"
		case math.IsNaN(f):
			return "-nan"
		case math.Signbit(f):
			return "-0"
		}
		return "0"
	}
	e := strconv.FormatFloat(f, 'e', prec-1, 64)
	// The exponent determines the notation: C99 7.19.6.1.
	exp := 0
	mant := e
	for i := len(e) - 1; i >= 0; i-- {
		if e[i] == 'e' {
			exp, _ = strconv.Atoi(e[i+1:])
			mant = e[:i]
			break
		}
	}
	if exp < -4 || exp >= prec {
		mant = redistext.TrimZeros(mant)
		sign := "+"
		if exp < 0 {
			sign, exp = "-", -exp
		}
		digits := strconv.Itoa(exp)
		if len(digits) < 2 {
			digits = "0" + digits
		}
		return mant + "e" + sign + digits
	}
	return redistext.TrimZeros(strconv.FormatFloat(f, 'f', prec-1-exp, 64))
}

// ReplySize is the memory of a Reply without the bytes of Str and without the elements.
const ReplySize = int(unsafe.Sizeof(Reply{}))

// Extent estimates the bytes of memory that replies take. It stops counting once the estimate is greater than the parameter enough.
func Extent(replies []Reply, enough int) int {
	n := 0
	for i := range replies {
		n += len(replies[i].Str) + ReplySize
		if replies[i].Elems != nil {
			n += Extent(replies[i].Elems, enough-n)
		}
		if n > enough {
			break
		}
	}
	return n
}

package server

import (
	"strconv"
	"strings"

	"github.com/lockstep-io/lockstep/store"
)

// appendReply appends a reply in RESP2 or RESP3. Types that RESP2 lacks take the shape that Redis gives them.
func appendReply(b []byte, r *store.Reply, resp int) []byte {
	switch r.Kind {
	case store.None:
		return b
	case store.Null:
		return appendNull(b, resp, "$-1\r\n")
	case store.NullArray:
		return appendNull(b, resp, "*-1\r\n")
	case store.Simple:
		return appendLine(b, '+', r.Str)
	case store.Failure:
		return appendLine(b, '-', r.Str)
	case store.Integer:
		return appendInt(b, ':', r.Int)
	case store.Bulk:
		return appendBulk(b, '$', r.Str)
	case store.Double:
		return appendDouble(b, r.Float(), resp)
	case store.Bool:
		return appendBool(b, r.Int == 1, resp)
	case store.BigNumber:
		if resp >= 3 {
			return appendLine(b, '(', r.Str)
		}
		return appendBulk(b, '$', r.Str)
	case store.Verbatim:
		if resp >= 3 {
			return appendBulk(b, '=', r.Str)
		}
		// RESP2 omits the format ("txt:").
		return appendBulk(b, '$', r.Str[min(4, len(r.Str)):])
	case store.Multi:
		return appendElems(b, r.Elems, resp)
	case store.Packed:
		return appendPacked(b, r, resp)
	}
	return appendElems(appendHead(b, r.Kind, len(r.Elems), resp), r.Elems, resp)
}

// encodedSize estimates how many bytes a reply takes on the wire. The caller allocates them at once, because a growing buffer would
// leave much garbage.
func encodedSize(r *store.Reply) int {
	const frame = 8 // a type byte, three digits, two line ends
	n := frame + len(r.Str)
	if len(r.Str) > 999 {
		n += frame // its length may have more than three digits
	}
	if r.Kind == store.Packed {
		_, count, _ := r.Unpack()
		return n + count*(frame-2) // len(r.Str) already counts two bytes of framing for each element
	}
	for i := range r.Elems {
		n += encodedSize(&r.Elems[i])
	}
	return n
}

func appendPacked(b []byte, r *store.Reply, resp int) []byte {
	kind, n, elems := r.Unpack()
	b = appendHead(b, kind, n, resp)
	for e := range elems {
		b = appendReply(b, e, resp)
	}
	return b
}

// appendHead appends the header of an aggregate.
func appendHead(b []byte, of store.Kind, n, resp int) []byte {
	kind := byte('*')
	if resp >= 3 {
		switch of {
		case store.Map:
			kind, n = '%', n/2
		case store.Attribute:
			kind, n = '|', n/2
		case store.Set:
			kind = '~'
		case store.Push:
			kind = '>'
		}
	}
	return appendInt(b, kind, int64(n))
}

func appendElems(b []byte, elems []store.Reply, resp int) []byte {
	for i := range elems {
		b = appendReply(b, &elems[i], resp)
	}
	return b
}

func appendNull(b []byte, resp int, resp2 string) []byte {
	if resp >= 3 {
		return append(b, "_\r\n"...)
	}
	return append(b, resp2...)
}

// appendLine appends a reply of a one-line type. As in Redis, line ends inside s become spaces, and those around s are dropped.
func appendLine(b []byte, kind byte, s string) []byte {
	b = append(b, kind)
	if strings.ContainsAny(s, "\r\n") {
		for _, c := range []byte(strings.Trim(s, "\r\n")) {
			if c == '\r' || c == '\n' {
				c = ' '
			}
			b = append(b, c)
		}
	} else {
		b = append(b, s...)
	}
	return append(b, '\r', '\n')
}

func appendInt(b []byte, kind byte, n int64) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, n, 10)
	return append(b, '\r', '\n')
}

func appendBulk(b []byte, kind byte, s string) []byte {
	b = appendInt(b, kind, int64(len(s)))
	b = append(b, s...)
	return append(b, '\r', '\n')
}

func appendDouble(b []byte, f float64, resp int) []byte {
	s := store.FormatFloat(f)
	if resp >= 3 {
		return appendLine(b, ',', s)
	}
	return appendBulk(b, '$', s)
}

func appendBool(b []byte, v bool, resp int) []byte {
	switch {
	case resp >= 3 && v:
		return append(b, "#t\r\n"...)
	case resp >= 3:
		return append(b, "#f\r\n"...)
	case v:
		return append(b, ":1\r\n"...)
	}
	return append(b, ":0\r\n"...)
}

package store

import (
	"encoding/binary"
	"errors"
)

// Replies travel between nodes, and rest in the log, in this form:
//
//	+------+----------------+------------------+---------------------------+
//	| kind | int: varint    | str: uvarint len | elems: uvarint count, then |
//	| byte | (zigzag)       | and bytes        | that many replies          |
//	+------+----------------+------------------+---------------------------+
//
// Fields that a kind does not use are left out.

// ErrCorruptReply is the error of bytes that are not an encoded reply.
var ErrCorruptReply = errors.New("store: corrupt reply")

// MaxReplyDepth bounds the nesting of a reply that is read from a peer. No reply is nested
// deeper: a script's is the deepest (replyDepth in luavm), and may be part of an EXEC's.
const MaxReplyDepth = 8192

func (k Kind) hasInt() bool { return k == Integer || k == Double || k == Bool }
func (k Kind) hasStr() bool {
	return k == Simple || k == Failure || k == Bulk || k == BigNumber || k == Verbatim
}
func (k Kind) hasElems() bool {
	return k == Array || k == Map || k == Set || k == Push || k == Multi || k == Noted
}

// AppendReply encodes r at the end of buf.
func AppendReply(buf []byte, r Reply) []byte {
	buf = append(buf, byte(r.Kind))
	switch {
	case r.Kind.hasInt():
		buf = binary.AppendVarint(buf, r.Int)
	case r.Kind.hasStr():
		buf = binary.AppendUvarint(buf, uint64(len(r.Str)))
		buf = append(buf, r.Str...)
	case r.Kind.hasElems():
		buf = binary.AppendUvarint(buf, uint64(len(r.Elems)))
		for _, e := range r.Elems {
			buf = AppendReply(buf, e)
		}
	}
	return buf
}

// ReadReply decodes a reply and returns the bytes after it. The reply does not
// keep b.
func ReadReply(b []byte) (Reply, []byte, error) { return readReply(b, 0) }

func readReply(b []byte, depth int) (Reply, []byte, error) {
	if len(b) == 0 || depth > MaxReplyDepth {
		return Reply{}, nil, ErrCorruptReply
	}
	r := Reply{Kind: Kind(b[0])}
	b = b[1:]
	if r.Kind.hasInt() {
		n, size := binary.Varint(b)
		if size <= 0 {
			return Reply{}, nil, ErrCorruptReply
		}
		r.Int = n
		return r, b[size:], nil
	}
	if !r.Kind.hasStr() && !r.Kind.hasElems() {
		if r.Kind > Noted {
			return Reply{}, nil, ErrCorruptReply
		}
		return r, b, nil
	}
	n, size := binary.Uvarint(b)
	// Every element takes at least a byte, so the count is bounded like a
	// length.
	if size <= 0 || n > uint64(len(b)-size) {
		return Reply{}, nil, ErrCorruptReply
	}
	b = b[size:]
	if r.Kind.hasStr() {
		r.Str = string(b[:n])
		return r, b[n:], nil
	}
	r.Elems = make([]Reply, 0, min(n, 1024))
	for range n {
		e, rest, err := readReply(b, depth+1)
		if err != nil {
			return Reply{}, nil, err
		}
		r.Elems = append(r.Elems, e)
		b = rest
	}
	return r, b, nil
}

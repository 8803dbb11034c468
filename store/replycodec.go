package store

import (
	"encoding/binary"
	"errors"
	"iter"
	"strings"
)

// Nodes send each other replies, and the log stores them, in this form:
//
//	+------+----------------+------------------+---------------------------+
//	| kind | int: varint    | str: uvarint len | elems: uvarint count, then |
//	| byte | (zigzag)       | and bytes        | that many replies          |
//	+------+----------------+------------------+---------------------------+
//
// An encoding omits the fields that its kind does not use.

// ErrCorruptReply is the error for bytes that are not an encoded reply.
var ErrCorruptReply = errors.New("store: corrupt reply")

// MaxReplyDepth limits the nesting of a reply from a peer. The deepest are those of scripts (replyDepth in luavm), possibly within EXEC's.
const MaxReplyDepth = 8192

func (k Kind) hasInt() bool { return k == Integer || k == Double || k == Bool }
func (k Kind) hasStr() bool {
	return k == Simple || k == Failure || k == Bulk || k == BigNumber || k == Verbatim
}
func (k Kind) hasElems() bool {
	return k == Array || k == Map || k == Set || k == Push || k == Multi || k == Noted
}

// AppendReply appends the encoding of r to buf.
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

// EncodedSize returns an upper limit for the bytes that AppendReply adds for all the given replies.
func EncodedSize(replies []Reply) int {
	n := 0
	for i := range replies {
		n += 1 + binary.MaxVarintLen64 + len(replies[i].Str) + EncodedSize(replies[i].Elems)
	}
	return n
}

// ReadReply decodes a reply and returns the bytes after it. The reply does not reference b.
func ReadReply(b []byte) (Reply, []byte, error) { return readReply(b, 0, false) }

// readReply decodes a reply at a nesting depth. If views is true, the strings of the reply reference b;
// otherwise they are copies.
func readReply(b []byte, depth int, views bool) (Reply, []byte, error) {
	r, n, b, err := readReplyHead(b, depth)
	switch {
	case err != nil:
		return Reply{}, nil, err
	case r.Kind.hasStr():
		if r.Str = bytesToString(b[:n]); !views {
			r.Str = strings.Clone(r.Str)
		}
		return r, b[n:], nil
	case r.Kind.hasElems():
		r.Elems = make([]Reply, 0, min(n, 1024))
	}
	for range n {
		e, rest, err := readReply(b, depth+1, views)
		if err != nil {
			return Reply{}, nil, err
		}
		r.Elems = append(r.Elems, e)
		b = rest
	}
	return r, b, nil
}

// readReplyHead decodes the kind of a reply, its integer, and the number n of bytes or elements
// that follow.
func readReplyHead(b []byte, depth int) (r Reply, n int, rest []byte, err error) {
	if len(b) == 0 || depth > MaxReplyDepth || Kind(b[0]) > Noted {
		return Reply{}, 0, nil, ErrCorruptReply
	}
	r.Kind, b = Kind(b[0]), b[1:]
	switch {
	case r.Kind.hasInt():
		i, size := binary.Varint(b)
		if size <= 0 {
			return Reply{}, 0, nil, ErrCorruptReply
		}
		r.Int, b = i, b[size:]
	case r.Kind.hasStr() || r.Kind.hasElems():
		count, size := binary.Uvarint(b)
		// Every element takes at least one byte, so the same check limits the number of bytes and the number of elements.
		if size <= 0 || count > uint64(len(b)-size) {
			return Reply{}, 0, nil, ErrCorruptReply
		}
		n, b = int(count), b[size:]
	}
	return r, n, b, nil
}

// skipReply returns the bytes after a reply.
func skipReply(b []byte, depth int) ([]byte, error) {
	r, n, b, err := readReplyHead(b, depth)
	if err == nil && r.Kind.hasStr() {
		return b[n:], nil
	}
	for ; n > 0 && err == nil; n-- {
		b, err = skipReply(b, depth+1)
	}
	return b, err
}

// ReadPacked is ReadReply, but packs arrays below the outermost levels, maps and sets. The result shares memory with b, except for denials.
func ReadPacked(b []byte, levels int) (Reply, []byte, error) { return readPacked(b, levels, 0) }

func readPacked(b []byte, levels, depth int) (Reply, []byte, error) {
	r, n, inner, err := readReplyHead(b, depth)
	switch {
	case err == nil && r.Kind == Array && levels > depth:
		r.Elems = make([]Reply, 0, min(n, 1024))
		for range n {
			e, after, err := readPacked(inner, levels, depth+1)
			if err != nil {
				return Reply{}, nil, err
			}
			r.Elems, inner = append(r.Elems, e), after
		}
		return r, inner, nil
	case err == nil && r.Kind == Noted:
		return readPackedNoted(n, inner, levels, depth)
	case err != nil || r.Kind != Array && r.Kind != Map && r.Kind != Set:
		return readReply(b, depth, true)
	}
	rest, err := skipReply(b, depth)
	if err != nil {
		return Reply{}, nil, err
	}
	return Reply{Kind: Packed, Str: bytesToString(b[:len(b)-len(rest)])}, rest, nil
}

// readPackedNoted decodes the n elements of a Noted: a reply, and denials, as copies because the ACL log keeps them.
func readPackedNoted(n int, b []byte, levels, depth int) (Reply, []byte, error) {
	r := Reply{Kind: Noted, Elems: make([]Reply, 0, min(n, 1024))}
	for i := range n {
		e, rest, err := Reply{}, []byte(nil), error(nil)
		if i == 0 {
			e, rest, err = readPacked(b, levels+1, depth+1) // levels+1, because the Noted is not one of the levels
		} else {
			e, rest, err = readReply(b, depth+1, false)
		}
		if err != nil {
			return Reply{}, nil, err
		}
		r.Elems, b = append(r.Elems, e), rest
	}
	return r, b, nil
}

// Unpack returns the kind of a packed reply, its number of elements, and an iterator for one use. The next element overwrites each element.
func (r *Reply) Unpack() (kind Kind, n int, elems iter.Seq[*Reply]) {
	head, n, b, err := readReplyHead(stringBytes(r.Str), 0)
	return head.Kind, n, func(yield func(*Reply) bool) {
		var e Reply
		for i := 0; i < n && err == nil; i++ {
			// ReadPacked has checked the bytes, so there is no error.
			if e, b, err = readReply(b, 1, true); err != nil || !yield(&e) {
				return
			}
		}
	}
}

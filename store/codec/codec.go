// Package codec reads and writes the fields of messages between nodes, of log entries, of write sets and of snapshots.
// A number is an unsigned varint unless its function says otherwise; a string is its length and its bytes.
package codec

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"unsafe"
)

// MaxLength is the largest Reader.Int, and the longest string of Stream.Bytes in bytes. Messages, entries and snapshots have no longer
// parts.
const MaxLength = 1 << 30

// AppendStr appends a string.
func AppendStr[S ~string | ~[]byte](buf []byte, s S) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(s)))
	return append(buf, s...)
}

// Reader reads fields from bytes in memory. After a fault (Bad) all fields are zero. Strings are parts of B, not copies.
type Reader struct {
	B   []byte // the bytes that have not been read
	Bad bool
}

func (r *Reader) fail() { r.Bad, r.B = true, nil }

// Uvarint reads a number.
func (r *Reader) Uvarint() uint64 {
	n, size := binary.Uvarint(r.B)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.B = r.B[size:]
	return n
}

// Int reads a number of at most MaxLength: a length, or a small number.
func (r *Reader) Int() int {
	n := r.Uvarint()
	if n > MaxLength {
		r.fail()
		return 0
	}
	return int(n)
}

// Count reads the number of elements that follow. A rest too short for them is a fault: an element has at least least bytes.
func (r *Reader) Count(least int) int {
	n := r.Uvarint()
	if n > uint64(len(r.B)/least) {
		r.fail()
		return 0
	}
	return int(n)
}

// Fixed reads a number of eight bytes.
func (r *Reader) Fixed() uint64 {
	if len(r.B) < 8 {
		r.fail()
		return 0
	}
	n := binary.BigEndian.Uint64(r.B)
	r.B = r.B[8:]
	return n
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.B) == 0 {
		r.fail()
		return 0
	}
	b := r.B[0]
	r.B = r.B[1:]
	return b
}

// Bytes reads a string.
func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if n > uint64(len(r.B)) {
		r.fail()
		return nil
	}
	b := r.B[:n:n]
	r.B = r.B[n:]
	return b
}

// Str is Bytes as a string, which shares the memory: these bytes must not change while the string is used.
func (r *Reader) Str() string {
	b := r.Bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// Stream reads fields from a stream. It keeps the first error, and later fields are zero.
type Stream struct {
	*bufio.Reader
	Err error
}

// NewStream returns a Stream with a buffer of 64 KiB. It reads with in itself if in is a bufio.Reader with as large a buffer.
func NewStream(in io.Reader) *Stream { return &Stream{Reader: bufio.NewReaderSize(in, 1<<16)} }

// Uvarint reads a number.
func (s *Stream) Uvarint() uint64 {
	if s.Err != nil {
		return 0
	}
	n, err := binary.ReadUvarint(s.Reader)
	s.Err = err
	return n
}

// Fixed reads a number of eight bytes.
func (s *Stream) Fixed() uint64 {
	var b [8]byte
	if s.Err == nil {
		_, s.Err = io.ReadFull(s.Reader, b[:])
	}
	return binary.BigEndian.Uint64(b[:])
}

// usual is the length, in bytes, up to which Bytes allocates the memory for a string at once.
const usual = 8 << 20

// Bytes reads a string. Its length may be corrupt: for what exceeds 8 MiB (usual), Bytes allocates memory only as the bytes arrive.
func (s *Stream) Bytes() []byte {
	n := s.length()
	if s.Err != nil {
		return nil
	}
	b := make([]byte, min(n, usual))
	_, s.Err = io.ReadFull(s.Reader, b)
	for from := len(b); uint64(from) < n && s.Err == nil; from = len(b) {
		more := make([]byte, min(n, 2*uint64(from)))
		copy(more, b)
		b = more
		_, s.Err = io.ReadFull(s.Reader, b[from:])
	}
	return b
}

// Skip reads a string and drops it.
func (s *Stream) Skip() {
	if n := s.length(); s.Err == nil {
		if _, s.Err = s.Discard(int(n)); s.Err == io.EOF && n > 0 {
			s.Err = io.ErrUnexpectedEOF
		}
	}
}

// length reads the length of a string.
func (s *Stream) length() uint64 {
	n := s.Uvarint()
	if s.Err == nil && n > MaxLength {
		s.Err = fmt.Errorf("a field of %d bytes", n)
	}
	return n
}

// Str is Bytes for a caller that needs a string.
func (s *Stream) Str() string {
	b := s.Bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

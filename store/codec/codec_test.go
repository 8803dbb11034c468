package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// fields returns the encodings of several fields, one of each kind.
func fields() []byte {
	b := binary.AppendUvarint(nil, 1<<40)
	b = binary.AppendUvarint(b, 7)
	b = binary.BigEndian.AppendUint64(b, 1<<63)
	b = append(b, 'x')
	return AppendStr(b, "name")
}

func read(r *Reader) (n uint64, i int, fixed uint64, b byte, s string) {
	return r.Uvarint(), r.Int(), r.Fixed(), r.Byte(), r.Str()
}

func TestReader(t *testing.T) {
	whole := fields()
	r := Reader{B: whole}
	if n, i, fixed, b, s := read(&r); r.Bad || len(r.B) > 0 || n != 1<<40 || i != 7 || fixed != 1<<63 || b != 'x' || s != "name" {
		t.Errorf("read %d, %d, %d, %q, %q, bad %v, %d bytes left", n, i, fixed, b, s, r.Bad, len(r.B))
	}
	for n := range whole {
		r := Reader{B: whole[:n]}
		if read(&r); !r.Bad {
			t.Errorf("%d of %d bytes are all fields", n, len(whole))
		}
		if r.B = whole; r.Uvarint() != 1<<40 || !r.Bad {
			t.Errorf("%d bytes: the first fault was forgotten", n)
		}
	}
}

func TestReaderRefusesLengths(t *testing.T) {
	for _, tc := range []struct {
		name string
		read func(r *Reader)
	}{
		{"a string", func(r *Reader) { r.Bytes() }},
		{"a count", func(r *Reader) { r.Count(1) }},
		{"a number", func(r *Reader) { r.Int() }},
	} {
		for _, n := range []uint64{MaxLength + 1, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
			r := Reader{B: append(binary.AppendUvarint(nil, n), "some bytes"...)}
			if tc.read(&r); !r.Bad {
				t.Errorf("%s of %d was accepted", tc.name, n)
			}
		}
	}
	r := Reader{B: []byte{3, 1, 2, 3, 4, 5, 6, 7, 8}}
	if n := r.Count(3); n != 0 || !r.Bad {
		t.Errorf("%d elements of three bytes in eight bytes", n)
	}
}

func TestStream(t *testing.T) {
	long := strings.Repeat("long ", usual/2)
	whole := AppendStr(AppendStr(binary.BigEndian.AppendUint64(binary.AppendUvarint(nil, 1<<40), 1<<63), "name"), long)
	s := NewStream(iotest.OneByteReader(bytes.NewReader(whole[:20])))
	if n, fixed, name := s.Uvarint(), s.Fixed(), s.Str(); s.Err != nil || n != 1<<40 || fixed != 1<<63 || name != "name" {
		t.Errorf("read %d, %d, %q, %v", n, fixed, name, s.Err)
	}
	s = NewStream(bytes.NewReader(whole))
	if _, _, _, all := s.Uvarint(), s.Fixed(), s.Str(), s.Str(); s.Err != nil || all != long {
		t.Errorf("read %d bytes of %d, %v", len(all), len(long), s.Err)
	}
	s = NewStream(bytes.NewReader(whole[:len(whole)-1]))
	if _, _, _, _ = s.Uvarint(), s.Fixed(), s.Str(), s.Str(); !errors.Is(s.Err, io.ErrUnexpectedEOF) {
		t.Errorf("a string that is cut short: %v", s.Err)
	}
	if n := s.Uvarint(); n != 0 || !errors.Is(s.Err, io.ErrUnexpectedEOF) {
		t.Errorf("the first error became %v, and a number %d was read", s.Err, n)
	}
}

// TestStreamAllocatesWhatArrives: for announced bytes that do not come, Stream.Bytes allocates at most as many as the constant usual.
func TestStreamAllocatesWhatArrives(t *testing.T) {
	s := NewStream(bytes.NewReader(binary.AppendUvarint(nil, MaxLength+1)))
	if b := s.Bytes(); b != nil || s.Err == nil {
		t.Errorf("%d bytes, %v", len(b), s.Err)
	}
	s = NewStream(bytes.NewReader(append(binary.AppendUvarint(nil, MaxLength), "few"...)))
	if b := s.Bytes(); s.Err == nil || cap(b) > usual {
		t.Errorf("%d bytes were allocated for three, %v", cap(b), s.Err)
	}
}

package wire

import (
	"encoding/binary"
	"errors"
)

// This file has the part of protobuf that the messages of locks need: varints and
// length-delimited fields. A zero field is left out, as in proto3.

const (
	wireVarint = 0
	wireBytes  = 2
)

var errProtobuf = errors.New("protobuf: a malformed message")

func putInt(b []byte, field int, v int64) []byte {
	if v == 0 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(field)<<3|wireVarint)
	return binary.AppendUvarint(b, uint64(v))
}

func putBytes[T ~string | ~[]byte](b []byte, field int, v T) []byte {
	if len(v) == 0 {
		return b
	}
	return putMessage(b, field, v)
}

// putMessage writes a field even when it is empty: an empty message is a value,
// too.
func putMessage[T ~string | ~[]byte](b []byte, field int, v T) []byte {
	b = binary.AppendUvarint(b, uint64(field)<<3|wireBytes)
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// field is one field of a message.
type field struct {
	number int
	int    int64
	bytes  []byte
}

// fields calls each for the fields of a message; fixed-width ones are skipped.
func fields(b []byte, each func(field) error) error {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return errProtobuf
		}
		b = b[n:]
		f := field{number: int(tag >> 3)}
		switch kind := tag & 7; kind {
		case wireVarint:
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return errProtobuf
			}
			f.int, b = int64(v), b[n:]
		case wireBytes:
			size, n := binary.Uvarint(b)
			if n <= 0 || uint64(len(b)-n) < size {
				return errProtobuf
			}
			f.bytes, b = b[n:n+int(size)], b[n+int(size):]
		case 1, 5: // fixed64, fixed32
			width := 8 - int(kind-1)
			if len(b) < width {
				return errProtobuf
			}
			b = b[width:]
			continue
		default:
			return errProtobuf
		}
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

// intField is the value of an integer field, 0 if it is not there.
func intField(b []byte, number int) (v int64, err error) {
	err = fields(b, func(f field) error {
		if f.number == number {
			v = f.int
		}
		return nil
	})
	return v, err
}

// bytesField is the last value of a length-delimited field.
func bytesField(b []byte, number int) (v []byte, err error) {
	err = fields(b, func(f field) error {
		if f.number == number {
			v = f.bytes
		}
		return nil
	})
	return v, err
}

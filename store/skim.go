package store

import (
	"errors"
	"fmt"
	"io"

	"github.com/lockstep-io/lockstep/store/codec"
)

// fieldsOf maps the tag of a snapshot record to its fields: i is a number, s a string, n how often the rest follows.
var fieldsOf = map[byte]string{
	recDB:        "i",
	recString:    keyHead + "s",
	recRaw:       keyHead + "s",
	recText:      keyHead + "s",
	recHash:      keyHead + "inss",
	recList:      keyHead + "ns",
	recSet:       keyHead + "ins",
	recSortedSet: keyHead + "insi",
	recLock:      keyHead + "iinsiiiiiiiii",
	recMarks:     "i",
	recScript:    "ssii",
	recSwapped:   "ii",
	recTokens:    "i",
	recSwapToken: "ii",
	recUser:      "ss",
	recUsers:     "i",
	recLibrary:   "s",
	recConfig:    "ss",
	recEnd:       "ii",
}

// keyHead has the fields with which the records of all keys begin.
const keyHead = "siiii"

// Skim reads a snapshot, and returns the number of its keys. It checks only the form of the records, and keeps nothing.
func Skim(in io.Reader) (keys int, err error) {
	r := codec.NewStream(in)
	for {
		tag, err := r.ReadByte()
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrCorruptSnapshot, err)
		}
		fields, known := fieldsOf[tag]
		if !known {
			return 0, fmt.Errorf("%w: record %q", ErrCorruptSnapshot, tag)
		}
		if skim(r, fields); r.Err != nil {
			return 0, fmt.Errorf("%w: %w", ErrCorruptSnapshot, r.Err)
		}
		switch tag {
		case recEnd:
			return keys, nil
		case recString, recRaw, recText, recHash, recList, recSet, recSortedSet, recLock:
			keys++
		}
	}
}

// skim reads the fields of a record, or of an element.
func skim(r *codec.Stream, fields string) {
	for i, f := range fields {
		switch f {
		case 'i':
			r.Uvarint()
		case 's':
			r.Skip()
		case 'n':
			n := r.Uvarint()
			if n == 0 && r.Err == nil {
				r.Err = errors.New("a key without elements")
			}
			for ; n > 0 && r.Err == nil; n-- {
				skim(r, fields[i+1:])
			}
			return
		}
	}
}

package store

import (
	"errors"
	"fmt"
	"io"

	"lockstep/store/codec"
)

// fieldsOf maps the tag of a record of a snapshot to its fields: 'i' is a number, 's' a string, and 'n' the number of elements. Each
// element consists of the fields that follow the 'n'.
var fieldsOf = map[byte]string{
	recDB:        "i",
	recString:    keyHead + "s",
	recRaw:       keyHead + "s",
	recText:      keyHead + "s",
	recHash:      keyHead + "inss",
	recList:      keyHead + "ns",
	recSet:       keyHead + "ins",
	recSortedSet: keyHead + "insi",
	recScript:    "ssii",
	recSwapped:   "ii",
	recUser:      "ss",
	recUsers:     "i",
	recLibrary:   "s",
	recConfig:    "ss",
	recEnd:       "ii",
}

// keyHead has the fields with which the records of all keys begin.
const keyHead = "siiii"

// Skim reads a snapshot, keeps nothing of it, and returns the number of its keys. So Skim takes no more memory for a long snapshot
// than for a short one. It checks only the form of the records: Restore refuses some snapshots that Skim accepts, such as one with
// a key twice.
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
		case recString, recRaw, recText, recHash, recList, recSet, recSortedSet:
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

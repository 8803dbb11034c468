package store

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// keysOf returns the number of keys in all databases.
func keysOf(s *Store) (n int) {
	for db := range Databases {
		total, _ := s.Keys(db)
		n += total
	}
	return n
}

// TestSkim: Skim counts the keys of a snapshot that has every kind of record. It refuses the snapshot if its end is missing.
func TestSkim(t *testing.T) {
	d := newTestDB(t)
	for _, writes := range []func(*Txn){everyWrite, everyElementWrite} {
		txn := d.begin()
		writes(txn)
		d.apply(txn)
	}
	b := encode(t, d.s)
	if keys, err := Skim(bytes.NewReader(b)); err != nil || keys != keysOf(d.s) || keys < 4 {
		t.Fatalf("%d keys, want %d; %v", keys, keysOf(d.s), err)
	}
	for n := range b {
		if _, err := Skim(bytes.NewReader(b[:n])); !errors.Is(err, ErrCorruptSnapshot) {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	for name, b := range map[string]string{
		"an unknown record":    "X",
		"a list of none":       "Q\x01k\x00\x00\x00\x00\x00",
		"a name without end":   "U\xff\xff\xff\xff\x0f",
		"a count without end":  "Q\x01k\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a number of 11 bytes": "V\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
	} {
		if _, err := Skim(strings.NewReader(b)); !errors.Is(err, ErrCorruptSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

package store

import (
	"bytes"
	"testing"
)

// formsOfStrings are commands that make strings whose form does not follow from their value.
var formsOfStrings = []string{"INCRBYFLOAT text 3", "SET bits ab", "SETBIT bits 1 1", "BITOP OR both bits bits", "SET plain 5"}

// TestFormsOfStringsAreKept: the log and snapshots contain the form of strings that OBJECT ENCODING shows.
func TestFormsOfStringsAreKept(t *testing.T) {
	d := newTestDB(t)
	txn := d.begin()
	for _, cmd := range formsOfStrings {
		d.run(txn, words(cmd)...)
	}
	if got := txn.Writes().Version(); got != 2 {
		t.Errorf("an entry of version %d, which 0.1.0 takes for its own", got)
	}
	golden(t, "writeset-forms.golden", txn.Writes().Bytes())
	touched := &touches{}
	EachTouched([]byte{byte(opForm), 1, 'k', byte(formRaw)}, touched)
	if len(touched.list) > 0 {
		t.Errorf("a new form touches %q", touched.list)
	}
	d.apply(txn)
	shown := func(when string) {
		t.Helper()
		for key, want := range map[string]string{"text": "embstr", "bits": "raw", "both": "raw", "plain": "int"} {
			if got := d.do("OBJECT", "ENCODING", key); got != `"`+want+`"` {
				t.Errorf("%s: %s is %s, want %s", when, key, got, want)
			}
		}
	}
	shown("applied")
	var b bytes.Buffer
	if err := d.s.Snapshot().Encode(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "snapshot-forms.golden", b.Bytes())
	var err error
	if d.s, err = Restore(&b); err != nil {
		t.Fatal(err)
	}
	shown("restored")
}

// TestFormsOfOlderLeaders: in an entry of a version 0.1.0 leader, nodes ignore the parameters of the compact forms, but nothing else.
func TestFormsOfOlderLeaders(t *testing.T) {
	for _, older := range []bool{true, false} {
		txn := New().Begin(Time{}, 1, Env{})
		for _, name := range []string{ParamHashEntries, ParamHashValue, ParamSetEntries, ParamScoreEntries, ParamScoreValue, ParamEvents} {
			txn.SetConfig(name, "1")
		}
		s, version := New(), txn.Writes().Version()
		if older {
			version = 1
		}
		if err := s.ApplyVersion(version, txn.Writes().Bytes(), 1, nil); err != nil {
			t.Fatal(err)
		}
		want := 6
		if older {
			want = 1
		}
		if set := s.config.names(); len(set) != want || (*s.config.form() == defaultForms) != older {
			t.Errorf("older %t: %v are set, the limits are %+v", older, set, *s.config.form())
		}
	}
}

// TestFormsForOlderNodes: as long as a node may run version 0.1.0, every entry has only writes that version 0.1.0 knows.
func TestFormsForOlderNodes(t *testing.T) {
	d := newTestDB(t)
	d.env.Older = func() bool { return true }
	txn := d.begin()
	for _, cmd := range formsOfStrings {
		d.run(txn, words(cmd)...)
	}
	if got := txn.Writes().Version(); got != 1 {
		t.Errorf("an entry of version %d", got)
	}
}

func TestCorruptForms(t *testing.T) {
	for name, writes := range map[string][]byte{
		"of no key":   {byte(opForm), 1, 'n', byte(formRaw)},
		"of a hash":   {byte(opForm), 1, 'h', byte(formRaw)},
		"unknown":     {byte(opForm), 1, 's', byte(formText) + 1},
		"far too big": {byte(opForm), 1, 's', 0x80, 0x02}, // the form has the number 256
	} {
		d := newTestDB(t)
		d.do("HSET", "h", "f", "v")
		d.do("SET", "s", "v")
		if err := d.s.Apply(writes, d.seq+1, nil); err == nil {
			t.Errorf("a form %s was taken", name)
		}
	}
}

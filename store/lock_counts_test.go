package store

import (
	"bytes"
	"slices"
	"testing"
)

// TestMissedLocks: a command that does not get a lock at once is told of by the kind of the lock, and nothing else is.
func TestMissedLocks(t *testing.T) {
	const owner = "6f1ed002-ab5d-4b3a-9f0a-0123456789ab:1"
	missed := []string{}
	d := newTokenDB(t)
	d.env.Missed = func(kind string) { missed = append(missed, kind) }
	for _, step := range []struct{ script, want string }{
		{"SET k a NX PX 100 => +OK", ""},
		{"SET k b NX PX 100 => nil", kindPlain},
		{"SETNX k b => :0", kindPlain},
		{"SET k b NX GET PX 100 => \"a\"", kindPlain},
		{"LOCK.ACQUIRE k b PX 100 => nil-array", kindPlain},
		{"LOCK.ACQUIRE k b PX 100 WAIT 50 => nil-array", ""},
		{"SET k b XX PX 100 => +OK", ""},
		{"SET data x => +OK", ""},
		{"SET data y NX => nil", ""}, // no lock
		{"HSET data2 f v => :1", ""},
		{"SETNX data2 y => :0", ""},
		{"SET none y XX => nil", ""},
		{"SET shed ADDED:2024@host NX PX 100 => +OK", ""},
		{"SET shed x NX PX 100 => nil", kindShedLock},
		{"HSET r " + owner + " 1 => :1", ""},
		{"SET r x NX PX 100 => nil", kindRLock},
		{"LOCK.ACQUIRE s a PX 100 SHARED => [:1700000000000007 :100 :1]", ""},
		{"LOCK.ACQUIRE s b PX 100 => nil-array", kindShared},
		{"LOCK.ACQUIRE s b PX 100 LIMIT 2 => -LOCKMODE this lock has been taken with SHARED", ""},
	} {
		missed = missed[:0]
		d.script(step.script)
		want := []string{}
		if step.want != "" {
			want = append(want, step.want)
		}
		if !slices.Equal(missed, want) {
			t.Errorf("%s: missed %q, want %q", step.script, missed, want)
		}
	}
}

// TestAskedKinds: each form of LOCK.ACQUIRE asks for the kind that LOCK.INFO then shows.
func TestAskedKinds(t *testing.T) {
	d := newTokenDB(t)
	d.resp = 3
	for _, words := range []string{"", "REENTRANT", "SHARED", "limit 3", "MAXHOLD 5000", "DELAY 5", "SHARED MAXHOLD 5000", "REENTRANT DELAY 3", "WAIT 10 REENTRANT"} {
		args := bytes.Fields([]byte("LOCK.ACQUIRE k a PX 100 " + words))
		asked := AskedKind(args)
		txn := d.begin()
		if r := d.run(txn, fields(args)...); r.IsError() {
			t.Fatal(words, r.Str)
		}
		d.apply(txn)
		txn = d.begin()
		info := d.run(txn, "LOCK.INFO", "k")
		got := ""
		for i := 0; i+1 < len(info.Elems); i += 2 {
			if info.Elems[i].Str == "kind" {
				got = info.Elems[i+1].Str
			}
		}
		if asked != got || !slices.Contains(LockKinds(), asked) {
			t.Errorf("%q asks for %q, and gets %q", words, asked, got)
		}
		txn = d.begin()
		d.run(txn, "DEL", "k")
		d.apply(txn)
	}
	for _, wrong := range []string{"LOCK.ACQUIRE k a PX 100 NONSENSE", "LOCK.ACQUIRE k", ""} {
		if got := AskedKind(bytes.Fields([]byte(wrong))); got != "" && wrong != "LOCK.ACQUIRE k" && wrong != "" {
			t.Errorf("%q asks for %q", wrong, got)
		}
	}
}

func fields(args [][]byte) (list []string) {
	for _, a := range args {
		list = append(list, string(a))
	}
	return list
}

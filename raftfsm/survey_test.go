package raftfsm

import (
	"bytes"
	"errors"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// lookedAt checks that a backup that can be restored can be looked at: ReadFile gives the same facts, and no key makes it panic.
func lookedAt(t *testing.T, file []byte, want BackupFacts) {
	t.Helper()
	f, facts, err := ReadFile(bytes.NewReader(file))
	if err != nil || facts == nil || *facts != want {
		t.Fatalf("looked at: %+v, %v, want %+v", facts, err, want)
	}
	seen := 0
	f.EachKey(func(k store.KeyFacts) bool {
		if seen++; k.Held < len(k.Owners) || k.TTL < -1 || k.Kind == "" && k.Held > 0 {
			t.Errorf("%+v", k)
		}
		return true
	})
	if c := f.Contents(); c.Keys != seen || c.Keys > want.Keys || c.Locks > c.Keys || c.Sequence != want.Sequence {
		t.Errorf("%+v, of %d keys; the backup has %+v", c, seen, want)
	}
	if err := f.RaiseTokens(1_800_000_000_000_000); err != nil || f.Contents().Token < 1_800_000_000_000_000 {
		t.Errorf("the tokens are not raised: %d, %v", f.Contents().Token, err)
	}
}

// TestReadFile: a snapshot and a backup are read, each key with its owner and what is left of its lease; EachKey stops when it is told to.
func TestReadFile(t *testing.T) {
	m := New(nil)
	apply(t, m, 1, propose(m, 1000, sampleWrites))
	var backup bytes.Buffer
	if err := m.Snapshot().WriteBackup(&backup, BackupHead{Index: 7, Node: "n1", Committed: 5, Partial: true}); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{"a backup": backup.Bytes(), "a snapshot": encode(t, m)} {
		f, facts, err := ReadFile(bytes.NewReader(file))
		if err != nil || (facts != nil) != (name == "a backup") {
			t.Fatal(name, facts, err)
		}
		found := map[string]store.KeyFacts{}
		f.EachKey(func(k store.KeyFacts) bool {
			found[k.Key] = k
			return true
		})
		if len(found) != f.Contents().Keys || found["lock:a"].Value != "owner-1" || found["lock:a"].TTL != 30_000 || found["rlock"].DB != 3 || found["rlock"].TTL != 60_000 || found["copy"].TTL != -1 || found["copy"].Value != "text" {
			t.Errorf("%s: %+v", name, found)
		}
		n := 0
		f.EachKey(func(store.KeyFacts) bool { n++; return false })
		if n != 1 {
			t.Errorf("%s: EachKey went on to %d keys", name, n)
		}
		for at := range file {
			spoilt := bytes.Clone(file)
			spoilt[at] ^= 1
			if _, _, err := ReadFile(bytes.NewReader(spoilt)); err == nil {
				t.Fatalf("%s with another byte at %d is read", name, at)
			}
		}
	}
	if _, _, err := ReadFile(bytes.NewReader([]byte("LOCK"))); !errors.Is(err, ErrNeither) {
		t.Error(err)
	}
}

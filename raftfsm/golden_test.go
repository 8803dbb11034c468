package raftfsm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares bytes with a file in the form of hexdump -C. A difference means that old logs and snapshots cannot be read any more.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	dump := hex.Dump(got)
	if *update {
		if err := os.WriteFile(path, []byte(dump), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if dump != string(want) {
		t.Errorf("%s: the format has changed.\ngot:\n%swant:\n%s", name, dump, want)
	}
}

func sampleEntry() Entry {
	return Entry{Prev: 300, Lease: 65_000, Wall: 1_700_000_000_123_456, Proposer: 1<<64 - 1, Batch: 42,
		Requests: AppendAnswers(nil, sampleAnswers()), Writes: []byte("write set")}
}

func sampleAnswers() []Answer {
	return []Answer{
		{Origin: 7, ID: 300, Low: 298, Replies: []byte("one")},
		{Origin: 1<<64 - 1, ID: 1, Low: 1, Replies: []byte("two")},
		{Origin: 7, ID: 301, Low: 300, Replies: []byte{}},
	}
}

func TestGoldenEntry(t *testing.T) {
	e := sampleEntry()
	golden(t, "entry.hex", e.Append(nil))
	// A second entry has real writes, so the test also notices a change of the codes of the write set.
	f := New(nil)
	apply(t, f, 1, propose(f, 10, func(t *store.Txn) {
		t.SetString(0, []byte("gone"), "x", 500)
		t.LoadScript(strings.Repeat("ef", 20), "return 0", false)
	}))
	golden(t, "entry-writes.hex", propose(f, 1000, func(t *store.Txn) {
		t.ExpireDue(10, math.MaxInt, math.MaxInt)
		sampleWrites(t)
	}))
	golden(t, "entry-keep.hex", propose(f, 1000, func(t *store.Txn) {
		t.SetString(0, []byte("lock"), "5", 500)
		t.KeepString(0, []byte("lock"), "6")
		t.KeepString(0, []byte("without a deadline"), "7")
	}))
}

// sampleWrites uses every primitive write except the expiry of a key. Only if a script is cached, the removal of one is among them.
func sampleWrites(t *store.Txn) {
	t.SetString(0, []byte("lock:a"), "owner-1", 31_000)
	t.SetString(3, []byte("plain"), "text", 0)
	t.HashSet(3, []byte("rlock"), "uuid:1", "2")
	t.HashSet(3, []byte("rlock"), "uuid:2", "1")
	t.HashDelete(3, []byte("rlock"), "uuid:2")
	t.SetDeadline(3, []byte("rlock"), 61_000)
	t.Copy(3, []byte("plain"), 4, []byte("copy"))
	t.Move(3, []byte("plain"), 5, []byte("moved"))
	t.Delete(5, []byte("moved"))
	t.Swap(4, 6)
	t.SetString(9, []byte("x"), "y", 0)
	t.Flush(9)
	t.Publish(store.Shard, "channel", "message")
	t.FlushScripts()
	t.LoadScript(strings.Repeat("ab", 20), "return 1", true)
	t.LoadScript(strings.Repeat("cd", 20), "return 2", false)
}

func TestGoldenSnapshot(t *testing.T) {
	f := New(nil)
	apply(t, f, 5, propose(f, 1000, sampleWrites))
	apply(t, f, 6, propose(f, 2000, func(t *store.Txn) {
		t.SetString(0, []byte("gone"), "soon", 2001)
		t.HashSet(0, []byte("large"), "field", strings.Repeat("v", 65))
	}))
	apply(t, f, 7, propose(f, 3000, func(t *store.Txn) { t.ExpireDue(10, math.MaxInt, math.MaxInt) }))
	f.done.add(sampleAnswers(), 3000, 3000)
	golden(t, "snapshot.hex", encode(t, f))
	empty := New(nil)
	golden(t, "snapshot-empty.hex", encode(t, empty))
}

// TestSnapshotVersion3: some states hold data that lockstep 0.1.0 would refuse or treat differently. Their snapshots have a format
// version that lockstep 0.1.0 does not know.
func TestSnapshotVersion3(t *testing.T) {
	number := store.NewTable(store.Commands())
	for name, write := range map[string]func(*store.Txn){
		"tokens":                           func(t *store.Txn) { t.TokensAbove(1_700_000_000_000_000) },
		"a parameter of the compact forms": func(t *store.Txn) { t.SetConfig(store.ParamScoreEntries, "7") },
		"a number as text": func(t *store.Txn) {
			c := store.Ctx{Txn: t, Args: [][]byte{[]byte("incrbyfloat"), []byte("n"), []byte("3")}, RESP: 2}
			c.Cmd, _ = number.Resolve(c.Args)
			c.Cmd.Run(&c)
		},
	} {
		f := New(nil)
		apply(t, f, 1, propose(f, 1000, write))
		b := encode(t, f)
		if b[len(snapshotMagic)] != 3 {
			t.Errorf("%s: version %d", name, b[len(snapshotMagic)])
		}
		if again := encode(t, restored(t, b)); !bytes.Equal(again, b) {
			t.Errorf("%s: it is not written as it was", name)
		}
		if strings.HasPrefix(name, "a parameter") {
			golden(t, "snapshot-v3.hex", b)
		}
	}
}

// TestTokensAfterAnUpgrade: a lock in a snapshot of version 0.1.0 has a smaller token than its next owner.
func TestTokensAfterAnUpgrade(t *testing.T) {
	dump, err := os.ReadFile(filepath.Join("testdata", "snapshot.hex"))
	if err != nil {
		t.Fatal(err)
	}
	f := restored(t, undump(t, string(dump)))
	lock := []byte("lock:a")
	token := func() (token uint64) {
		f.View(func(s *store.Store, seq uint64) {
			txn := s.Begin(store.Time{Lease: 1}, seq+1, store.Env{})
			token = txn.Token(0, txn.Lookup(0, lock))
		})
		return token
	}
	if token() != 0 {
		t.Error("version 0.1.0 counts no tokens")
	}
	seq, _ := f.Position()
	apply(t, f, seq+1, propose(f, 3000, func(t *store.Txn) { t.TokensAbove(1_700_000_000_000_000) }))
	held := token()
	apply(t, f, seq+2, propose(f, 3000, func(t *store.Txn) {
		t.Delete(0, lock)
		t.SetString(0, lock, "owner-2", 0)
	}))
	if next := token(); held == 0 || next <= held || next <= 1_700_000_000_000_000 {
		t.Errorf("token %d after %d", next, held)
	}
}

// TestFormsInAnOlderSnapshot: the parameter of the compact forms that lockstep 0.1.0 stores in a snapshot has no effect.
func TestFormsInAnOlderSnapshot(t *testing.T) {
	f := New(nil)
	apply(t, f, 1, propose(f, 1000, func(t *store.Txn) { t.SetConfig(store.ParamScoreEntries, "7") }))
	b := encode(t, f)
	b[len(snapshotMagic)] = 2
	body := b[:len(b)-sumSize]
	b = binary.LittleEndian.AppendUint32(body, crc32.Checksum(body, castagnoli))
	older := restored(t, b)
	older.View(func(s *store.Store, _ uint64) {
		if value, set := s.Parameters().Get(store.ParamScoreEntries); set {
			t.Errorf("it is set to %s", value)
		}
	})
	if again := encode(t, older); again[len(snapshotMagic)] != 2 {
		t.Errorf("the next snapshot has version %d", again[len(snapshotMagic)])
	}
}

// TestSnapshotVersion1: snapshots of format version 1 can still be read.
func TestSnapshotVersion1(t *testing.T) {
	dump, err := os.ReadFile(filepath.Join("testdata", "snapshot-v1.hex"))
	if err != nil {
		t.Fatal(err)
	}
	f := New(nil)
	if err := f.Restore(bytes.NewReader(undump(t, string(dump))), 0); err != nil {
		t.Fatal(err)
	}
	want := New(nil)
	if err := want.Restore(bytes.NewReader(encode(t, f)), 0); err != nil {
		t.Fatal(err)
	}
	if seq, lease := f.Position(); seq != 3 || lease != 3000 || !bytes.Equal(encode(t, f), encode(t, want)) {
		t.Errorf("position %d %d", seq, lease)
	}
}

// undump returns the bytes of a dump in the form of hexdump -C.
func undump(t *testing.T, dump string) (b []byte) {
	t.Helper()
	for line := range strings.Lines(dump) {
		digits, _, _ := strings.Cut(line, "|")
		for _, d := range strings.Fields(digits)[1:] {
			x, err := hex.DecodeString(d)
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, x...)
		}
	}
	return b
}

func TestEntryRoundTrip(t *testing.T) {
	for _, e := range []Entry{
		sampleEntry(),
		{Requests: []byte{}, Writes: []byte{}, Version: 2},
		{Prev: 1<<64 - 1, Lease: -1, Wall: -1 << 63, Proposer: 1, Batch: 1 << 63, Requests: []byte{}, Writes: []byte{0}},
		{Lease: 1<<63 - 1, Requests: make([]byte, 300), Writes: make([]byte, 70_000)},
	} {
		prefix := []byte("before")
		b := e.Append(prefix)
		if !bytes.HasPrefix(b, prefix) {
			t.Fatal("Append changed what stood before")
		}
		got, err := DecodeEntry(b[len(prefix):])
		if err != nil {
			t.Fatal(err)
		}
		e.Version = max(e.Version, 1)
		if !reflect.DeepEqual(got, e) {
			t.Errorf("got %+v, want %+v", got, e)
		}
	}
}

// The recorded entries and snapshots can be read, and are written again with the same bytes.
func TestRecordedIsWrittenAgain(t *testing.T) {
	read := func(name string) []byte {
		dump, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return undump(t, string(dump))
	}
	for _, name := range []string{"entry.hex", "entry-writes.hex", "entry-keep.hex"} {
		b := read(name)
		e, err := DecodeEntry(b)
		if err != nil || !bytes.Equal(e.Append(nil), b) {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
	for _, name := range []string{"snapshot.hex", "snapshot-empty.hex", "snapshot-v3.hex"} {
		b := read(name)
		if !bytes.Equal(encode(t, restored(t, b)), b) {
			t.Errorf("%s is not written as it was", name)
		}
	}
}

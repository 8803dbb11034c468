package raftfsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestGoldenBackup: the program can read a recorded backup, gets the state that was recorded with it, and writes the same bytes for
// that state.
func TestGoldenBackup(t *testing.T) {
	f := New(nil)
	apply(t, f, 5, propose(f, 1000, sampleWrites))
	f.done.add(sampleAnswers(), 1000, 1000)
	for name, head := range map[string]BackupHead{
		"backup.hex":         {Index: 300, Wall: 1_700_000_000_123_456, Node: "n1", Committed: 300},
		"backup-partial.hex": {Index: 300, Wall: 1_700_000_000_123_456, Node: "n1", Committed: 290, Partial: true},
	} {
		goldenBackup(t, f, name, head)
	}
}

func goldenBackup(t *testing.T, f *FSM, name string, head BackupHead) {
	t.Helper()
	var out bytes.Buffer
	if err := f.Snapshot().WriteBackup(&out, head); err != nil {
		t.Fatal(err)
	}
	golden(t, name, out.Bytes())

	dump, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	recorded := undump(t, string(dump))
	var snapshot, again bytes.Buffer
	facts, err := ReadBackup(bytes.NewReader(recorded), &snapshot)
	if err != nil || facts.BackupHead != head || facts.Sequence != 1 || facts.Lease != 1000 || facts.Keys == 0 {
		t.Fatalf("%+v, %v", facts, err)
	}
	g := restored(t, snapshot.Bytes())
	if err := g.Snapshot().WriteBackup(&again, facts.BackupHead); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Bytes(), recorded) {
		t.Error("what was read is not written as it was")
	}
}

// For a newer backup with the right hash, the error says to upgrade. With a wrong hash, the backup counts as damaged.
func TestNewerBackupSaysUpgrade(t *testing.T) {
	var out bytes.Buffer
	if err := New(nil).Snapshot().WriteBackup(&out, BackupHead{Node: "n1"}); err != nil {
		t.Fatal(err)
	}
	b := out.Bytes()[:out.Len()-sha256.Size]
	b[len(backupMagic)] = backupVersion + 1
	sum := sha256.Sum256(b)
	b = append(b, sum[:]...)
	if _, err := ReadBackup(bytes.NewReader(b), &bytes.Buffer{}); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("newer: %v", err)
	}
	b[len(b)-1]++
	if _, err := ReadBackup(bytes.NewReader(b), &bytes.Buffer{}); !errors.Is(err, ErrNotBackup) || errors.Is(err, ErrNewer) {
		t.Errorf("newer and damaged: %v", err)
	}
}

// A backup with numbers that no cluster can reach is refused, because a restored node goes on counting from them.
func TestImpossibleBackupsAreRefused(t *testing.T) {
	for _, c := range []struct {
		fault  string // "" if there is none
		change func(*BackupHead, *Snapshot)
	}{
		{"", func(*BackupHead, *Snapshot) {}},
		{"", func(h *BackupHead, s *Snapshot) {
			h.Index, s.seq, s.lease, h.Wall, s.wall = maxIndex, maxIndex, maxLease, maxWall, maxWall
		}},
		{"", func(h *BackupHead, s *Snapshot) { h.Wall, s.wall = -1, -1 }},
		{"log index is 2305843009213693953", func(h *BackupHead, _ *Snapshot) { h.Index = maxIndex + 1 }},
		{"log index is 18446744073709551615", func(h *BackupHead, _ *Snapshot) { h.Index = math.MaxUint64 }},
		{"number of write sets", func(_ *BackupHead, s *Snapshot) { s.seq = math.MaxUint64 }},
		{"lease clock", func(_ *BackupHead, s *Snapshot) { s.lease = maxLease + 1 }},
		{"lease clock", func(_ *BackupHead, s *Snapshot) { s.lease = -1 }},
		{"its time of day", func(h *BackupHead, _ *Snapshot) { h.Wall = math.MaxInt64 }},
		{"its time of day", func(h *BackupHead, _ *Snapshot) { h.Wall = math.MinInt64 }},
		{"last entry's time of day", func(_ *BackupHead, s *Snapshot) { s.wall = maxWall + 1 }},
	} {
		head, snap := BackupHead{Node: "n1"}, New(nil).Snapshot()
		c.change(&head, snap)
		var out bytes.Buffer
		if err := snap.WriteBackup(&out, head); err != nil {
			t.Fatal(err)
		}
		_, err := ReadBackup(&out, io.Discard)
		if refused := errors.Is(err, ErrImpossible) && strings.Contains(err.Error(), c.fault); refused != (c.fault != "") || err != nil && !refused {
			t.Errorf("%q: %v", c.fault, err)
		}
	}
}

// TestRecordsBeyondTheState: a backup with the right hash is refused if a record is from a later write set than the state.
func TestRecordsBeyondTheState(t *testing.T) {
	f := New(nil)
	apply(t, f, 1, propose(f, 1000, sampleWrites))
	for seq, wrong := range []bool{true, false, false} {
		snap := f.Snapshot()
		snap.seq = uint64(seq)
		var out bytes.Buffer
		if err := snap.WriteBackup(&out, BackupHead{Node: "n1"}); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadBackup(&out, io.Discard); wrong != errors.Is(err, ErrNotBackup) || !wrong && err != nil {
			t.Errorf("%d write sets: %v", seq, err)
		}
	}
}

// TestCheckBackupKeepsNothing: CheckBackup takes no memory for the millions of small elements of a valid backup.
func TestCheckBackupKeepsNothing(t *testing.T) {
	const elements = 4 << 20
	for name, contents := range map[string]io.Reader{
		"a list":  io.MultiReader(strings.NewReader("\x00Q\x01k\x00\x00\x00\x00\x80\x80\x80\x02"), io.LimitReader(zeros{}, elements), strings.NewReader("E\x00\x00")),
		"a hash":  io.MultiReader(strings.NewReader("\x00H\x01k\x00\x00\x00\x00\x00\x80\x80\x80\x02"), io.LimitReader(zeros{}, 2*elements), strings.NewReader("E\x00\x00")),
		"answers": io.MultiReader(strings.NewReader("\x01originnm\x00\x00\x80\x80\x80\x02"), io.LimitReader(zeros{}, 2*elements), strings.NewReader("E\x00\x00")),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		facts, err := CheckBackup(backupWith(contents))
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; err != nil || facts.Node != "n1" || grown > elements {
			t.Errorf("%s: %+v, %v, %d bytes allocated", name, facts, err, grown)
		}
	}
}

// backupWith returns a backup with the contents of a snapshot of format version 2.
func backupWith(contents io.Reader) io.Reader {
	snapshot := sealedBy(crc32.New(castagnoli), io.MultiReader(strings.NewReader(snapshotMagic+"\x02\x01\x01\x01"), contents), func(h hash.Hash) []byte {
		return binary.LittleEndian.AppendUint32(nil, h.(hash.Hash32).Sum32())
	})
	return sealedBy(sha256.New(), io.MultiReader(strings.NewReader(backupMagic+"\x01\x01\x01\x02n1"), snapshot), func(h hash.Hash) []byte { return h.Sum(nil) })
}

// sealedBy returns a reader of the bytes that the argument in has, followed by their checksum.
func sealedBy(h hash.Hash, in io.Reader, sum func(hash.Hash) []byte) io.Reader {
	return io.MultiReader(io.TeeReader(in, h), &late{sum: func() io.Reader { return bytes.NewReader(sum(h)) }})
}

// late is a reader that is made when it is first read.
type late struct {
	sum func() io.Reader
	r   io.Reader
}

func (l *late) Read(p []byte) (int, error) {
	if l.r == nil {
		l.r = l.sum()
	}
	return l.r.Read(p)
}

// zeros is a reader without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// FuzzReadBackup: ReadBackup never panics. CheckBackup accepts what ReadBackup accepts, and the state can be restored and written
// again.
func FuzzReadBackup(f *testing.F) {
	m := New(nil)
	apply(f, m, 1, propose(m, 1000, sampleWrites))
	var out bytes.Buffer
	if err := m.Snapshot().WriteBackup(&out, BackupHead{Index: 300, Wall: 1_700_000_000_123_456, Node: "n1"}); err != nil {
		f.Fatal(err)
	}
	whole := out.Bytes()[len(backupMagic) : out.Len()-sha256.Size]
	f.Add(whole, true)
	f.Add(whole, false)
	f.Add(whole[:1], true)
	f.Add([]byte{backupWhole, 1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f}, true)
	f.Add([]byte{backupVersion, 1, 1, 2, 'n', '1', 0xff, 0xff, 0xff}, true)
	f.Add([]byte{backupVersion + 1, 0}, true)
	f.Fuzz(func(t *testing.T, body []byte, hashed bool) {
		file := append([]byte(backupMagic), body...)
		if hashed {
			sum := sha256.Sum256(file)
			file = append(file, sum[:]...)
		}
		var snapshot bytes.Buffer
		facts, err := ReadBackup(bytes.NewReader(file), &snapshot)
		if err != nil {
			return
		}
		lookedAt(t, file, facts)
		if checked, err := CheckBackup(bytes.NewReader(file)); err != nil || checked != facts {
			t.Errorf("ReadBackup: %+v; CheckBackup: %+v, %v", facts, checked, err)
		}
		g := New(nil)
		if err := g.Restore(bytes.NewReader(snapshot.Bytes()), 0); err != nil {
			t.Fatalf("a backup that is whole is not restored: %v", err)
		}
		var again bytes.Buffer
		if err := g.Snapshot().WriteBackup(&again, facts.BackupHead); err != nil {
			t.Fatal(err)
		}
		second, err := ReadBackup(bytes.NewReader(again.Bytes()), io.Discard)
		if err != nil || second != facts {
			t.Errorf("%+v became %+v, %v", facts, second, err)
		}
	})
}

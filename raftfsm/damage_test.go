package raftfsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/lockstep-io/lockstep/store"
)

// An entry with any one bit flipped, or cut off anywhere, is refused.
func TestEntryDamageIsDetected(t *testing.T) {
	f := New(nil)
	whole := propose(f, 1000, sampleWrites)
	for i := range len(whole) * 8 {
		b := bytes.Clone(whole)
		b[i/8] ^= 1 << (i % 8)
		if _, err := DecodeEntry(b); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit %d flipped: %v", i, err)
		}
	}
	for n := range whole {
		if _, err := DecodeEntry(whole[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

// A damaged snapshot is refused and leaves the state as it was.
func TestSnapshotDamageIsDetected(t *testing.T) {
	f := New(nil)
	apply(t, f, 1, propose(f, 1000, sampleWrites))
	whole := encode(t, f)
	g := New(nil)
	apply(t, g, 1, propose(g, 500, set("mine", "kept", 0)))
	before := encode(t, g)
	refuse := func(what string, n int, b []byte) {
		t.Helper()
		if err := g.Restore(bytes.NewReader(b), 0); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%s %d: %v", what, n, err)
		}
	}
	for i := range len(whole) * 8 {
		b := bytes.Clone(whole)
		b[i/8] ^= 1 << (i % 8)
		refuse("bit", i, b)
	}
	for n := range whole {
		refuse("cut", n, whole[:n])
	}
	refuse("a byte more", 0, append(bytes.Clone(whole), 0))
	if !bytes.Equal(encode(t, g), before) {
		t.Error("a snapshot that was refused has changed the state")
	}
}

func TestUnknownVersionsSayUpgrade(t *testing.T) {
	f := New(nil)
	b := propose(f, 1, set("a", "b", 0))
	b[0] = entryVersion + 1
	if _, err := DecodeEntry(b); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("entry: %v", err)
	}
	s := encode(t, f)
	body := s[len(snapshotMagic)+1 : len(s)-sumSize]
	s = withChecksum(body)
	s[len(snapshotMagic)] = snapshotVersion + 1
	binary.LittleEndian.PutUint32(s[len(s)-sumSize:], crc32.Checksum(s[:len(s)-sumSize], castagnoli))
	if err := f.Restore(bytes.NewReader(s), 0); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("snapshot: %v", err)
	}
	if err := checked(s, 3); !errors.Is(err, ErrNewer) {
		t.Errorf("checker: %v", err)
	}
}

// checked gives bytes to a Checker in pieces of the given size, and returns the result of its Check.
func checked(b []byte, size int) error {
	c := NewChecker()
	for piece := range slices.Chunk(b, size) {
		c.Write(piece)
	}
	return c.Check()
}

// The Checker and Restore accept and refuse the same bytes, whatever the size of the pieces that they get.
func TestCheckerSeesWhatRestoreSees(t *testing.T) {
	f := New(nil)
	apply(t, f, 1, propose(f, 1000, sampleWrites))
	whole := encode(t, f)
	for size := 1; size < 12; size++ {
		if err := checked(whole, size); err != nil {
			t.Errorf("pieces of %d: %v", size, err)
		}
		if err := New(nil).Restore(iotest.OneByteReader(bytes.NewReader(whole)), 0); err != nil {
			t.Error(err)
		}
		for i := range len(whole) * 8 {
			b := bytes.Clone(whole)
			b[i/8] ^= 1 << (i % 8)
			if err := checked(b, size); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("pieces of %d, bit %d: %v", size, i, err)
			}
		}
		for n := range whole {
			if err := checked(whole[:n], size); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("pieces of %d, cut to %d: %v", size, n, err)
			}
		}
	}
}

// If the reader fails, Restore returns the reader's error. It does not take the failure for the end of a short snapshot.
func TestRestoreReportsReadErrors(t *testing.T) {
	broken := errors.New("disk on fire")
	if err := New(nil).Restore(failingReader{broken}, 0); !errors.Is(err, broken) {
		t.Error(err)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// failingWriter fails after n bytes.
type failingWriter struct{ n int }

var errFull = errors.New("disk full")

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.n -= len(p); w.n < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// If a snapshot cannot be written completely, Encode returns the error of the writer.
func TestEncodeReportsWriteErrors(t *testing.T) {
	f := New(nil)
	apply(t, f, 1, propose(f, 1000, sampleWrites))
	size := len(encode(t, f))
	for n := range size {
		if err := f.Snapshot().Encode(&failingWriter{n}); !errors.Is(err, errFull) {
			t.Fatalf("disk full after %d of %d bytes: %v", n, size, err)
		}
	}
	if err := f.Snapshot().Encode(&failingWriter{size}); err != nil {
		t.Error(err)
	}
}

// An entry that cannot be applied stops the FSM: it applies no later entry, and Failed returns the error.
func TestBadWritesStopTheFSM(t *testing.T) {
	for name, bad := range map[string][]byte{
		"not an entry":      []byte("x"),
		"unknown operation": (&Entry{Writes: []byte{99}}).Append(nil),
		"cut short":         (&Entry{Writes: []byte{2, 5, 'a'}}).Append(nil),
		"no such database":  (&Entry{Writes: []byte{1, 16}}).Append(nil),
	} {
		t.Run(name, func(t *testing.T) {
			f := New(nil)
			good := propose(f, 1000, set("a", "b", 0))
			if _, err := f.Apply(1, bad); err == nil {
				t.Fatal("accepted")
			}
			if f.Failed() == nil {
				t.Error("Failed does not tell")
			}
			if _, err := f.Apply(2, good); err == nil {
				t.Error("went on after the failure")
			}
			if seq, _ := f.Position(); seq != 0 || value(f, "a") != "(none)" {
				t.Error("an entry after the failure took effect")
			}
		})
	}
}

// withChecksum makes the body of a snapshot pass the check, so that fuzzing
// reaches the decoder behind it.
func withChecksum(body []byte) []byte {
	b := append([]byte(snapshotMagic), snapshotVersion)
	b = append(b, body...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func FuzzRestore(f *testing.F) {
	m := New(nil)
	apply(f, m, 1, propose(m, 1000, sampleWrites))
	body := encode(f, m)
	body = body[len(snapshotMagic)+1 : len(body)-4]
	f.Add(body)
	f.Add([]byte{})
	f.Add([]byte{1, 2, 3})
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		b := bytes.Clone(body)
		b[r.IntN(len(b))] = byte(r.Uint32())
		f.Add(b[:r.IntN(len(b)+1)])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m := New(nil)
		if m.Restore(bytes.NewReader(withChecksum(body)), 0) != nil {
			return
		}
		// If Restore has accepted the bytes, a snapshot of the state must be restored to a state with the same snapshot.
		again := encode(t, m)
		if !bytes.Equal(encode(t, restored(t, again)), again) {
			t.Error("the state does not survive its own snapshot")
		}
		apply(t, m, 1, propose(m, 1, sampleWrites))
	})
}

func FuzzDecodeEntry(f *testing.F) {
	e := sampleEntry()
	f.Add(e.Append(nil)[entryHeader:])
	f.Add(propose(New(nil), 1000, sampleWrites)[entryHeader:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		b := append([]byte{entryVersion, 0, 0, 0, 0}, body...)
		binary.LittleEndian.PutUint32(b[1:], crc32.Checksum(body, castagnoli))
		e, err := DecodeEntry(b)
		if err != nil {
			return
		}
		again, err := DecodeEntry(e.Append(nil))
		if err != nil || again.Prev != e.Prev || again.Lease != e.Lease || again.Wall != e.Wall ||
			again.Proposer != e.Proposer || again.Batch != e.Batch ||
			!bytes.Equal(again.Requests, e.Requests) || !bytes.Equal(again.Writes, e.Writes) {
			t.Errorf("%+v became %+v, %v", e, again, err)
		}
		// Whatever the requests and writes of the entry are, Apply applies them or returns an error, and does not panic.
		m := New(&messages{})
		apply(t, m, 1, propose(m, 1, sampleWrites))
		e.Prev = 1
		if _, err := m.Apply(2, e.Append(nil)); err != nil && !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
	})
}

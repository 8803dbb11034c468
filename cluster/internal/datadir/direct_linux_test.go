package datadir

import (
	"bytes"
	"errors"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// newDirect returns an empty segment with room. It is written past the cache, if the
// file system of the test's directory can do that.
func newDirect(t testing.TB) *directFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "segment")
	f, err := SystemDisk().Create(path)
	if err != nil {
		t.Fatal(err)
	}
	d := direct(f, path).(*directFile)
	t.Cleanup(func() { d.Close() })
	if err := d.Reserve(0, roomStep, true); err != nil {
		t.Fatal(err)
	}
	return d
}

// holds checks what is on the disk, as another program would read it.
func holds(t testing.TB, f *directFile, want []byte) {
	t.Helper()
	got, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) < len(want) || !bytes.Equal(got[:len(want)], want) {
		t.Fatal("the file does not hold what was written")
	}
	if rest := got[len(want):]; len(bytes.Trim(rest, "\x00")) > 0 {
		t.Fatal("something stands behind what was written")
	}
}

func (f *directFile) mustAppend(t testing.TB, p []byte, at int) {
	t.Helper()
	if n, err := f.WriteAt(p, int64(at)); err != nil || n != len(p) {
		t.Fatal(n, err)
	}
	if err := f.SyncData(); err != nil {
		t.Fatal(err)
	}
}

// TestDirectFile appends, overwrites, reserves and opens again at random. The file always holds what a plain file would.
func TestDirectFile(t *testing.T) {
	clustertest.Slow(t)
	const files, appends = 8, 200
	rnd := rand.New(rand.NewSource(1))
	past := 0
	for range files {
		f := newDirect(t)
		var want []byte
		grow := func() {
			for int64(len(want))+4*directLimit > f.room {
				if err := f.Reserve(f.room, roomStep, rnd.Intn(2) == 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range appends {
			grow()
			size := 1 + rnd.Intn(9000)
			switch rnd.Intn(40) {
			case 0:
				size = 1 + rnd.Intn(3*directLimit)
			case 1:
				size = blockSize
			case 2: // an append has failed, and other bytes are appended at its place
				want = want[:max(0, len(want)-rnd.Intn(5000))]
				if _, err := f.File.WriteAt(make([]byte, f.room-int64(len(want))), int64(len(want))); err != nil {
					t.Fatal(err)
				}
				f.known = false
			case 3:
				if len(want) > 100 { // a correction
					at := rnd.Intn(len(want) - 100)
					rnd.Read(want[at : at+100])
					f.mustAppend(t, want[at:at+100], at)
				}
			case 4: // another process opens the file
				f.Close()
				again, err := SystemDisk().Open(f.path)
				if err != nil {
					t.Fatal(err)
				}
				f = direct(again, f.path).(*directFile)
				t.Cleanup(func() { f.Close() })
			}
			p := make([]byte, size)
			rnd.Read(p)
			f.mustAppend(t, p, len(want))
			want = append(want, p...)
			if f.past != nil && f.from >= 0 {
				past++
			}
			if rnd.Intn(10) == 0 {
				holds(t, f, want)
			}
		}
		holds(t, f, want)
	}
	if probe := newDirect(t); !probe.open() {
		t.Log("the tests' directory is on a file system that is not written past the cache")
	} else if past < files*appends/2 {
		t.Errorf("%d of %d were written past the cache", past, files*appends)
	}
}

// TestDirectFileKeepsNoLongBuffer: a file keeps no long buffer after a long append, because segments stay open when they are
// full.
func TestDirectFileKeepsNoLongBuffer(t *testing.T) {
	f := newDirect(t)
	if err := f.Reserve(roomStep, 8*roomStep, false); err != nil {
		t.Fatal(err)
	}
	var want []byte
	for _, size := range []int{100, 3 * bufferLimit, 100, directLimit + 1, 5000, bufferLimit - 5000} {
		p := bytes.Repeat([]byte{byte(size)}, size)
		f.mustAppend(t, p, len(want))
		want = append(want, p...)
		if cap(f.buf) > bufferLimit {
			t.Errorf("after %d bytes it keeps a buffer of %d", size, cap(f.buf))
		}
	}
	holds(t, f, want)
}

// breakingPast fails in one of the next writes, after it has written a part of the bytes.
type breakingPast struct {
	pastCache
	sound int // number of writes that still succeed
	err   error
}

func (f *breakingPast) WriteAt(p []byte, at int64) (int, error) {
	if f.sound--; f.sound >= 0 {
		return f.pastCache.WriteAt(p, at)
	}
	n, _ := f.pastCache.WriteAt(p[:len(p)/2&^(blockSize-1)], at)
	return n, f.err
}

// After a long append has failed in the middle, an append at the same place is complete, and earlier content unchanged.
func TestDirectFileFailsInTheMiddle(t *testing.T) {
	for _, fault := range []error{syscall.EIO, syscall.ENOSPC, syscall.EINVAL} {
		for sound := range 4 {
			f := newDirect(t)
			if err := f.Reserve(roomStep, 12*roomStep, false); err != nil {
				t.Fatal(err)
			}
			if !f.open() {
				t.Skip("the tests' directory is on a file system that is not written past the cache")
			}
			want := someData(1, 5000)
			f.mustAppend(t, want, 0)
			disk := f.past
			f.past = &breakingPast{disk, sound, fault}
			broken := someData(2, 3*directLimit+100)
			n, err := f.WriteAt(broken, int64(len(want)))
			if err == nil {
				err = f.SyncData()
			}
			switch {
			case err == nil && n == len(broken) && fault == syscall.EINVAL: // given up, and written by way of the cache
				want = append(want, broken...)
			case errors.Is(err, fault):
				f.past = disk
				again := someData(3, len(broken))
				f.mustAppend(t, again, len(want))
				want = append(want, again...)
			default:
				t.Fatalf("%v after %d writes: %d bytes, %v", fault, sound, n, err)
			}
			f.mustAppend(t, []byte("end"), len(want))
			holds(t, f, append(want, "end"...))
		}
	}
}

// failingPast fails as a file system or a disk would.
type failingPast struct {
	err    error
	closed bool
}

func (f *failingPast) WriteAt(p []byte, _ int64) (int, error) {
	if f.err == nil {
		return len(p), nil // the file does not change, and the caller gets no error
	}
	return 0, f.err
}
func (f *failingPast) Close() error { f.closed = true; return nil }

// If the file system refuses direct writes, or readers do not see them, everything goes through the cache, and no data is missing.
func TestDirectFileGivesUp(t *testing.T) {
	for _, err := range []error{syscall.EINVAL, syscall.EOPNOTSUPP, nil} {
		f := newDirect(t)
		out := &failingPast{err: err}
		f.past, f.tried = out, true
		f.mustAppend(t, []byte("first"), 0)
		f.mustAppend(t, []byte("second"), 5)
		holds(t, f, []byte("firstsecond"))
		if f.past != nil || !out.closed {
			t.Errorf("%v: tried again", err)
		}

		f = newDirect(t) // in the middle of an append
		if err := f.Reserve(roomStep, 2*roomStep, false); err != nil {
			t.Fatal(err)
		}
		long := bytes.Repeat([]byte("long"), directLimit/2)
		out = &failingPast{err: err}
		f.past, f.tried = out, true
		f.mustAppend(t, long, 0)
		f.mustAppend(t, []byte("end"), len(long))
		holds(t, f, append(long, "end"...))
		if f.past != nil || !out.closed {
			t.Errorf("%v: tried again", err)
		}
	}
}

// TestDirectFileTellsErrors: an error of the disk is returned, and the same place can be
// written again.
func TestDirectFileTellsErrors(t *testing.T) {
	f := newDirect(t)
	f.mustAppend(t, []byte("first"), 0)
	sound := f.past
	f.past, f.tried = &failingPast{err: syscall.EIO}, true
	if _, err := f.WriteAt([]byte("second"), 5); err != nil {
		t.Fatal(err)
	}
	if err := f.SyncData(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	f.past = sound
	f.mustAppend(t, []byte("third"), 5)
	f.mustAppend(t, []byte("fourth"), 10)
	holds(t, f, []byte("firstthirdfourth"))
}

// TestDirectFileAfterACorrection: bytes are overwritten through the cache. The next append must not restore the earlier bytes.
func TestDirectFileAfterACorrection(t *testing.T) {
	f := newDirect(t)
	f.mustAppend(t, []byte("first"), 0)
	f.mustAppend(t, []byte("FIRST"), 0)
	f.mustAppend(t, []byte("second"), 5)
	holds(t, f, []byte("FIRSTsecond"))
}

// TestDirectFileWithReaders: what was synced is read while more is appended to the same block.
func TestDirectFileWithReaders(t *testing.T) {
	clustertest.Slow(t)
	f := newDirect(t)
	const records, size = 3000, 80
	record := func(i int) []byte { return bytes.Repeat([]byte{byte(1 + i%250)}, size) }
	var synced atomic.Int64
	var wg sync.WaitGroup
	for reader := range 2 {
		wg.Go(func() {
			rnd := rand.New(rand.NewSource(int64(reader)))
			got := make([]byte, size)
			for n := 0; n < records; {
				if n = int(synced.Load()); n == 0 {
					continue
				}
				i := max(0, n-1-rnd.Intn(60))
				if _, err := f.ReadAt(got, int64(i*size)); err != nil || !bytes.Equal(got, record(i)) {
					t.Errorf("record %d of %d: %v, begins with %d", i, n, err, got[0])
					return
				}
			}
		})
	}
	for i := range records {
		f.mustAppend(t, record(i), i*size)
		synced.Store(int64(i + 1))
	}
	wg.Wait()
}

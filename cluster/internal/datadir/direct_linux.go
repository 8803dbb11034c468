package datadir

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// directFile is a segment of the log that is written past the kernel's page cache, in
// blocks. By way of the cache each batch is copied to pages that are marked, found again
// and written back by the sync, which took more CPU time than the disk took time.
//
// Only what is appended to room that holds zeros is written so. All else goes by way of
// the cache, and all of it does on a file system that cannot do otherwise. What is
// appended is written by the sync at the latest, and may be read after it.
type directFile struct {
	File // by way of the cache
	path string

	past   pastCache // nil: not opened yet, or given up
	tried  bool      // to open it
	proved bool      // what was written past the cache is read by way of it

	room int64 // how long the file is
	// zeros is from where on there is nothing but zeros, if that is known.
	zeros int64
	known bool

	// buf holds what stands in the file at from, which begins a block: what is in use of
	// the last block that was written, and what waits for the sync.
	buf     []byte
	from    int64
	waiting bool
}

// pastCache is a file that is written past the cache.
type pastCache interface {
	io.WriterAt
	io.Closer
}

const (
	// blockSize is a multiple of what disks write at a time.
	blockSize = 4096
	// directLimit is how much is written past the cache at once, bufferLimit how long a
	// buffer is at most that a file keeps.
	directLimit = 256 << 10
	bufferLimit = 64 << 10
)

// longBuffers are those for more than that: segments that are full stay open to be read.
var longBuffers = sync.Pool{New: func() any { return unsafe.SliceData(alignedBuffer(directLimit)) }}

// direct returns a file that is appended to past the cache, if f is one of the machine's.
func direct(f File, path string) File {
	sys, ok := f.(systemFile)
	if !ok {
		return f
	}
	d := &directFile{File: f, path: path}
	if info, err := sys.Stat(); err == nil { // else there is no room for what is appended past the cache
		d.room = info.Size()
	}
	return d
}

// Reserve implements file.
func (f *directFile) Reserve(from, length int64, fill bool) error {
	err := f.File.Reserve(from, length, fill)
	if err == nil && from <= f.room {
		f.room = max(f.room, from+length)
	}
	return err
}

// WriteAt implements file.
func (f *directFile) WriteAt(p []byte, at int64) (int, error) {
	if f.waiting {
		if err := f.SyncData(); err != nil {
			return 0, err
		}
	}
	if !f.appends(int64(len(p)), at) {
		f.forget()
		return f.File.WriteAt(p, at)
	}
	for done := 0; ; {
		n := min(len(p)-done, directLimit-len(f.buf))
		f.buf = append(f.buf, p[done:done+n]...)
		done += n
		f.zeros = at + int64(done)
		if done == len(p) {
			f.waiting = true
			return done, nil
		}
		if err := f.writePast(); err != nil {
			f.forget()
			return 0, err
		}
		if f.past == nil {
			f.forget()
			n, err := f.File.WriteAt(p[done:], at+int64(done))
			return done + n, err
		}
	}
}

// appends reports whether n bytes can be appended past the cache, and prepares that.
func (f *directFile) appends(n, at int64) bool {
	if roundUp(at+n) > f.room || !f.open() || !f.hasZeros(at) {
		return false
	}
	if f.buf == nil {
		f.buf = alignedBuffer(blockSize)[:0]
		f.from = -1
	}
	if f.from < 0 || f.from+int64(len(f.buf)) != at {
		f.from = at &^ (blockSize - 1)
		f.buf = f.buf[:at-f.from]
		if _, err := f.File.ReadAt(f.buf, f.from); err != nil {
			f.from = -1
			return false
		}
	}
	switch need := min(roundUp(int64(len(f.buf))+n), directLimit); {
	case need <= int64(cap(f.buf)):
	case need <= bufferLimit:
		f.buf = append(alignedBuffer(need)[:0], f.buf...)
	default:
		f.buf = append(unsafe.Slice(longBuffers.Get().(*byte), directLimit)[:0], f.buf...)
	}
	return true
}

// open opens the file once more.
func (f *directFile) open() bool {
	if !f.tried {
		f.tried = true
		if out, err := os.OpenFile(f.path, os.O_WRONLY|syscall.O_DIRECT, 0); err == nil { // else the file system has no such thing
			f.past = out
		}
	}
	return f.past != nil
}

// hasZeros reports whether there is nothing but zeros from a place on.
func (f *directFile) hasZeros(at int64) bool {
	if f.known {
		return at >= f.zeros
	}
	const step = 32 << 10
	chunk, none := make([]byte, step), make([]byte, step)
	for from := at; from < f.room; from += step {
		n := min(step, f.room-from)
		if _, err := f.File.ReadAt(chunk[:n], from); err != nil || !bytes.Equal(chunk[:n], none[:n]) {
			return false
		}
	}
	f.zeros, f.known = at, true
	return true
}

// SyncData implements file.
func (f *directFile) SyncData() error {
	var err error
	if f.waiting {
		f.waiting = false
		err = f.writePast()
	}
	if err == nil {
		err = f.File.SyncData()
	}
	if err != nil {
		f.forget() // nobody can say what stands there
	}
	f.shrink()
	return err
}

// shrink keeps no long buffer. Less than a block is in use, or nothing that counts.
func (f *directFile) shrink() {
	if cap(f.buf) > bufferLimit {
		long := f.buf
		f.buf = append(alignedBuffer(blockSize)[:0], long[:min(len(long), blockSize)]...)
		longBuffers.Put(unsafe.SliceData(long))
	}
}

// forget has the file looked at before it is appended to again.
func (f *directFile) forget() { f.known, f.from = false, -1 }

// writePast writes what waits.
func (f *directFile) writePast() error {
	used := len(f.buf)
	blocks := f.buf[:roundUp(int64(used))]
	clear(blocks[used:])
	_, err := f.past.WriteAt(blocks, f.from)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) {
		return f.giveUp()
	}
	if err != nil {
		return err
	}
	if !f.proved {
		seen := make([]byte, len(blocks))
		if _, err := f.File.ReadAt(seen, f.from); err != nil || !bytes.Equal(seen, blocks) {
			return f.giveUp()
		}
		f.proved = true
	}
	last := used &^ (blockSize - 1)
	f.from += int64(last)
	f.buf = f.buf[:copy(f.buf, f.buf[last:used])]
	return nil
}

// giveUp writes what waits by way of the cache, as all that will come: this file system
// takes it only so, or does not show what was written past it.
func (f *directFile) giveUp() error {
	err := f.past.Close()
	f.past = nil
	_, err2 := f.File.WriteAt(f.buf, f.from)
	f.buf = nil
	return errors.Join(err, err2)
}

// Sync implements file.
func (f *directFile) Sync() error {
	if err := f.SyncData(); err != nil {
		return err
	}
	return f.File.Sync()
}

// Close implements file. What was not synced is lost.
func (f *directFile) Close() error {
	err := f.File.Close()
	if f.past != nil {
		err = errors.Join(err, f.past.Close())
	}
	return err
}

func roundUp(n int64) int64 { return (n + blockSize - 1) &^ (blockSize - 1) }

// alignedBuffer is memory that a disk can be written from.
func alignedBuffer(size int64) []byte {
	b := make([]byte, size+blockSize)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (blockSize - 1)
	return b[skip : int64(skip)+size : int64(skip)+size]
}

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

// directFile is a segment of the log that is written in blocks past the kernel's page cache (O_DIRECT), which saves CPU time
// (docs/performance-history.md). Only appends to reserved room that holds zeros go past the cache. Such an append waits in memory until
// the next write or sync, and cannot be read before that.
type directFile struct {
	File // reads and writes through the cache
	path string

	past   pastCache // the same file, opened with O_DIRECT; nil: not opened yet, could not be opened, or given up
	tried  bool      // the method open has tried to open past
	proved bool      // a read through the cache has returned the bytes that writePast wrote

	room int64 // the length of the file
	// zeros is the offset from which on the file holds only zeros. It is valid if known is true.
	zeros int64
	known bool

	// buf holds the end of the content from the block boundary f.from on: the used part of the last written block, and the unwritten
	// appends.
	buf     []byte
	from    int64 // -1: buf does not hold the end of the file
	waiting bool  // buf has appends that are not written yet
}

// pastCache is a file that is written past the cache.
type pastCache interface {
	io.WriterAt
	io.Closer
}

const (
	// blockSize is a multiple of the sector size of disks.
	blockSize = 4096
	// directLimit bounds the bytes of one write past the cache. bufferLimit bounds the buffer that a file keeps after a sync.
	directLimit = 256 << 10
	bufferLimit = 64 << 10
)

// longBuffers holds buffers of directLimit bytes. No file keeps such a buffer between a sync and the next append.
var longBuffers = sync.Pool{New: func() any { return unsafe.SliceData(alignedBuffer(directLimit)) }}

// direct returns a file whose appends go past the cache if f is a real file of the system. Otherwise it returns f itself.
func direct(f File, path string) File {
	sys, ok := f.(systemFile)
	if !ok {
		return f
	}
	d := &directFile{File: f, path: path}
	if info, err := sys.Stat(); err == nil { // else room stays 0, so writes go through the cache
		d.room = info.Size()
	}
	return d
}

// Reserve implements File.
func (f *directFile) Reserve(from, length int64, fill bool) error {
	err := f.File.Reserve(from, length, fill)
	if err == nil && from <= f.room {
		f.room = max(f.room, from+length)
	}
	return err
}

// WriteAt implements File.
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

// appends reports whether a write is an append that can go past the cache. If so, it prepares buf.
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

// open opens the file a second time, with O_DIRECT; it reports whether that has worked.
func (f *directFile) open() bool {
	if !f.tried {
		f.tried = true
		if out, err := os.OpenFile(f.path, os.O_WRONLY|syscall.O_DIRECT, 0); err == nil { // else the file system has no O_DIRECT
			f.past = out
		}
	}
	return f.past != nil
}

// hasZeros reports whether the file holds only zeros from the offset at on.
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

// SyncData implements File.
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
		f.forget() // what the file holds is unknown now
	}
	f.shrink()
	return err
}

// shrink returns a long buffer to longBuffers. Only the end of a sync may call it, because only the last block is kept.
func (f *directFile) shrink() {
	if cap(f.buf) > bufferLimit {
		long := f.buf
		f.buf = append(alignedBuffer(blockSize)[:0], long[:min(len(long), blockSize)]...)
		longBuffers.Put(unsafe.SliceData(long))
	}
}

// forget drops what f knows about the end of the file, so the next append reads the file again first.
func (f *directFile) forget() { f.known, f.from = false, -1 }

// writePast writes buf past the cache. After that, buf has only the unfinished last block.
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

// giveUp writes buf and everything later through the cache: the file system refuses direct writes, or readers do not see them.
func (f *directFile) giveUp() error {
	err := f.past.Close()
	f.past = nil
	_, err2 := f.File.WriteAt(f.buf, f.from)
	f.buf = nil
	return errors.Join(err, err2)
}

// Sync implements File.
func (f *directFile) Sync() error {
	if err := f.SyncData(); err != nil {
		return err
	}
	return f.File.Sync()
}

// Close implements File. The appends in buf that are not written yet are lost.
func (f *directFile) Close() error {
	err := f.File.Close()
	if f.past != nil {
		err = errors.Join(err, f.past.Close())
	}
	return err
}

func roundUp(n int64) int64 { return (n + blockSize - 1) &^ (blockSize - 1) }

// alignedBuffer returns a buffer that begins at a block boundary in memory, as O_DIRECT needs.
func alignedBuffer(size int64) []byte {
	b := make([]byte, size+blockSize)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (blockSize - 1)
	return b[skip : int64(skip)+size : int64(skip)+size]
}

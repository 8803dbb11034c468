package datadir

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft-wal/types"
)

// raft-wal writes a segment as a header and then frames. A frame begins with its type, three zero bytes, and the length of its content.
// A commit frame has no content: instead of the length it has a checksum of everything since the commit frame before it.
const (
	segmentHeader = 32
	frameHeader   = 8
	frameEntry    = 1
	frameIndex    = 2
	frameCommit   = 3
)

// raft-wal compares only the last of these checksums. Only the last write can be torn, so Open compares all: an earlier mismatch is
// damage.

// commit is a commit frame, with what the segment holds up to it.
type commit struct {
	end     int64  // offset of the end of the frame
	entries uint64 // number of entries before it
	index   int64  // offset of the last index frame before it; -1 if there is none
	whole   bool   // the checksum is that of the bytes since the commit before it
}

// last returns the index of the last entry before c in a segment whose first entry has the index base.
func (c commit) last(base uint64) uint64 { return base + c.entries - 1 }

// commits passes the commits of a segment to the function each, until that function returns false, or until bytes are no frame.
func commits(r io.Reader, each func(c commit) bool) error {
	in := bufio.NewReaderSize(r, 256<<10)
	c, at := commit{index: -1}, int64(segmentHeader)
	sum, err := sumOf(in, 0, segmentHeader)
	for err == nil {
		var head []byte
		if head, err = in.Peek(frameHeader); err != nil {
			break
		}
		kind, word := head[0], binary.LittleEndian.Uint32(head[4:])
		size := int64(frameHeader)
		switch kind {
		case frameEntry, frameIndex:
			size += (int64(word) + 7) &^ 7
		case frameCommit:
			c.end, c.whole = at+size, sum == word
			if !each(c) {
				return nil
			}
		default:
			return nil
		}
		if kind == frameEntry {
			c.entries++
		}
		if kind == frameIndex {
			c.index = at
		}
		if sum, err = sumOf(in, sum, size); kind == frameCommit {
			sum = 0
		}
		at += size
	}
	if err == io.EOF {
		err = nil
	}
	return err
}

// sumOf adds the next n bytes of the reader in to the checksum sum.
func sumOf(in *bufio.Reader, sum uint32, n int64) (uint32, error) {
	for n > 0 {
		b, err := in.Peek(int(min(n, int64(in.Size()))))
		if len(b) == 0 {
			return sum, err
		}
		sum = crc32.Update(sum, markTable, b)
		n -= int64(len(b))
		if _, err := in.Discard(len(b)); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

func damagedBehind(path string, base uint64, c commit) error {
	return fmt.Errorf("%s: what follows entry %d is not what was written", filepath.Base(path), c.last(base))
}

// checkFull fails if a full segment, up to its index, is not what was written. Version 0.1.0 left torn writes behind the index.
func checkFull(path string, s types.SegmentInfo) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	var good commit
	full := false
	err = commits(f, func(c commit) bool {
		if c.whole {
			good = c
			full = c.index+frameHeader == int64(s.IndexStart) && c.last(s.BaseIndex) >= s.MaxIndex
		}
		return c.whole && !full
	})
	if err == nil && !full {
		err = damagedBehind(path, s.BaseIndex, good)
	}
	return err
}

// checkTail returns the last whole commit of the newest segment; what follows is a torn write. base is the index of the first entry.
// checkTail fails if a commit that is not whole is damaged: a later commit is whole, or this node has acknowledged its entries, up to
// reached (math.MaxUint64: unknown).
func checkTail(path string, base, reached uint64) (good commit, err error) {
	f, err := os.Open(path)
	if err != nil {
		return good, err
	}
	defer f.Close() // only read
	good = commit{end: segmentHeader, index: -1}
	torn, damaged := false, false
	err = commits(f, func(c commit) bool {
		acknowledged := c.entries > good.entries && good.last(base) < reached && reached != math.MaxUint64
		damaged = torn && c.whole || !c.whole && acknowledged
		if torn = torn || !c.whole; !torn {
			good = c
		}
		return !damaged
	})
	if err == nil && damaged {
		err = damagedBehind(path, base, good)
	}
	return good, err
}

// clearTail overwrites the remains of a torn write with zeros, from the offset end on. Remains behind a later torn write would make
// raft-wal trust its commit. Remains of an index would make raft-wal take the segment for full.
func clearTail(d Files, path string, end int64) error {
	left, err := leftFrom(path, end)
	if err != nil || left == 0 {
		return err
	}
	if left > maxLeft {
		return fmt.Errorf("%s: %d bytes follow its last entry, and a torn write leaves at most %d", filepath.Base(path), left, maxLeft)
	}
	f, err := d.Open(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, left), end)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

const (
	// leftPiece is the size in bytes of one read of leftFrom.
	leftPiece = 64 << 10
	// maxLeft bounds the remains of a torn write. One write has at most a segment and the entry that fills it.
	maxLeft = 1 << 30
)

// leftFrom returns how many bytes a file has from the offset end on, without the zeros at its end.
func leftFrom(path string, end int64) (left int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close() // only read
	in, buf := io.NewSectionReader(f, end, math.MaxInt64-end), make([]byte, leftPiece)
	for at := int64(0); ; {
		n, err := io.ReadFull(in, buf)
		if end := len(bytes.TrimRight(buf[:n], "\x00")); end > 0 {
			left = at + int64(end)
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return left, nil
		case err != nil:
			return left, err
		}
	}
}

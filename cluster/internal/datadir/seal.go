package datadir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
)

// raft-wal writes a segment as a header and then frames. A frame begins with its type, three zero
// bytes, and the length of its content. A commit frame has no content: instead of the length it has
// a checksum of everything since the commit frame before it.
const (
	segmentHeader = 32
	frameHeader   = 8
	frameEntry    = 1
	frameIndex    = 2
	frameCommit   = 3
)

// unseal opens a segment again that a torn write has half closed. With the write that fills a
// segment, raft-wal also writes an index of the segment. If the power fails during this write,
// raft-wal drops the write at the next start. But because of the index it takes the segment for
// closed, and reads the entries by that index, which may be incomplete.
func unseal(d Files, path string) error {
	return wipe(d, path, func(b []byte) (from, to int) {
		end, index := believed(b)
		if index < end {
			return 0, 0
		}
		return index, index + frameHeader // raft-wal stops reading at zeros
	})
}

// clearTail overwrites with zeros what a torn write has left behind the last valid commit. raft-wal's
// next write might cover only a part of that. raft-wal also trusts a commit without a check if
// entries follow it: if the next write is torn, too, the old remains may look like such entries.
func clearTail(d Files, path string) error {
	return wipe(d, path, func(b []byte) (from, to int) {
		end, _ := believed(b)
		return end, len(bytes.TrimRight(b, "\x00"))
	})
}

// wipe calls the function find with the content of a segment, and writes zeros over the range of the segment
// that the function returns. It does nothing if the range is empty, or if the segment has no file because
// nothing was written to it.
func wipe(d Files, path string, find func(b []byte) (from, to int)) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	from, to := find(b)
	if from >= to {
		return nil
	}
	f, err := d.Open(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, to-from), int64(from))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// believed returns the end of the last commit that raft-wal takes for valid: the last commit in
// the file if entries follow it or its checksum is right, else the commit before it. index is
// the offset of the last index frame; -1 if there is none.
func believed(b []byte) (end, index int) {
	last, before := segmentHeader, segmentHeader // end of the last commit, and of the commit before it
	from := 0                                    // start of the bytes that the next commit covers
	index, whole := -1, true
	for at := segmentHeader; at+frameHeader <= len(b); {
		word := binary.LittleEndian.Uint32(b[at+4:])
		next := at + frameHeader
		switch b[at] {
		case frameEntry:
			whole = true
		case frameIndex:
			index = at
		case frameCommit:
			whole = crc32.Checksum(b[from:at], markTable) == word
			last, before, from, word = next, last, next, 0
		default:
			word, next = 0, len(b)
		}
		at = next + (int(word)+7)&^7
	}
	if !whole {
		last = before
	}
	return last, index
}

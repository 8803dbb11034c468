package datadir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
)

// raft-wal's frames in a segment, behind its header: a type, three bytes of zeros, and
// the length of what follows or, of a commit, the checksum of what came since the last.
const (
	segmentHeader = 32
	frameHeader   = 8
	frameEntry    = 1
	frameIndex    = 2
	frameCommit   = 3
)

// unseal makes a segment that a torn write has half closed one that is open. With the
// write that fills a segment raft-wal writes an index. If the power fails meanwhile it
// drops that write at the next start, but takes the segment for closed, and reads its
// entries by an index of which a part is missing.
func unseal(d Files, path string) error {
	return wipe(d, path, func(b []byte) (from, to int) {
		end, index := believed(b)
		if index < end {
			return 0, 0
		}
		return index, index + frameHeader // reading ends here from now on: before the index, behind what counts
	})
}

// clearTail overwrites what a torn write has left behind the last one that counts. raft-wal
// would write over a part of it, and takes a commit for good, unchecked, if entries come
// behind it: what is left of one torn write may look like these to the next.
func clearTail(d Files, path string) error {
	return wipe(d, path, func(b []byte) (from, to int) {
		end, _ := believed(b)
		return end, len(bytes.TrimRight(b, "\x00"))
	})
}

// wipe overwrites with zeros what find says of a segment, if that is anything; there is
// none if nothing was written to it.
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

// believed finds the end of the last commit that raft-wal believes in: the last one of
// all, if entries come after it or its checksum is right. index is where the last index
// is, -1 if there is none.
func believed(b []byte) (end, index int) {
	last, before := segmentHeader, segmentHeader // where the commits end
	from := 0                                    // where what the last one covers begins
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

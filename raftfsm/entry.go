package raftfsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/lockstep-io/lockstep/store/codec"
)

// An entry in the log. Integers are unsigned varints unless a width is given.
//
//	+---------+----------+------------------------------------------------+
//	| version | crc32c   | body                                           |
//	| 1 byte  | 4 bytes  |                                                |
//	+---------+----------+------------------------------------------------+
//	body:
//	+------+-------+------+----------+-------+--------------+-------------+
//	| prev | lease | wall | proposer | batch | n, requests  | write set   |
//	|      | ms    | µs   |          |       | n bytes      | to the end  |
//	+------+-------+------+----------+-------+--------------+-------------+
//
// The checksum is that of the body. It is needed because a log store does not verify the entries that it reads: a flipped bit must
// stop a node, and must not change a lock. Every version of the format begins with the version byte and the checksum. answers.go
// describes the requests section. Version 2 may hold a write that version 1 does not know (store/writeset.go); an entry has the
// lowest version that can express its writes.
const (
	entryVersion = 2
	entryHeader  = 1 + 4
)

// Entry is a decoded log entry.
type Entry struct {
	Prev     uint64 // sequence number of the state on which the entry was evaluated
	Lease    int64  // lease clock at the evaluation in ms, minus the lateness of replies (cluster/grants.go)
	Wall     int64  // Unix time of the evaluation in µs
	Proposer uint64 // random number that the proposing node drew when it started
	Batch    uint64 // number of the batch, counted by the proposer since its start
	Requests []byte // encoded by AppendAnswers; empty if the entry keeps no replies
	Writes   []byte // an encoded store.WriteSet
	Version  byte   // version that the writes need; 0 means 1
}

// ErrCorrupt is the error for an entry or snapshot with damaged bytes.
var ErrCorrupt = errors.New("raftfsm: corrupt data")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Append appends the encoding of e to buf.
func (e *Entry) Append(buf []byte) []byte {
	start := len(buf)
	buf = append(buf, max(e.Version, 1), 0, 0, 0, 0)
	buf = binary.AppendUvarint(buf, e.Prev)
	buf = binary.AppendUvarint(buf, uint64(e.Lease))
	buf = binary.AppendUvarint(buf, uint64(e.Wall))
	buf = binary.AppendUvarint(buf, e.Proposer)
	buf = binary.AppendUvarint(buf, e.Batch)
	buf = codec.AppendStr(buf, e.Requests)
	buf = append(buf, e.Writes...)
	sum := crc32.Checksum(buf[start+entryHeader:], castagnoli)
	binary.LittleEndian.PutUint32(buf[start+1:], sum)
	return buf
}

// DecodeEntry decodes an entry. Its slices point into b.
func DecodeEntry(b []byte) (Entry, error) {
	if len(b) < entryHeader {
		return Entry{}, fmt.Errorf("%w: an entry of %d bytes", ErrCorrupt, len(b))
	}
	body := b[entryHeader:]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[1:]) {
		return Entry{}, fmt.Errorf("%w: entry checksum does not match", ErrCorrupt)
	}
	switch v := b[0]; {
	case v > entryVersion:
		return Entry{}, versionError{"entry", v, entryVersion}
	case v == 0:
		return Entry{}, fmt.Errorf("%w: entry version 0", ErrCorrupt)
	}
	r := codec.Reader{B: body}
	var fields [5]uint64
	for i := range fields {
		fields[i] = r.Uvarint()
	}
	requests := r.Bytes()
	if r.Bad {
		return Entry{}, fmt.Errorf("%w: entry is cut short", ErrCorrupt)
	}
	return Entry{
		Prev: fields[0], Lease: int64(fields[1]), Wall: int64(fields[2]),
		Proposer: fields[3], Batch: fields[4],
		Requests: requests, Writes: r.B, Version: b[0],
	}, nil
}

package raftfsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"

	"lockstep/store"
)

// A snapshot:
//
//	+------------+---------+-----+-------+------+------------+---------------+----------+
//	| "LOCKSTEP" | version | seq | lease | wall | answers    | store records | crc32c   |
//	| 8 bytes    | 1 byte  | varints            | answers.go | store package | 4 bytes  |
//	+------------+---------+-----+-------+------+------------+---------------+----------+
//
// The checksum covers everything before it. The log index is not inside: Raft
// keeps it beside the file, and the bytes depend on the history alone. Version 1
// has no answers.
const (
	snapshotMagic   = "LOCKSTEP"
	snapshotVersion = 2
)

// Snapshot is the state at one instant. It is taken in O(1) and written while
// the FSM goes on.
type Snapshot struct {
	store *store.Snapshot
	seq   uint64
	lease int64
	wall  int64
	done  []byte // the answers, encoded
	index uint64
}

// Snapshot freezes the present state.
func (f *FSM) Snapshot() *Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &Snapshot{store: f.store.Snapshot(), seq: f.seq, lease: f.lease, wall: f.wall, done: f.done.append(nil), index: f.index}
}

// Index is the log index of the last entry in the snapshot.
func (s *Snapshot) Index() uint64 { return s.index }

// Sequence is the number of entries accepted up to the snapshot.
func (s *Snapshot) Sequence() uint64 { return s.seq }

// Encode writes the snapshot.
func (s *Snapshot) Encode(w io.Writer) error {
	sum := crc32.New(castagnoli)
	out := io.MultiWriter(w, sum)
	head := append([]byte(snapshotMagic), snapshotVersion)
	head = binary.AppendUvarint(head, s.seq)
	head = binary.AppendUvarint(head, uint64(s.lease))
	head = binary.AppendUvarint(head, uint64(s.wall))
	head = append(head, s.done...)
	if _, err := out.Write(head); err != nil {
		return err
	}
	if err := s.store.Encode(out); err != nil {
		return err
	}
	return binary.Write(w, binary.LittleEndian, sum.Sum32())
}

// Hash returns the SHA-256 of the snapshot's bytes in hexadecimal. Nodes at
// the same log index must agree on it.
func (s *Snapshot) Hash() (string, error) {
	h := sha256.New()
	if err := s.Encode(h); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Restore replaces the state by a snapshot. If the snapshot is damaged the
// state stays as it was.
func (f *FSM) Restore(r io.Reader) error {
	// Read first, check, then decode: nothing is built from bytes that have
	// not been verified.
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	minimum := len(snapshotMagic) + 1 + 4
	if len(data) < minimum || string(data[:len(snapshotMagic)]) != snapshotMagic {
		return fmt.Errorf("%w: not a lockstep snapshot", ErrCorrupt)
	}
	v := data[len(snapshotMagic)]
	if v == 0 || v > snapshotVersion {
		return fmt.Errorf("%w: snapshot version %d, this program knows %d: upgrade it", ErrCorrupt, v, snapshotVersion)
	}
	body, tail := data[:len(data)-4], data[len(data)-4:]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(tail) {
		return fmt.Errorf("%w: snapshot checksum does not match", ErrCorrupt)
	}
	rest := body[len(snapshotMagic)+1:]
	var fields [3]uint64
	for i := range fields {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			return fmt.Errorf("%w: snapshot is cut short", ErrCorrupt)
		}
		fields[i], rest = n, rest[size:]
	}
	var done Answers
	if v > 1 {
		if rest, err = done.readSnapshot(rest); err != nil {
			return err
		}
	}
	s, err := store.Restore(bytes.NewReader(rest))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store, f.seq, f.lease, f.wall, f.done = s, fields[0], int64(fields[1]), int64(fields[2]), done
	if f.keys != nil {
		f.keys.Replaced()
	}
	f.tellAccounts(s.AccountsVersion())
	return nil
}

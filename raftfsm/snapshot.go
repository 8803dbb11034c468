package raftfsm

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/codec"
)

// A snapshot:
//
//	+------------+---------+-----+-------+------+------------+---------------+----------+
//	| "LOCKSTEP" | version | seq | lease | wall | answers    | store records | crc32c   |
//	| 8 bytes    | 1 byte  | varints            | answers.go | store package | 4 bytes  |
//	+------------+---------+-----+-------+------+------------+---------------+----------+
//
// The checksum covers everything before it. The log index is not in the snapshot, because Raft stores it beside the snapshot.
// So the bytes depend on the accepted entries alone.
//
// Format version 1 has no answers. Format version 3 can express what lockstep 0.1.0 does not know (store.Snapshot.Newer). If
// format version 2 can express a state, its snapshot has that version, and nodes of lockstep 0.1.0 accept it. Otherwise it has
// format version 3, and they refuse it.
const (
	snapshotMagic   = "LOCKSTEP"
	snapshotVersion = 3
	snapshotOlder   = 2 // the format version that lockstep 0.1.0 writes
)

// Snapshot is the state at one instant. It is cheap to take, and may be encoded while the FSM applies further entries.
type Snapshot struct {
	store *store.Snapshot
	seq   uint64
	lease int64
	wall  int64
	done  *Answers
	index uint64
}

// Snapshot returns the current state.
func (f *FSM) Snapshot() *Snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &Snapshot{store: f.store.Snapshot(), seq: f.seq, lease: f.lease, wall: f.wall, done: f.done.clone(), index: f.index}
}

// Index returns the log index of the last entry in the snapshot.
func (s *Snapshot) Index() uint64 { return s.index }

// Sequence returns the number of entries accepted up to the snapshot.
func (s *Snapshot) Sequence() uint64 { return s.seq }

// Accounts returns the users of the state.
func (s *Snapshot) Accounts() store.Accounts { return s.store.Accounts() }

// Encode writes the snapshot.
func (s *Snapshot) Encode(w io.Writer) error {
	sum := crc32.New(castagnoli)
	out := io.MultiWriter(w, sum)
	version := byte(snapshotOlder)
	if s.store.Newer() {
		version = snapshotVersion
	}
	head := append([]byte(snapshotMagic), version)
	head = binary.AppendUvarint(head, s.seq)
	head = binary.AppendUvarint(head, uint64(s.lease))
	head = binary.AppendUvarint(head, uint64(s.wall))
	head = s.done.append(head)
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

// Restore replaces the state by a snapshot. index is the log index of the last entry in the snapshot. On an error the state stays
// unchanged.
func (f *FSM) Restore(in io.Reader, index uint64) error {
	next, err := readSnapshot(in, true, (*state).build)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store, f.seq, f.lease, f.wall, f.done, f.index = next.store, next.seq, next.lease, next.wall, next.done, index
	f.store.Brake(f.brake)
	f.jumps++
	f.measure()
	if f.keys != nil {
		f.keys.Missed()
	}
	f.tellAccounts(f.store.AccountsVersion())
	if f.locks != nil {
		f.locks.Lost(f.seq, store.Time{Lease: f.lease, Wall: f.wall})
	}
	return nil
}

// state is the content of a snapshot.
type state struct {
	store *store.Store
	seq   uint64
	lease int64
	wall  int64
	done  Answers
	keys  int // number of keys in all databases
}

// readSnapshot reads a snapshot; contents reads what follows the numbers at the head. ends is false if the input may never end.
func readSnapshot(in io.Reader, ends bool, contents func(s *state, r *codec.Stream, version byte) error) (*state, error) {
	body := newSealed(in, crc32.New(castagnoli))
	r := codec.NewStream(body)
	head := make([]byte, len(snapshotMagic)+1)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, fmt.Errorf("%w: not a lockstep snapshot: %w", ErrCorrupt, err)
	}
	if err := checkHead(head); err != nil {
		if !ends || !errors.Is(err, ErrNewer) {
			return nil, err
		}
		// The version byte itself may be damaged: only a correct checksum shows that the version is newer.
		if _, err := io.Copy(io.Discard, r); err != nil {
			return nil, err
		}
		return nil, cmp.Or(body.checkSnapshot(), err)
	}
	next := &state{seq: r.Uvarint(), lease: int64(r.Uvarint()), wall: int64(r.Uvarint())}
	if err := contents(next, r, head[len(snapshotMagic)]); err != nil {
		return nil, err
	}
	if _, err := r.ReadByte(); err == nil {
		return nil, fmt.Errorf("%w: a snapshot that goes on behind its end", ErrCorrupt)
	}
	return next, body.checkSnapshot()
}

// build reads the contents of a snapshot, and makes the state from them.
func (s *state) build(r *codec.Stream, version byte) (err error) {
	if version > 1 {
		s.done.read(r, s.lease)
	}
	if r.Err != nil {
		return fmt.Errorf("%w: snapshot: %w", ErrCorrupt, r.Err)
	}
	restore := store.RestoreOlder
	if version > snapshotOlder {
		restore = store.Restore
	}
	if s.store, err = restore(r.Reader); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	for db := range store.Databases {
		total, _ := s.store.Keys(db)
		s.keys += total
	}
	return s.check()
}

// skim reads the contents of a snapshot, and keeps nothing but the number of keys.
func (s *state) skim(r *codec.Stream, version byte) (err error) {
	if version > 1 {
		skimAnswers(r)
	}
	if r.Err != nil {
		return fmt.Errorf("%w: snapshot: %w", ErrCorrupt, r.Err)
	}
	if s.keys, err = store.Skim(r.Reader); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

// check returns an error if a record is from a later write set than the state, because the next write sets would seem older.
func (s *state) check() error {
	if newest := s.store.Newest(); newest > s.seq {
		return fmt.Errorf("%w: a snapshot of %d write sets with a record of write set %d", ErrCorrupt, s.seq, newest)
	}
	return nil
}

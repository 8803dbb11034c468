package raftfsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/lockstep-io/lockstep/store/codec"
)

// A backup is a snapshot behind a head that says where and when it was taken (BackupHead):
//
//	+------------+---------+--------------------+--------------+----------+---------+
//	| "LKBACKUP" | version | index | wall       | node         | snapshot | SHA-256 |
//	| 8 bytes    | 1 byte  | varints, wall in µs| varint, text |          | 32 bytes|
//	+------------+---------+--------------------+--------------+----------+---------+
//
// The hash covers everything before it. Every version begins with the magic and
// the version and ends with the hash. Version 2 is for a backup that may lack acknowledged
// writes (BackupHead.Partial). Behind the name of the node it has a varint: Committed.
const (
	backupMagic   = "LKBACKUP"
	backupVersion = 2
	backupWhole   = 1 // the version of a backup that has all acknowledged writes
	// maxNodeName is the length in bytes of the longest node name that ReadBackup accepts.
	maxNodeName = 1 << 10
)

// BackupHead says when and where a backup was taken.
type BackupHead struct {
	Index uint64 // log index of the last entry in the snapshot
	Wall  int64  // Unix time of the backup in µs
	Node  string // name of the node that took the backup

	// Partial: the node had no leader, so the backup has the log of that node alone. It may lack acknowledged writes, and have others.
	Partial bool
	// Committed is the index up to which the node knew that its log was committed. It is Index if the backup is not Partial.
	Committed uint64
}

// ErrNotBackup is the error for a file that is no backup, or a damaged or incomplete one.
var ErrNotBackup = errors.New("not a whole lockstep backup")

// ErrImpossible is the error for a backup that has the right hash, but numbers that no cluster can reach.
var ErrImpossible = errors.New("no node has written this backup")

const (
	// maxIndex is the highest log index, and number of write sets, that a backup may have. Peers accept up to twice that (package
	// roster).
	maxIndex = 1 << 61
	// maxLease, in ms, is the highest lease clock that a backup may have. The lease clock plus a duration must not overflow.
	maxLease = 1 << 53
	// maxWall is the latest Unix time, in µs, that a backup may have: the end of the year 9999.
	maxWall = 253_402_300_799_999_999
)

// check returns an ErrImpossible if no cluster can reach one of the backup's numbers. wall is the time of day of the snapshot's last
// entry.
func (f *BackupFacts) check(wall int64) error {
	for _, n := range []struct {
		what        string
		value       int64
		least, most int64
	}{
		{"time of day", f.Wall, -maxWall, maxWall},
		{"lease clock", f.Lease, 0, maxLease},
		{"last entry's time of day", wall, -maxWall, maxWall},
	} {
		if n.value < n.least || n.value > n.most {
			return fmt.Errorf("%w: its %s is %d, and can be from %d to %d", ErrImpossible, n.what, n.value, n.least, n.most)
		}
	}
	for _, n := range []struct {
		what  string
		value uint64
	}{{"log index", f.Index}, {"number of write sets", f.Sequence}} {
		if n.value > maxIndex {
			return fmt.Errorf("%w: its %s is %d, and can be %d at most", ErrImpossible, n.what, n.value, uint64(maxIndex))
		}
	}
	return nil
}

// notBackup returns an ErrNotBackup that says why a file is no backup; err is the reason, or nil.
func notBackup(err error) error {
	switch {
	case err == nil:
		return ErrNotBackup
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the file ends too early", ErrNotBackup)
	}
	return fmt.Errorf("%w: %w", ErrNotBackup, err)
}

// WriteBackup writes a backup of the snapshot, with the head h.
func (s *Snapshot) WriteBackup(w io.Writer, h BackupHead) error {
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	head := append([]byte(backupMagic), backupWhole)
	head = binary.AppendUvarint(head, h.Index)
	head = binary.AppendUvarint(head, uint64(h.Wall))
	head = binary.AppendUvarint(head, uint64(len(h.Node)))
	head = append(head, h.Node...)
	if h.Partial {
		head[len(backupMagic)] = backupVersion
		head = binary.AppendUvarint(head, h.Committed)
	}
	if _, err := out.Write(head); err != nil {
		return err
	}
	if err := s.Encode(out); err != nil {
		return err
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

// BackupFacts describe the contents of a backup.
type BackupFacts struct {
	BackupHead
	Sequence uint64 // number of accepted entries
	Lease    int64  // the lease clock in ms
	Keys     int    // number of keys in all databases
}

// ReadBackup copies the snapshot of a backup to w. The copy is good only if the error is nil.
func ReadBackup(in io.Reader, w io.Writer) (facts BackupFacts, err error) {
	facts, _, err = readBackup(in, w, true, (*state).build)
	return facts, err
}

// RestoreBackup writes the snapshot with which the cluster of a restored backup begins: that of the backup, but its tokens begin above n
// (store.RaiseTokens).
func RestoreBackup(in io.Reader, w io.Writer, n int64) error {
	_, next, err := readBackup(in, io.Discard, true, (*state).build)
	if err != nil {
		return err
	}
	if err := next.store.RaiseTokens(n, next.seq); err != nil {
		return err
	}
	s := Snapshot{store: next.store.Snapshot(), seq: next.seq, lease: next.lease, wall: next.wall, done: &next.done}
	return s.Encode(w)
}

// CheckBackup reads a backup that a stranger may send without end: it stops at the first error, and keeps nothing of the state.
func CheckBackup(in io.Reader) (facts BackupFacts, err error) {
	facts, _, err = readBackup(in, io.Discard, false, (*state).skim)
	return facts, err
}

// readBackup reads a backup. The argument ends says whether the input has an end. The function contents reads the contents of the
// snapshot.
func readBackup(in io.Reader, w io.Writer, ends bool, contents func(*state, *codec.Stream, byte) error) (facts BackupFacts, next *state, err error) {
	body := newSealed(in, sha256.New())
	r := codec.NewStream(body)
	head := make([]byte, len(backupMagic)+1)
	if _, err := io.ReadFull(r, head); err != nil || string(head[:len(backupMagic)]) != backupMagic {
		return facts, nil, notBackup(err)
	}
	version := head[len(backupMagic)]
	if v := version; v != backupVersion && v != backupWhole {
		if !ends {
			return facts, nil, versionError{"backup", v, backupVersion}
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			return facts, nil, err
		}
		if err := body.checkBackup(); err != nil || v == 0 {
			return facts, nil, notBackup(err)
		}
		return facts, nil, versionError{"backup", v, backupVersion}
	}
	facts.Index, facts.Wall = r.Uvarint(), int64(r.Uvarint())
	n := r.Uvarint()
	if r.Err == nil && n > maxNodeName {
		r.Err = errors.New("a name without end")
	}
	if r.Err != nil {
		return facts, nil, notBackup(r.Err)
	}
	name := make([]byte, n)
	if _, err := io.ReadFull(r, name); err != nil {
		return facts, nil, notBackup(err)
	}
	facts.Node, facts.Committed = string(name), facts.Index
	if version == backupVersion {
		facts.Partial, facts.Committed = true, min(r.Uvarint(), facts.Index)
		if r.Err != nil {
			return facts, nil, notBackup(r.Err)
		}
	}
	next, err = readSnapshot(io.TeeReader(r, w), ends, contents)
	if ends || err == nil {
		if sum := body.checkBackup(); sum != nil {
			err = sum // a wrong hash explains any other error
		}
	}
	if err != nil {
		if errors.Is(err, ErrNewer) {
			return facts, nil, err
		}
		return facts, nil, notBackup(err)
	}
	facts.Sequence, facts.Lease, facts.Keys = next.seq, next.lease, next.keys
	return facts, next, facts.check(next.wall)
}

// checkBackup reads the rest of a backup and returns an error if the hash at its end is wrong.
func (s *sealed) checkBackup() error {
	if _, err := io.Copy(io.Discard, struct{ io.Reader }{s}); err != nil {
		return err
	}
	sum, err := s.rest()
	if err == nil && !bytes.Equal(s.sum.Sum(nil), sum) {
		err = errors.New("it is damaged or cut short")
	}
	return err
}

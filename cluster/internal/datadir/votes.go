package datadir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/roster"
)

// A node must not lose its term or its vote. With an earlier term, or without its vote, it may vote twice in a term, and two leaders may
// be elected. bbolt keeps no checksum of its data. If the newer of its two meta pages is damaged, bbolt goes on with the state before the
// last transaction. So each value of the term and the vote in raft.db ends with a checksum of key and value, and raft.last repeats the
// latest values:
//
//	+--------+---------+----------+---------+-----------+-------------+---------+
//	| "VOTE" | version | reserved | term    | vote term | crc32c of   | crc32c  |
//	|        | 1 byte  | 3 bytes  | 8 bytes | 8 bytes   | candidate   | 4 bytes |
//	+--------+---------+----------+---------+-----------+-------------+---------+
//
// in little endian. raft.last is written after raft.db and not synced, so its values may be older than those in raft.db, never newer.
// Version 0.1.0 wrote values without a checksum, and this version accepts them. When version 0.1.0 reads a term that this version has
// written, it ignores the checksum behind the term.
const (
	votesFile    = "raft.last"
	votesMagic   = "VOTE"
	votesVersion = 1
	votesLen     = 4 + 4 + 8 + 8 + 4 + 4

	currentTerm = "CurrentTerm" // the key that hashicorp/raft uses
	sumLen      = 4
)

var errVotes = errors.New("the term or the vote is not what was written")

// votes is the content of raft.last.
type votes struct {
	term, voteTerm uint64
	candidate      uint32 // checksum of the candidate's name, which is empty before the first vote and while a vote is being written
}

func (v votes) encode() []byte {
	b := append([]byte(votesMagic), votesVersion, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, v.term)
	b = binary.LittleEndian.AppendUint64(b, v.voteTerm)
	b = binary.LittleEndian.AppendUint32(b, v.candidate)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, markTable))
}

func decodeVotes(b []byte) (v votes, err error) {
	switch {
	case len(b) != votesLen || string(b[:4]) != votesMagic || crc32.Checksum(b[:votesLen-4], markTable) != binary.LittleEndian.Uint32(b[votesLen-4:]):
		return v, fmt.Errorf("%s: %w", votesFile, errVotes)
	case b[4] > votesVersion:
		return v, fmt.Errorf("%s has version %d, this program knows %d: its data is intact; upgrade this node's program and start it again", votesFile, b[4], votesVersion)
	}
	return votes{binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint32(b[24:])}, nil
}

// sealedVotes is the store of Raft's term and vote. It adds a checksum to each value in raft.db, and repeats the values in
// raft.last.
type sealedVotes struct {
	raft.StableStore

	mu   sync.Mutex
	file File
	last votes
}

var _ raft.StableStore = (*sealedVotes)(nil)

// openVotes returns the store of the term and the vote, after a check of raft.db against raft.last, the file at path.
func openVotes(d Files, inner raft.StableStore, path string) (*sealedVotes, error) {
	s := &sealedVotes{StableStore: inner}
	now, err := s.look()
	if err != nil {
		return nil, err
	}
	b, err := readSmall(path)
	if err == nil {
		if s.last, err = decodeVotes(b); err != nil {
			return nil, err
		}
		if !now.follows(s.last) {
			return nil, fmt.Errorf("%w: they are of term %d and %d, and were of %d and %d", errVotes, now.term, now.voteTerm, s.last.term, s.last.voteTerm)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s.last = now
	if err := replaceFile(d, path, now.encode()); err != nil {
		return nil, err
	}
	s.file, err = d.Open(path)
	return s, err
}

// follows reports whether v equals last, or may have been written after it.
func (v votes) follows(last votes) bool {
	if v.term < last.term || v.voteTerm < last.voteTerm {
		return false
	}
	none := crc32.Checksum(nil, markTable)
	return v.voteTerm > last.voteTerm || v.candidate == last.candidate || v.candidate == none && v.term > last.voteTerm || last.candidate == none
}

// look reads the term and the vote from raft.db.
func (s *sealedVotes) look() (v votes, err error) {
	var errs [3]error
	var candidate []byte
	v.term, errs[0] = s.GetUint64([]byte(currentTerm))
	v.voteTerm, errs[1] = s.GetUint64([]byte(lastVoteTerm))
	candidate, errs[2] = s.Get([]byte(lastVoteCandidate))
	for _, err := range errs {
		if err != nil && !isNotFound(err) {
			return v, err
		}
	}
	v.candidate = crc32.Checksum(candidate, markTable)
	return v, nil
}

// isNotFound reports whether err says that a key has no value; it compares the text, as Raft does.
func isNotFound(err error) bool { return err.Error() == "not found" }

func seal(k, v []byte) []byte {
	sum := crc32.Update(crc32.Checksum(k, markTable), markTable, v)
	return binary.LittleEndian.AppendUint32(bytes.Clone(v), sum)
}

// unsealed returns the value in b without its checksum, and whether b ends with the right checksum.
func unsealed(k, b []byte) (v []byte, ok bool) {
	if len(b) < sumLen {
		return b, false
	}
	v = b[: len(b)-sumLen : len(b)-sumLen]
	return v, bytes.Equal(seal(k, v), b)
}

// Get implements raft.StableStore.
func (s *sealedVotes) Get(k []byte) ([]byte, error) {
	b, err := s.StableStore.Get(k)
	if err != nil {
		return nil, err
	}
	v, ok := unsealed(k, b)
	if !ok {
		if string(k) == lastVoteCandidate {
			// Version 0.1.0 wrote both the vote's term and the candidate without a checksum. So if the vote's
			// term has no checksum, this candidate needs none.
			if term, err := s.StableStore.Get([]byte(lastVoteTerm)); err == nil && len(term) == 8 {
				return b, nil
			}
		}
		return nil, fmt.Errorf("%s: %w", k, errVotes)
	}
	if len(v) == 0 {
		return nil, nil
	}
	return v, nil
}

// GetUint64 implements raft.StableStore.
func (s *sealedVotes) GetUint64(k []byte) (uint64, error) {
	b, err := s.StableStore.Get(k)
	if err != nil {
		return 0, err
	}
	v, ok := unsealed(k, b)
	if !ok && len(b) == 8 { // version 0.1.0 wrote it
		v, ok = b, true
	}
	if !ok || len(v) != 8 {
		return 0, fmt.Errorf("%s: %w", k, errVotes)
	}
	return binary.BigEndian.Uint64(v), nil
}

// Set implements raft.StableStore.
func (s *sealedVotes) Set(k, v []byte) error {
	if err := s.StableStore.Set(k, seal(k, v)); err != nil {
		return err
	}
	return s.note(func(last *votes) {
		if string(k) == lastVoteCandidate {
			last.candidate = crc32.Checksum(v, markTable)
		}
	})
}

// SetUint64 implements raft.StableStore.
func (s *sealedVotes) SetUint64(k []byte, v uint64) error {
	if err := s.StableStore.Set(k, seal(k, binary.BigEndian.AppendUint64(nil, v))); err != nil {
		return err
	}
	return s.note(func(last *votes) {
		switch string(k) {
		case currentTerm:
			last.term = v
		case lastVoteTerm:
			last.voteTerm = v
		}
	})
}

func (s *sealedVotes) note(change func(*votes)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.last)
	_, err := s.file.WriteAt(s.last.encode(), 0)
	return err
}

func (s *sealedVotes) close() error {
	if s == nil || s.file == nil {
		return nil
	}
	return s.file.Close()
}

// CheckTerm fails if the node's term is below that of its log, so that it might vote twice, or too far above (roster.PlausibleTerm).
func (d *Dir) CheckTerm() error {
	term, err := d.votes.GetUint64([]byte(currentTerm))
	if err != nil && !isNotFound(err) {
		return err
	}
	last, err := d.Log.LastIndex()
	if err != nil {
		return err
	}
	reached := d.Snapshots.Newest().Term
	if last > 0 {
		var l raft.Log
		if err := d.Log.GetLog(last, &l); err != nil {
			return err
		}
		reached = max(reached, l.Term)
	}
	if term < reached || !roster.PlausibleTerm(reached, term) {
		return fmt.Errorf("%s holds term %d, and the log ends in term %d: it is damaged, or of another time", boltFile, term, reached)
	}
	return nil
}

// fatalStable ends the process of a running node when the term or a vote cannot be written. Without it, hashicorp/raft would panic.
type fatalStable struct {
	raft.StableStore
	fatal func(error)
}

// These are the keys that hashicorp/raft uses.
const (
	lastVoteTerm      = "LastVoteTerm"
	lastVoteCandidate = "LastVoteCand"
)

func (s fatalStable) Set(k, v []byte) error {
	return s.check(s.StableStore.Set(k, v))
}

// SetUint64 deletes the last vote's candidate before it writes a new vote's term. Otherwise a crash between Raft's two writes would
// leave a vote for that candidate that the node never gave.
func (s fatalStable) SetUint64(k []byte, v uint64) error {
	if string(k) == lastVoteTerm {
		if err := s.Set([]byte(lastVoteCandidate), nil); err != nil {
			return err
		}
	}
	return s.check(s.StableStore.SetUint64(k, v))
}

func (s fatalStable) check(err error) error {
	if err != nil && s.fatal != nil {
		s.fatal(notWritten("the term or a vote", err))
	}
	return err
}

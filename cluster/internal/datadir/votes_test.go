package datadir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// voted makes a directory whose node has voted for n2 in term 7, and returns it.
func voted(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	st, err := openDir(dir, LogWAL)
	if err != nil {
		t.Fatal(err)
	}
	s := fatalStable{st.votes, func(err error) { t.Error(err) }}
	for term := uint64(1); term <= 7; term++ { // as Raft does
		if err := errors.Join(s.SetUint64([]byte(currentTerm), term), s.SetUint64([]byte(lastVoteTerm), term), s.Set([]byte(lastVoteCandidate), []byte("n2"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(st.Log.StoreLogs(entries(1, 3)), st.Finish("C", false)); err != nil {
		t.Fatal(err)
	}
	st.Close()
	return dir
}

// readVote opens a directory and reads what Raft would.
func readVote(t *testing.T, dir string) (vote string, err error) {
	st, err := openDir(dir, "")
	if err != nil {
		return "", err
	}
	defer st.Close()
	term, err1 := st.votes.GetUint64([]byte(currentTerm))
	voteTerm, err2 := st.votes.GetUint64([]byte(lastVoteTerm))
	cand, err3 := st.votes.Get([]byte(lastVoteCandidate))
	return fmt.Sprintf("%d %d %s", term, voteTerm, cand), errors.Join(err1, err2, err3, st.CheckTerm())
}

// TestEveryBitOfTheVote flips each bit that tells whom a node has voted for, or who the node is. Each flip is noticed.
func TestEveryBitOfTheVote(t *testing.T) {
	dir := voted(t)
	if got, err := readVote(t, dir); err != nil || got != "7 7 n2" {
		t.Fatalf("%s, %v", got, err)
	}
	var files Disk
	files.Files = unsyncedFiles{}
	for _, name := range []string{boltFile, votesFile} {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := looksWhole(files, dir)
		if err != nil {
			t.Fatal(err)
		}
		noticed := 0
		for _, at := range places(name, whole) {
			for bit := at % 8; bit <= at%8; bit++ { // one bit of each byte; all bits of a value are flipped below
				b := bytes.Clone(whole)
				b[at] ^= 1 << bit
				overwrite(t, path, b)
				got, err := looksWhole(files, dir)
				if err != nil {
					noticed++
				} else if got != want { // the byte may be in a copy that bbolt no longer uses
					t.Errorf("%s: bit %d of byte %d is not noticed: %+v", name, bit, at, got)
				}
			}
		}
		if least := map[string]int{boltFile: 12 + 12 + 6, votesFile: votesLen}[name]; noticed < least {
			t.Errorf("%s: %d flips are noticed, not %d", name, noticed, least)
		}
		overwrite(t, path, whole)
	}
	for _, v := range [][]byte{nil, []byte("n2"), binary.BigEndian.AppendUint64(nil, 7)} {
		whole := seal([]byte(currentTerm), v)
		for i := range 8 * len(whole) {
			b := bytes.Clone(whole)
			b[i/8] ^= 1 << (i % 8)
			if _, ok := unsealed([]byte(currentTerm), b); ok {
				t.Errorf("bit %d of %x is not noticed", i, whole)
			}
		}
		if _, ok := unsealed([]byte(lastVoteTerm), whole); ok {
			t.Error("the value of one key is taken for that of another")
		}
	}
	whole, err := os.ReadFile(filepath.Join(dir, nodeFile))
	if err != nil {
		t.Fatal(err)
	}
	record, _ := decodeRecord(whole)
	for at := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[at] ^= 1 << bit
			// The flip may change the name of a field. That field is skipped, and the others have their values.
			if got, ok := decodeRecord(b); ok && !reflect.DeepEqual(got, record) {
				t.Errorf("%s: bit %d of byte %d: %+v", nodeFile, bit, at, got)
			}
		}
	}
	flip(t, filepath.Join(dir, votesFile))
	mustNotOpen(t, dir, votesFile, "lockstep remove")
}

// looksWhole checks the vote as a start does, and returns it.
func looksWhole(d Disk, dir string) (v votes, err error) {
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, boltFile), BoltOptions: &bbolt.Options{NoSync: true}})
	if err != nil {
		return v, err
	}
	defer bolt.Close()
	path := filepath.Join(dir, votesFile)
	before, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	s, err := openVotes(d, bolt, path)
	if err != nil {
		return v, err
	}
	return s.last, errors.Join(s.close(), os.WriteFile(path, before, 0o600))
}

// places returns the offsets of the bytes that matter; in raft.db, those of keys and values. bbolt itself finds other changes.
func places(name string, b []byte) (list []int) {
	if name != boltFile {
		for at := range b {
			list = append(list, at)
		}
		return list
	}
	values := [][]byte{seal([]byte(lastVoteCandidate), []byte("n2"))}
	for _, key := range []string{currentTerm, lastVoteTerm} {
		values = append(values, seal([]byte(key), binary.BigEndian.AppendUint64(nil, 7)), []byte(key))
	}
	for _, v := range append(values, []byte(lastVoteCandidate)) {
		for at := 0; ; {
			next := bytes.Index(b[at:], v)
			if next < 0 {
				break
			}
			for i := range v {
				list = append(list, at+next+i)
			}
			at += next + len(v)
		}
	}
	return list
}

// A start refuses raft.db as it was before the last vote, because the node could vote again in the same term.
func TestVoteOfAnEarlierTime(t *testing.T) {
	dir := voted(t)
	before, err := os.ReadFile(filepath.Join(dir, boltFile))
	if err != nil {
		t.Fatal(err)
	}
	st, err := openDir(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	s := fatalStable{st.votes, func(err error) { t.Error(err) }}
	if err := errors.Join(s.SetUint64([]byte(lastVoteTerm), 8), s.Set([]byte(lastVoteCandidate), []byte("n3"))); err != nil {
		t.Fatal(err)
	}
	st.Close()
	overwrite(t, filepath.Join(dir, boltFile), before)
	mustNotOpen(t, dir, "raft.db", "lockstep remove")
}

// A node starts with a directory of version 0.1.0, and adds checksums. Version 0.1.0 can read the term that this version writes.
func TestDirectoryOfVersion010(t *testing.T) {
	dir := voted(t)
	if err := os.Remove(filepath.Join(dir, votesFile)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, nodeFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b = append(b[:bytes.Index(b, []byte(`,"votes"`))], "}\n"...)
	overwrite(t, path, b)
	old, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, boltFile)})
	if err != nil {
		t.Fatal(err)
	}
	if term, err := old.GetUint64([]byte(currentTerm)); err != nil || term != 7 {
		t.Errorf("0.1.0 reads term %d, %v", term, err)
	}
	if err := errors.Join(old.SetUint64([]byte(currentTerm), 9), old.SetUint64([]byte(lastVoteTerm), 9), old.Set([]byte(lastVoteCandidate), []byte("n3\x00D\x00cluster=C")), old.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := readVote(t, dir); err != nil || got != "9 9 n3\x00D\x00cluster=C" {
			t.Errorf("%q, %v", got, err)
		}
	}
	st, err := openDir(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Finish("C", false); err != nil {
		t.Error(err)
	}
	st.Close()
	if b, err = os.ReadFile(path); err != nil || !bytes.Contains(b, []byte(`"votes":true,"sum":"`)) {
		t.Errorf("%s, %v", b, err)
	}
}

// stoppingStable loses every write from some step on, as a process that is killed.
type stoppingStable struct {
	raft.StableStore
	left int
}

var errStopped = errors.New("the process has been killed")

func (s *stoppingStable) Set(k, v []byte) error {
	if s.left--; s.left < 0 {
		return errStopped
	}
	return s.StableStore.Set(k, v)
}

func (s *stoppingStable) SetUint64(k []byte, v uint64) error {
	if s.left--; s.left < 0 {
		return errStopped
	}
	return s.StableStore.SetUint64(k, v)
}

// If the process is killed between Raft's two writes of a vote, the node confirms no vote that it never gave.
func TestKilledWhileVoting(t *testing.T) {
	for steps := range 5 {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			disk := raft.NewInmemStore()
			vote := func(s raft.StableStore, term uint64, candidate string) error {
				f := fatalStable{s, func(error) {}} // as raft.persistVote
				if err := f.SetUint64([]byte("LastVoteTerm"), term); err != nil {
					return err
				}
				return f.Set([]byte("LastVoteCand"), []byte(candidate))
			}
			if err := vote(disk, 5, "stale"); err != nil {
				t.Fatal(err)
			}
			if err := vote(&stoppingStable{disk, steps}, 9, "other"); err != nil && !errors.Is(err, errStopped) {
				t.Fatal(err)
			}
			term, err1 := disk.GetUint64([]byte("LastVoteTerm"))
			candidate, err2 := disk.Get([]byte("LastVoteCand"))
			if err1 != nil || err2 != nil && err2.Error() != "not found" { // as Raft sees it
				t.Fatal(err1, err2)
			}
			if term == 9 && string(candidate) == "stale" {
				t.Error("in term 9 it has voted for the candidate of term 5")
			}
		})
	}
}

// failingStable cannot write.
type failingStable struct{}

var errDisk = errors.New("no space left")

func (failingStable) Set([]byte, []byte) error         { return errDisk }
func (failingStable) Get([]byte) ([]byte, error)       { return nil, errDisk }
func (failingStable) SetUint64([]byte, uint64) error   { return errDisk }
func (failingStable) GetUint64([]byte) (uint64, error) { return 0, errDisk }

// A vote that cannot be written ends the process with a reason.
func TestUnwritableVoteIsFatal(t *testing.T) {
	var fatal []error
	s := fatalStable{failingStable{}, func(err error) { fatal = append(fatal, err) }}
	if err := s.SetUint64([]byte("CurrentTerm"), 7); !errors.Is(err, errDisk) {
		t.Error(err)
	}
	if err := s.Set([]byte("LastVoteCand"), nil); !errors.Is(err, errDisk) {
		t.Error(err)
	}
	if len(fatal) != 2 || !errors.Is(fatal[0], errDisk) || !strings.Contains(fatal[1].Error(), "vote") {
		t.Errorf("%v", fatal)
	}
}

package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"lockstep/cluster/internal/roster"
)

// voted makes a directory whose node has voted for n2 in term 7, and returns it.
func voted(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	st, err := openStorage(dir, "n1", LogWAL, raftLogger(dataConfig(t, dir).Logger))
	if err != nil {
		t.Fatal(err)
	}
	s := fatalStable{st.stable, func(err error) { t.Error(err) }}
	for term := uint64(1); term <= 7; term++ { // as Raft does
		if err := errors.Join(s.SetUint64([]byte(currentTerm), term), s.SetUint64([]byte(lastVoteTerm), term), s.Set([]byte(lastVoteCandidate), []byte("n2"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(st.log.StoreLogs(entries(1, 3)), st.finish("C", false)); err != nil {
		t.Fatal(err)
	}
	st.close()
	return dir
}

// readVote opens a directory and reads what Raft would.
func readVote(t *testing.T, dir string) (vote string, err error) {
	st, err := openStorage(dir, "n1", "", raftLogger(dataConfig(t, dir).Logger))
	if err != nil {
		return "", err
	}
	defer st.close()
	term, err1 := st.stable.GetUint64([]byte(currentTerm))
	voteTerm, err2 := st.stable.GetUint64([]byte(lastVoteTerm))
	cand, err3 := st.stable.Get([]byte(lastVoteCandidate))
	return fmt.Sprintf("%d %d %s", term, voteTerm, cand), errors.Join(err1, err2, err3, st.compareTerm())
}

// TestEveryBitOfTheVote: each bit of what says whom a node has voted for, and who it is, is
// noticed.
func TestEveryBitOfTheVote(t *testing.T) {
	dir := voted(t)
	if got, err := readVote(t, dir); err != nil || got != "7 7 n2" {
		t.Fatalf("%s, %v", got, err)
	}
	var files disk
	files.files = unsyncedFiles{}
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
			for bit := at % 8; bit <= at%8; bit++ { // each bit of a value: below
				b := bytes.Clone(whole)
				b[at] ^= 1 << bit
				overwrite(t, path, b)
				got, err := looksWhole(files, dir)
				if err != nil {
					noticed++
				} else if got != want { // it may be one that bbolt has left behind
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
			// A field that has lost its name is skipped, and the others are what they were.
			if got, ok := decodeRecord(b); ok && !reflect.DeepEqual(got, record) {
				t.Errorf("%s: bit %d of byte %d: %+v", nodeFile, bit, at, got)
			}
		}
	}
	flip(t, filepath.Join(dir, votesFile))
	mustNotOpen(t, dir, votesFile, "lockstep remove")
}

// looksWhole does what a start does with the vote.
func looksWhole(d disk, dir string) (v votes, err error) {
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

// places returns where in a file there is what counts: of raft.db, each key and value as they were
// ever written. What bbolt has around them it notices itself, or ends.
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

// TestVoteOfAnEarlierTime: raft.db as it was before the last vote, whole in itself, and without its
// last vote. Another vote in the same term would be a second leader.
func TestVoteOfAnEarlierTime(t *testing.T) {
	dir := voted(t)
	before, err := os.ReadFile(filepath.Join(dir, boltFile))
	if err != nil {
		t.Fatal(err)
	}
	st, err := openStorage(dir, "n1", "", raftLogger(dataConfig(t, dir).Logger))
	if err != nil {
		t.Fatal(err)
	}
	s := fatalStable{st.stable, func(err error) { t.Error(err) }}
	if err := errors.Join(s.SetUint64([]byte(lastVoteTerm), 8), s.Set([]byte(lastVoteCandidate), []byte("n3"))); err != nil {
		t.Fatal(err)
	}
	st.close()
	overwrite(t, filepath.Join(dir, boltFile), before)
	mustNotOpen(t, dir, "raft.db", "lockstep remove")
}

// TestDirectoryOfVersion010: its values have no checksum, and its node.json none either. It
// starts, and has them then; and 0.1.0 reads the term of this version.
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
	st, err := openStorage(dir, "n1", "", raftLogger(dataConfig(t, dir).Logger))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.finish("C", false); err != nil {
		t.Error(err)
	}
	st.close()
	if b, err = os.ReadFile(path); err != nil || !bytes.Contains(b, []byte(`"votes":true,"sum":"`)) {
		t.Errorf("%s, %v", b, err)
	}
}

// TestTermBehindTheLog: a term of before the last entry, or one that no cluster reaches.
func TestTermBehindTheLog(t *testing.T) {
	for _, term := range []uint64{1, 1 << 40, roster.Highest} {
		dir := voted(t)
		st, err := openStorage(dir, "n1", "", raftLogger(dataConfig(t, dir).Logger))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(st.log.StoreLogs([]*raft.Log{{Index: 4, Term: 2, Type: raft.LogNoop}}), st.stable.SetUint64([]byte(currentTerm), term)); err != nil {
			t.Fatal(err)
		}
		st.close()
		mustNotOpen(t, dir, fmt.Sprintf("raft.db holds term %d", term), "lockstep remove")
	}
}

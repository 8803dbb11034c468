package datadir

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// written is the entry at index in the tests of damage. The entry 1 is a configuration.
func written(index uint64) *raft.Log {
	if index == 1 {
		conf := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1.test:1"}}}
		return &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(conf)}
	}
	return &raft.Log{Index: index, Term: 1 + index/3, Data: fmt.Appendf(nil, "lock%d OWNER", index)}
}

// sameAsWritten fails if an entry is another one than was written.
func sameAsWritten(l *raft.Log) error {
	want := written(l.Index)
	if l.Term != want.Term || l.Type != want.Type || !bytes.Equal(l.Data, want.Data) || len(l.Extensions) > 0 {
		return fmt.Errorf("entry %d is %+v, want %+v", l.Index, l, want)
	}
	return nil
}

// A changed bit in bbolt is found when the entry is read. Version 0.1.0 wrote no checksum; its commands are still read.
func TestFlippedBitsInBolt(t *testing.T) {
	path := filepath.Join(t.TempDir(), boltFile)
	store := func(what string, change func(b *raftboltdb.BoltStore) error) {
		t.Helper()
		b, err := raftboltdb.New(raftboltdb.Options{Path: path, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(change(b), b.Close()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	read := func(b *raftboltdb.BoltStore) error {
		l := raft.Log{Term: 9, Type: raft.LogNoop, Data: []byte("x"), Extensions: []byte("left")}
		err := readSound(boltLog{b}, 7, &l)
		if errors.Is(err, raft.ErrLogNotFound) || err == nil && l.Index != 7 {
			return fmt.Errorf("%+v, %v", l, err)
		}
		if err != nil {
			return nil
		}
		return sameAsWritten(&l)
	}
	mustRead := func(b *raftboltdb.BoltStore) error {
		var l raft.Log
		return errors.Join(readSound(boltLog{b}, 7, &l), sameAsWritten(&l))
	}
	store("written", func(b *raftboltdb.BoltStore) error {
		e := written(7)
		if err := errors.Join(boltLog{b}.StoreLog(e), mustRead(b), sameAsWritten(e), b.GetLog(7, e)); err != nil {
			return err
		}
		sent := Vouched(e) // as version 0.1.0 sends it
		if e.Type = raft.LogNoop; len(e.Extensions) == 0 || !sent || Vouched(e) {
			return fmt.Errorf("a peer must not believe %+v", e)
		}
		return nil
	})
	whole := boltValue(t, path, nil)
	for at := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[at] ^= 1 << bit
			boltValue(t, path, b)
			store(fmt.Sprintf("bit %d of byte %d of %q", bit, at, whole), read)
		}
	}
	store("version 0.1.0", func(b *raftboltdb.BoltStore) error {
		return errors.Join(b.StoreLog(written(7)), mustRead(b))
	})
	for kind := raft.LogType(1); kind < 9; kind++ {
		store(fmt.Sprintf("version 0.1.0, type %d", kind), func(b *raftboltdb.BoltStore) error {
			e := written(7)
			e.Type = kind
			if err := b.StoreLog(e); err != nil {
				return err
			}
			if err := readSound(boltLog{b}, 7, e); !errors.Is(err, errEntry) {
				return fmt.Errorf("it is read: %+v, %v", e, err)
			}
			return nil
		})
	}
}

// boltValue returns the only entry in a file of raft-boltdb; if now is not nil, it becomes the entry.
func boltValue(t *testing.T, path string, now []byte) (was []byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("logs"))
		k, v := bucket.Cursor().First()
		was = bytes.Clone(v)
		if now == nil {
			return nil
		}
		return bucket.Put(bytes.Clone(k), now)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return was
}

// If bbolt fails for lack of space, the error is ErrNoRoom only if the entry is not in the file.
func TestFullDiskBehindBolt(t *testing.T) {
	for _, there := range []bool{false, true} {
		log := raft.NewInmemStore()
		if err := log.StoreLog(written(6)); err != nil {
			t.Fatal(err)
		}
		if err := (boltLog{fullStore{log, there}}).StoreLog(written(7)); errors.Is(err, ErrNoRoom) == there || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("the entry is there: %v; the error is %v", there, err)
		}
	}
}

// fullStore fails for want of space, before or after it has stored the entries.
type fullStore struct {
	raft.LogStore
	after bool
}

func (s fullStore) StoreLogs(logs []*raft.Log) error {
	if s.after {
		return errors.Join(s.LogStore.StoreLogs(logs), syscall.ENOSPC)
	}
	return syscall.ENOSPC
}

package datadir

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/roster"
)

// errEntry means that an entry on the disk is not the one that was written.
var errEntry = errors.New("it is not what was written")

// readSound reads an entry of a log store. It fails if the entry is not sound.
func readSound(log raft.LogStore, index uint64, l *raft.Log) error {
	if err := log.GetLog(index, l); err != nil {
		return err
	}
	return sound(index, l)
}

// sound fails if no version of lockstep writes such an entry: the checksum in its data (raftfsm.Entry) does not cover its type.
func sound(index uint64, l *raft.Log) error {
	if l.Index != index {
		return fmt.Errorf("%w: it has the index %d", errEntry, l.Index)
	}
	switch l.Type {
	case raft.LogCommand:
		return nil
	case raft.LogNoop, raft.LogBarrier:
		if len(l.Data) > 0 {
			return fmt.Errorf("%w: type %s has no data, and it has %d bytes", errEntry, l.Type, len(l.Data))
		}
		return nil
	case raft.LogConfiguration:
		if _, err := roster.DecodeConfiguration(l.Data); err != nil {
			return fmt.Errorf("%w: %w", errEntry, err)
		}
		return nil
	}
	return fmt.Errorf("%w: it has the type %d", errEntry, l.Type)
}

// entrySum returns the checksum of an entry that boltLog keeps in the entry's Extensions: the crc32c of its index, term, type and data.
func entrySum(l *raft.Log) []byte {
	head := binary.LittleEndian.AppendUint64(nil, l.Index)
	head = binary.LittleEndian.AppendUint64(head, l.Term)
	head = append(head, byte(l.Type))
	sum := crc32.Update(crc32.Checksum(head, markTable), markTable, l.Data)
	return binary.LittleEndian.AppendUint32(nil, sum)
}

// Vouched reports whether an entry's Extensions are its checksum or empty. Version 0.1.0 may send checksums that a later version wrote.
func Vouched(l *raft.Log) bool {
	return len(l.Extensions) == 0 || bytes.Equal(l.Extensions, entrySum(l))
}

// boltLog is raft-boltdb as a log store. It adds a checksum to each entry, and hides it from callers. Version 0.1.0 wrote none.
type boltLog struct{ raft.LogStore }

// StoreLog implements raft.LogStore.
func (l boltLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs implements raft.LogStore. On a full disk it returns ErrNoRoom only if none of the entries is in the file.
func (l boltLog) StoreLogs(logs []*raft.Log) error {
	summed := make([]*raft.Log, len(logs))
	for i, e := range logs {
		e := *e // a copy, because Raft and others use the entry
		e.Extensions = entrySum(&e)
		summed[i] = &e
	}
	err := l.LogStore.StoreLogs(summed)
	if last, err2 := l.LastIndex(); err != nil && (err2 != nil || last >= logs[0].Index) {
		return errors.Join(err, err2)
	}
	return wantsRoom(err)
}

// GetLog implements raft.LogStore.
func (l boltLog) GetLog(index uint64, e *raft.Log) error {
	*e = raft.Log{} // if a field is missing on the disk, raft-boltdb leaves it as it was
	if err := l.LogStore.GetLog(index, e); err != nil {
		return err
	}
	if !Vouched(e) {
		return fmt.Errorf("%w: its checksum does not match", errEntry)
	}
	e.Extensions = nil
	return nil
}

func (boltLog) prepare() error    { return nil }
func (boltLog) room() int64       { return 0 }
func (boltLog) lacked() int64     { return 0 }
func (boltLog) IsMonotonic() bool { return false }
func (boltLog) Close() error      { return nil } // Dir.Close closes raft.db

package datadir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/hashicorp/raft"
)

// The log does not delete committed or applied entries at its end, unless the newest snapshot holds them. hashicorp/raft would delete
// them if a leader sent different entries: it relies on a leader to have all committed entries. So one forged request in a leader's name
// would undo acknowledged locks. raftnode/scrutiny.go refuses such a request before Raft sees it, and the log refuses the cut as well:
// the node keeps its entries, logs an error, and acknowledges none of the sent entries.
//
// Raft does not store how far the log is committed. log.settled stores that index:
//
//	+--------+---------+----------+---------+---------+
//	| "SETL" | version | reserved | index   | crc32c  |
//	|        | 1 byte  | 3 bytes  | 8 bytes | 4 bytes |
//	+--------+---------+----------+---------+---------+
//
// in little endian. It is written now and then and not synced, so its index may be too low, but
// never too high; a damaged or missing file counts as index 0.
const (
	settledMagic   = "SETL"
	settledVersion = 1
	settledLen     = 4 + 4 + 8 + 4
	// settledEvery is the number of writes to the log after which log.settled is written again.
	settledEvery = 16
)

// errCutsSettled means that a cut of committed entries was refused.
var errCutsSettled = errors.New("cluster: committed entries are not replaced")

func encodeSettled(index uint64) []byte {
	b := append([]byte(settledMagic), settledVersion, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, index)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, markTable))
}

func decodeSettled(b []byte) (uint64, bool) {
	if len(b) != settledLen || string(b[:4]) != settledMagic || b[4] != settledVersion ||
		crc32.Checksum(b[:settledLen-4], markTable) != binary.LittleEndian.Uint32(b[settledLen-4:]) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[8:]), true
}

// openSettled reads log.settled, writes it anew, and keeps it open.
func (g *Log) openSettled(d Files, path string) error {
	b, err := readSmall(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	index, _ := decodeSettled(b)
	g.noted.Store(min(index, max(g.mark.last, g.mark.base)))
	if err := replaceFile(d, path, encodeSettled(g.noted.Load())); err != nil {
		return err
	}
	g.settledFile, err = d.Open(path)
	return err
}

// Settled returns the index up to which this node knows that the log is committed or applied: these entries must not be replaced.
func (g *Log) Settled() uint64 { return max(g.noted.Load(), g.hooks.reached()) }

// noteSettled writes log.settled on every settledEvery-th call; the caller holds mu. The index is never beyond the last entry on the
// disk.
func (g *Log) noteSettled() error {
	if g.appends++; g.appends%settledEvery != 0 || g.settledFile == nil {
		return nil
	}
	index := min(g.Settled(), g.mark.last)
	if index <= g.noted.Load() {
		return nil
	}
	_, err := g.settledFile.WriteAt(encodeSettled(index), 0)
	if err == nil {
		g.noted.Store(index)
	}
	return err
}

// refuseCut fails if a deletion from first on would remove committed entries that the newest snapshot does not hold.
func (g *Log) refuseCut(first uint64) error {
	settled := g.Settled()
	if first > settled || g.snaps.Newest().Index >= settled {
		return nil
	}
	if g.hooks.Logger != nil {
		g.hooks.Logger.Error("A leader would replace entries that are committed here; they are kept, and nothing is taken from it. If it is a member of this cluster, compare the nodes (lockstep status) and have the wrong one join anew",
			"from", first, "committed", settled)
	}
	return fmt.Errorf("%w: entry %d, and up to entry %d they are committed", errCutsSettled, first, settled)
}

// TermAt returns the term of the entry at index; 0 if it cannot be read from the log.
func (g *Log) TermAt(index uint64) uint64 {
	var l raft.Log
	if g.GetLog(index, &l) != nil {
		return 0
	}
	return l.Term
}

// ConfigurationBefore returns the configuration in force before the entry at index; it has no servers if that configuration is
// unknown.
func (g *Log) ConfigurationBefore(index uint64) raft.Configuration {
	return g.configs.before(index, g.snaps.Newest())
}

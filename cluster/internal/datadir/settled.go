package datadir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"

	"github.com/hashicorp/raft"
)

// Entries that are committed or applied are never cut. hashicorp/raft cuts them for a
// leader that has others, because no honest one can have; but whoever can send one request
// in a leader's name would end locks by it that were acknowledged. Such a request is refused
// before Raft sees it (cluster/scrutiny.go), and the log refuses for itself: the node goes on
// with what it has, says so, and acknowledges nothing of what it was sent.
//
// How much is committed Raft forgets when the process ends. log.settled says it again:
//
//	+--------+---------+----------+---------+---------+
//	| "SETL" | version | reserved | index   | crc32c  |
//	|        | 1 byte  | 3 bytes  | 8 bytes | 4 bytes |
//	+--------+---------+----------+---------+---------+
//
// in little endian. It is written now and then and not synced, so it may say less than is
// so, never more; if it is damaged or missing it says nothing.
const (
	settledMagic   = "SETL"
	settledVersion = 1
	settledLen     = 4 + 4 + 8 + 4
	// settledEvery is after how many writes to the log it is written.
	settledEvery = 16
)

// errCutsSettled: see above.
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

// openSettled reads log.settled and keeps it open.
func (g *Log) openSettled(d Files, path string) error {
	b, err := os.ReadFile(path)
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

// Settled is up to where the log is committed or applied, and stays as it is.
func (g *Log) Settled() uint64 { return max(g.noted.Load(), g.hooks.reached()) }

// noteSettled writes it, now and then; the caller holds mu. What is not on this disk yet is
// not in it.
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

// refuseCut fails if entries from an index on must stay. A snapshot may stand for them.
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

// TermAt is the term of an entry; 0 if it is not there.
func (g *Log) TermAt(index uint64) uint64 {
	var l raft.Log
	if g.GetLog(index, &l) != nil {
		return 0
	}
	return l.Term
}

// ConfigurationBefore is the configuration before an index; it has no servers if that is not known.
func (g *Log) ConfigurationBefore(index uint64) raft.Configuration {
	return g.configs.before(index, g.snaps.Newest())
}

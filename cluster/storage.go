package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// The data directory:
//
//	LOCK       held with flock(2) while a process uses the directory
//	node.json  whose directory it is, and whether its log is complete
//	raft.db    Raft's log, term and vote (bbolt)
//	snapshots/ the latest snapshots
const (
	lockFile = "LOCK"
	nodeFile = "node.json"
	logFile  = "raft.db"

	snapshotsKept = 2
)

// nodeRecord is the content of node.json.
type nodeRecord struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
	New    bool   `json:"new,omitempty"` // the log is not complete yet
}

const dataFormat = 1

// storage is an open data directory.
type storage struct {
	dir   string
	lock  *os.File
	bolt  *raftboltdb.BoltStore
	snaps *raft.FileSnapshotStore
}

func openStorage(dir, id string, logs hclog.Logger) (*storage, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory %s: %w; name another one with --data", dir, err)
	}
	st := &storage{dir: dir}
	if err := st.open(id, logs); err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

func (st *storage) open(id string, logs hclog.Logger) (err error) {
	if err := st.acquire(); err != nil {
		return err
	}
	if err := st.identify(id); err != nil {
		return err
	}
	if err := st.openLog(); err != nil {
		return err
	}
	if st.snaps, err = raft.NewFileSnapshotStoreWithLogger(st.dir, snapshotsKept, logs); err != nil {
		return fmt.Errorf("data directory %s: %w", st.dir, err)
	}
	return nil
}

// acquire makes sure that no other process uses the directory.
func (st *storage) acquire() error {
	path := filepath.Join(st.dir, lockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("data directory %s: %w; give this user the right to write there, or name another one with --data", st.dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("data directory %s is in use by another lockstep process: stop that one, or name another directory with --data", st.dir)
	}
	st.lock = f
	return nil
}

// identify checks that the directory belongs to this node, and marks a new one.
func (st *storage) identify(id string) error {
	path := filepath.Join(st.dir, nodeFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(st.dir, logFile)); err == nil {
			return fmt.Errorf("data directory %s has a log but no %s: restore the whole directory from a backup", st.dir, nodeFile)
		}
		return st.mark(id, true)
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", st.dir, err)
	}
	var rec nodeRecord
	if err := json.Unmarshal(b, &rec); err != nil || rec.ID == "" {
		return fmt.Errorf("data directory %s: %s is damaged: restore the whole directory from a backup, or delete it and let the node catch up from its peers", st.dir, nodeFile)
	}
	if rec.Format != dataFormat {
		return fmt.Errorf("data directory %s has format %d, this program knows %d: use the program that wrote it", st.dir, rec.Format, dataFormat)
	}
	if rec.ID != id {
		return fmt.Errorf("data directory %s belongs to node %q, not to %q: correct --id or --data", st.dir, rec.ID, id)
	}
	if rec.New {
		// A start was interrupted; Raft has not seen this log yet.
		if err := os.Remove(filepath.Join(st.dir, logFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("data directory %s: %w", st.dir, err)
		}
		return nil
	}
	if info, err := os.Stat(filepath.Join(st.dir, logFile)); errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		// Starting without the log would let this node vote twice in a term
		// and forget what it acknowledged.
		return fmt.Errorf("data directory %s has lost its log (%s): restore it from a backup, or remove this node from the cluster and join with an empty directory", st.dir, logFile)
	}
	return nil
}

// mark writes node.json: first as that of a new directory, and again when the
// log is complete. After a crash in between the log is made again.
func (st *storage) mark(id string, isNew bool) error {
	b, err := json.Marshal(nodeRecord{Format: dataFormat, ID: id, New: isNew})
	if err != nil {
		return err
	}
	if err := writeFileSync(filepath.Join(st.dir, nodeFile), append(b, '\n')); err != nil {
		return fmt.Errorf("data directory %s: %w", st.dir, err)
	}
	return nil
}

// writeFileSync replaces a file so that a crash leaves the old or the new one.
func writeFileSync(path string, b []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openLog opens the log. bbolt panics on some kinds of damage.
func (st *storage) openLog() (err error) {
	path := filepath.Join(st.dir, logFile)
	damaged := func(why any) error {
		return fmt.Errorf("data directory %s: the log %s is damaged (%v): restore the directory from a backup, or remove this node from the cluster and join with an empty directory", st.dir, logFile, why)
	}
	defer func() {
		if p := recover(); p != nil {
			err = damaged(p)
		}
	}()
	if err := checkBolt(path); err != nil {
		return damaged(err)
	}
	st.bolt, err = raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			// The lock is ours, so this is only a guard against tools.
			Timeout: time.Second,
			// The list of free pages is rebuilt at start instead of being
			// written with every append.
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
		},
	})
	if err != nil {
		return damaged(err)
	}
	// Touch both ends of the log: truncation shows here, not under load.
	var l raft.Log
	first, err := st.bolt.FirstIndex()
	if err == nil && first > 0 {
		err = st.bolt.GetLog(first, &l)
	}
	last, err2 := st.bolt.LastIndex()
	if err2 == nil && last > 0 {
		err2 = st.bolt.GetLog(last, &l)
	}
	if err = errors.Join(err, err2); err != nil {
		return damaged(err)
	}
	return nil
}

// checkBolt looks for a file that is shorter than bbolt says it is. Reading
// past its end through the memory map would kill the process.
func checkBolt(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("it has %d of %d bytes", info.Size(), tx.Size())
		}
		return nil
	})
}

func (st *storage) close() {
	if st.bolt != nil {
		st.bolt.Close()
	}
	if st.lock != nil {
		st.lock.Close() // releases the lock
	}
}

// fatalStable stops the node when the term or a vote cannot be written;
// hashicorp/raft would panic.
type fatalStable struct {
	raft.StableStore
	fatal func(error)
}

func (s fatalStable) Set(k, v []byte) error {
	return s.check(s.StableStore.Set(k, v))
}

func (s fatalStable) SetUint64(k []byte, v uint64) error {
	return s.check(s.StableStore.SetUint64(k, v))
}

func (s fatalStable) check(err error) error {
	if err != nil {
		s.fatal(fmt.Errorf("the term or a vote could not be written to disk: %w; free or repair the disk and start again", err))
	}
	return err
}

// raftLogger hands hashicorp/raft's log lines to slog.
func raftLogger(log *slog.Logger) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "raft", Level: hclog.Info, DisableTime: true, Output: raftLines{log},
	})
}

type raftLines struct{ log *slog.Logger }

// Write gets one line, such as "[WARN]  raft: heartbeat timeout reached: …".
func (w raftLines) Write(p []byte) (int, error) {
	line := string(p)
	level := slog.LevelDebug
	for prefix, l := range map[string]slog.Level{"[WARN]": slog.LevelInfo, "[ERROR]": slog.LevelWarn} {
		if len(line) > len(prefix) && line[:len(prefix)] == prefix {
			level = l
		}
	}
	if _, rest, ok := strings.Cut(line, "]"); ok {
		line = rest
	}
	w.log.Log(context.Background(), level, strings.TrimSpace(line))
	return len(p), nil
}

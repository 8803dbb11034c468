package cluster

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// The data directory. A directory that has lost its log is refused: a node that forgets its vote or
// its log can break the majority that it was part of. crash_test.go stops the disk at every step of
// what is done here and starts from what may be left.
//
//	LOCK       held with flock(2) while a process uses the directory
//	node.json  whose directory it is, and whether its log is complete; see nodeRecord
//	raft.db    Raft's term and vote (bbolt), and the log if --log-store is bolt
//	raft.last  how far the term and the vote have come; see votes.go
//	log/       Raft's log in segments (raft-wal)
//	log.last   how far the log reached; see guardedLog
//	log.settled up to where it is committed; see settled.go
//	snapshots/ the latest snapshots; see snapshotStore
const (
	lockFile = "LOCK"
	nodeFile = "node.json"
	boltFile = "raft.db"
	walDir   = "log"
	markFile = "log.last"

	settledPath = "log.settled"
)

// Whoever has lost part of what this node has acknowledged must not go on under
// its name: it would vote, and count, for what it no longer has.
const (
	adviceRejoin = "remove this node from the cluster and join with an empty directory (lockstep remove, then --join); if it was the only node, or a majority has lost its data, begin a new cluster from a backup (lockstep restore)"
)

const dataFormat = 1

// storage is an open data directory.
type storage struct {
	dir      string
	disk     disk
	rec      nodeRecord
	amending sync.Mutex   // held while rec is changed, and written
	naming   sync.RWMutex // guards rec and refused, and is never held while the disk is waited for
	lock     *os.File

	refused map[string]string // the directories of members that are not those they were met with

	bolt   *raftboltdb.BoltStore
	votes  *sealedVotes
	stable raft.StableStore // term and vote: votes, in bolt
	log    logStore
	guard  *guardedLog // the same
	snaps  *snapshotStore
}

// openStorage opens or makes a data directory. kind is its log store; empty
// takes the one that it has.
func openStorage(dir, id, kind string, logs hclog.Logger) (*storage, error) {
	return openStorageOn(systemDisk(), dir, id, kind, logs)
}

func openStorageOn(d disk, dir, id, kind string, logs hclog.Logger) (*storage, error) {
	if err := d.Mkdir(dir); err != nil {
		return nil, fmt.Errorf("data directory %s: %w; name another one with --data", dir, err)
	}
	st := &storage{dir: dir, disk: d}
	if err := st.open(id, kind, logs); err != nil {
		st.close()
		return nil, unusable(dir, err, err)
	}
	return st, nil
}

// unusable says why a directory cannot be opened: nothing is wrong with one that
// only lacks room, and nothing is known of one on a disk that does not work.
func unusable(dir string, err, otherwise error) error {
	if isFull(err) {
		return fmt.Errorf("data directory %s: the disk is full (%w); what it holds is intact: make room and start again", dir, err)
	}
	if isBroken(err) {
		return fmt.Errorf("data directory %s: the disk does not work (%w): repair it and start again; if it has lost what it held, %s", dir, err, adviceRejoin)
	}
	return otherwise
}

func (st *storage) open(id, kind string, logs hclog.Logger) (err error) {
	if err := st.acquire(); err != nil {
		return err
	}
	if err := st.identify(id, kind); err != nil {
		return err
	}
	if st.snaps, err = openSnapshots(st.dir, st.disk, logs); err != nil {
		return fmt.Errorf("data directory %s: %w", st.dir, err)
	}
	return st.openLog(logs)
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
func (st *storage) identify(id, kind string) error {
	path := filepath.Join(st.dir, nodeFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(st.dir, boltFile)); err == nil {
			return fmt.Errorf("data directory %s has a log but no %s: %s", st.dir, nodeFile, adviceRejoin)
		}
		return st.mark(nodeRecord{ID: id, Log: cmp.Or(kind, LogWAL), New: true, Directory: rand.Text()})
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", st.dir, err)
	}
	rec, ok := decodeRecord(b)
	if !ok {
		return fmt.Errorf("data directory %s: %s is damaged: %s", st.dir, nodeFile, adviceRejoin)
	}
	if rec.Format != dataFormat {
		return fmt.Errorf("data directory %s has format %d, this program knows %d: its data is intact; upgrade this node's program and start it again", st.dir, rec.Format, dataFormat)
	}
	if rec.ID != id {
		return fmt.Errorf("data directory %s belongs to node %q, not to %q: correct --id or --data", st.dir, rec.ID, id)
	}
	if rec.New {
		// A start was interrupted; Raft has not seen this log yet.
		for _, part := range []string{boltFile, votesFile, walDir, markFile, settledPath, snapshotDir} {
			if err := st.disk.Remove(filepath.Join(st.dir, part)); err != nil {
				return fmt.Errorf("data directory %s: %w", st.dir, err)
			}
		}
		return st.mark(nodeRecord{ID: id, Log: cmp.Or(kind, LogWAL), New: true, Directory: rand.Text()})
	}
	if kind != "" && kind != rec.Log {
		return fmt.Errorf("data directory %s keeps its log in %q, not in %q: leave out --log-store, or remove this node from the cluster and join with an empty directory", st.dir, rec.Log, kind)
	}
	if rec.Log != LogWAL && rec.Log != LogBolt {
		return fmt.Errorf("data directory %s: %s names the log store %q: use the program that wrote it", st.dir, nodeFile, rec.Log)
	}
	st.rec = rec
	if err := st.complete(); err != nil {
		return err
	}
	if rec.Directory == "" { // of a version that did not name it
		rec.Directory = rand.Text()
		return st.mark(rec)
	}
	return nil
}

// complete checks that no part of the log is missing: starting without it
// would let this node vote twice in a term and forget what it acknowledged.
func (st *storage) complete() error {
	parts := []string{boltFile, markFile}
	if st.rec.Log == LogWAL {
		parts = append(parts, walDir)
	}
	if st.rec.Votes {
		parts = append(parts, votesFile)
	}
	for _, part := range parts {
		info, err := os.Stat(filepath.Join(st.dir, part))
		if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
			return fmt.Errorf("data directory %s has lost its log (%s): %s", st.dir, part, adviceRejoin)
		}
	}
	return nil
}

// mark writes node.json: first as that of a new directory, and again when the
// log is complete. After a crash in between the log is made again.
func (st *storage) mark(rec nodeRecord) error {
	rec.Format = dataFormat
	b, err := rec.encode()
	if err != nil {
		return err
	}
	if err := replaceFile(st.disk, filepath.Join(st.dir, nodeFile), b); err != nil {
		return fmt.Errorf("data directory %s: %w", st.dir, err)
	}
	st.naming.Lock()
	st.rec = rec
	st.naming.Unlock()
	return nil
}

// amend changes node.json; change reports whether there is anything to write. A
// disk may take its time, and requests of peers look at the record.
func (st *storage) amend(change func(rec *nodeRecord) (bool, error)) error {
	st.amending.Lock()
	defer st.amending.Unlock()
	rec := st.rec // only whoever holds amending changes it
	write, err := change(&rec)
	if err != nil || !write {
		return err
	}
	return st.mark(rec)
}

// finish declares a new directory's log complete: that of a member of a cluster,
// or of a node that has yet to join one.
func (st *storage) finish(cluster string, joining bool) error {
	return st.amend(func(rec *nodeRecord) (bool, error) {
		was := rec.New
		if was {
			rec.New, rec.Cluster, rec.Joining = false, cluster, joining
		}
		was = was || !rec.Votes // of version 0.1.0
		rec.Votes = true
		return was, nil
	})
}

// belong notes that the node is a member of a cluster now.
func (st *storage) belong(cluster string) error {
	return st.amend(func(rec *nodeRecord) (bool, error) {
		write := rec.Cluster != cluster || rec.Joining
		rec.Cluster, rec.Joining = cluster, false
		return write, nil
	})
}

// cluster is the name of the cluster that the directory belongs to.
func (st *storage) cluster() string {
	st.naming.RLock()
	defer st.naming.RUnlock()
	return st.rec.Cluster
}

// joining reports whether the node is yet to become a member.
func (st *storage) joining() bool {
	st.naming.RLock()
	defer st.naming.RUnlock()
	return st.rec.Joining
}

// snapshotConfiguration is the index of the configuration in the latest
// snapshot; 0 if there is none.
func (st *storage) snapshotConfiguration() uint64 {
	list, err := st.snaps.List()
	if err != nil || len(list) == 0 {
		return 0
	}
	return list[0].ConfigurationIndex
}

// openLog opens the term, the vote and the log. bbolt panics on some kinds of
// damage.
func (st *storage) openLog(logs hclog.Logger) (err error) {
	part := boltFile
	damaged := func(why any) error {
		if err, ok := why.(error); ok && (isFull(err) || isBroken(err)) {
			return err
		}
		return fmt.Errorf("data directory %s: its log (%s) is damaged (%v): %s", st.dir, part, why, adviceRejoin)
	}
	defer func() {
		if p := recover(); p != nil {
			err = damaged(p)
		}
	}()
	if err := st.openBolt(); err != nil {
		return damaged(err)
	}
	log := logStore(boltLog{st.bolt})
	if st.rec.Log == LogWAL {
		part = walDir
		if log, err = openWAL(st.disk, filepath.Join(st.dir, walDir), reached(filepath.Join(st.dir, markFile)), logs); err != nil {
			return damaged(err)
		}
	}
	st.log = log
	guarded, err := openGuarded(st.disk, log, filepath.Join(st.dir, markFile), st.rec.New, st.snaps)
	if err != nil {
		return damaged(err)
	}
	st.log, st.guard = guarded, guarded
	if err := guarded.openSettled(st.disk, filepath.Join(st.dir, settledPath)); err != nil {
		return damaged(err)
	}
	st.snaps.outgrown = guarded.outgrown
	if err := guarded.join(); err != nil {
		return damaged(err)
	}
	return nil
}

func (st *storage) openBolt() (err error) {
	path := filepath.Join(st.dir, boltFile)
	if err := checkBolt(path); err != nil {
		return err
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
		return err
	}
	st.votes, err = openVotes(st.disk, st.disk.stable(st.bolt), filepath.Join(st.dir, votesFile))
	st.stable = st.votes
	return err
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
	if st.log != nil {
		st.log.Close()
	}
	if st.bolt != nil {
		st.votes.close()
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

// Raft's names.
const (
	lastVoteTerm      = "LastVoteTerm"
	lastVoteCandidate = "LastVoteCand"
)

func (s fatalStable) Set(k, v []byte) error {
	return s.check(s.StableStore.Set(k, v))
}

// SetUint64 forgets the candidate of the last vote before the term of the next one
// is written. Raft writes the two one after the other, and a process that is killed
// in between would find the new term beside the old candidate: it would repeat to that
// one a vote that it never gave, without a look at its log.
func (s fatalStable) SetUint64(k []byte, v uint64) error {
	if string(k) == lastVoteTerm {
		if err := s.Set([]byte(lastVoteCandidate), nil); err != nil {
			return err
		}
	}
	return s.check(s.StableStore.SetUint64(k, v))
}

func (s fatalStable) check(err error) error {
	if err != nil {
		s.fatal(fmt.Errorf("the term or a vote could not be written to disk: %w; free or repair the disk and start again", err))
	}
	return err
}

package datadir

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
	bolterrors "go.etcd.io/bbolt/errors"
)

// The files; see the package comment.
const (
	lockFile = "LOCK"
	nodeFile = "node.json"
	boltFile = "raft.db"
	walDir   = "log"
	markFile = "log.last"

	settledPath = "log.settled"
)

// AdviceRejoin is for a directory that has lost acknowledged entries: the node's vote could elect a leader without these entries.
const AdviceRejoin = "remove this node from the cluster and join with an empty directory (lockstep remove, then --join); if it was the only node, or a majority has lost its data, begin a new cluster from a backup (lockstep restore)"

const dataFormat = 1

// Dir is an open data directory.
type Dir struct {
	Log       *Log
	Stable    raft.StableStore // term and vote
	Snapshots *Snapshots

	path     string
	disk     Disk
	rec      nodeRecord
	amending sync.Mutex   // held while rec is changed and written to node.json
	naming   sync.RWMutex // guards rec and refused; never held during disk I/O
	lock     *os.File
	locked   os.FileInfo // of lock

	refused map[string]string // by member id: the wrong directory with which a node of that id was refused last

	bolt  *raftboltdb.BoltStore
	votes *sealedVotes // keeps its values in bolt; Stable wraps it
	store logStore     // Log wraps it

	voting underway // a write of the term or the vote
}

// Open opens the data directory at path; if there is none yet, Open makes it.
func Open(path string, o Options) (*Dir, error) {
	if err := makePlace(o.Disk, path); err != nil {
		return nil, fmt.Errorf("data directory %s: %w; name another one with --data", path, err)
	}
	d := &Dir{path: path, disk: o.Disk}
	if err := d.open(o); err != nil {
		d.Close()
		return nil, d.Unusable(err, err)
	}
	d.hook(o.Hooks)
	return d, nil
}

// Unusable turns err into advice for the operator. If err means that the data is damaged, Unusable returns the parameter otherwise.
func (d *Dir) Unusable(err, otherwise error) error {
	switch {
	case isFull(err):
		return fmt.Errorf("data directory %s: the disk is full (%w); what it holds is intact: make room and start again", d.path, err)
	case comesFrom(err, syscall.EROFS):
		return fmt.Errorf("data directory %s is mounted read-only: mount it writable; what it holds is intact: %w", d.path, err)
	case comesFrom(err, syscall.EFBIG):
		return fmt.Errorf("data directory %s: %w; what it holds is intact: raise the limit of file sizes (ulimit -f, LimitFSIZE=) and start again", d.path, err)
	case isBroken(err):
		return fmt.Errorf("data directory %s: the disk does not work (%w): repair it and start again; if it has lost what it held, %s", d.path, err, AdviceRejoin)
	case isBarred(err):
		return fmt.Errorf("data directory %s: %w; what it holds is intact: give all its files to the user that runs this node (chown -R USER %s), or start the node as the user to whom they belong", d.path, err, d.path)
	case isScarce(err):
		return fmt.Errorf("data directory %s: %w; what it holds is intact: raise the limit (ulimit -n for open files) and start again", d.path, err)
	case errors.Is(err, errInUse):
		return fmt.Errorf("data directory %s: %w; what it holds is intact: stop that process and start again", d.path, err)
	case isRefused(err):
		return fmt.Errorf("data directory %s: the file system refuses what a node needs (%w), which says nothing of what the directory holds: mount a local file system with locks and shared memory maps, such as ext4 or xfs, or name a directory there with --data", d.path, err)
	}
	return otherwise
}

// errInUse says that bbolt's lock of a file is taken.
var errInUse = errors.New("another process has this file open")

func inUse(path string) error { return fmt.Errorf("%s: %w", filepath.Base(path), errInUse) }

// ofData reports whether err means damaged data, and not one of the causes for which Unusable has advice.
func ofData(err error) bool {
	return !isFull(err) && !isBroken(err) && !isBarred(err) && !isScarce(err) && !isRefused(err) && !errors.Is(err, errInUse)
}

func (d *Dir) open(o Options) (err error) {
	if err := checkPlain(d.path); err != nil {
		return err
	}
	if !o.Unfinished {
		if d.lock, err = acquire(d.path); err != nil {
			return err
		}
		if d.locked, err = d.lock.Stat(); err != nil {
			return fmt.Errorf("data directory %s: %w", d.path, err)
		}
		if err := cmp.Or(checkRestored(d.path), checkRecovered(d.path)); err != nil {
			return err
		}
	}
	if err := d.identify(o.ID, o.LogStore); err != nil {
		return err
	}
	if d.Snapshots, err = openSnapshots(d.path, d.disk, o.Lines); err != nil {
		return fmt.Errorf("data directory %s: %w", d.path, err)
	}
	return d.openLog(o.Lines)
}

// acquire locks a directory against other processes until the returned file is closed. It fails
// if another process has locked the directory.
func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(path, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w; give this user the right to write there, or name another one with --data", path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory %s cannot be locked: %w; it needs a file system with flock(2), so name one on a local disk with --data", path, err)
		}
		return nil, fmt.Errorf("data directory %s is in use by another lockstep process: stop that one, or name another directory with --data", path)
	}
	return f, nil
}

// identify checks the directory's node id and its kind of log store ("": any). In a new directory, identify writes node.json.
func (d *Dir) identify(id, kind string) error {
	path := filepath.Join(d.path, nodeFile)
	b, err := readSmall(path)
	if errors.Is(err, os.ErrNotExist) {
		// A node writes node.json first. A new node.json beside other files would make the next start delete those files.
		if err := d.unused(); err != nil {
			return err
		}
		return d.mark(nodeRecord{ID: id, Log: cmp.Or(kind, LogWAL), New: true, Directory: rand.Text()})
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", d.path, err)
	}
	rec, ok := decodeRecord(b)
	if !ok {
		return fmt.Errorf("data directory %s: %s is damaged: %s", d.path, nodeFile, AdviceRejoin)
	}
	if rec.Format != dataFormat {
		return fmt.Errorf("data directory %s has format %d, this program knows %d: its data is intact; upgrade this node's program and start it again", d.path, rec.Format, dataFormat)
	}
	if rec.ID != id {
		return fmt.Errorf("data directory %s belongs to node %q, not to %q: correct --id or --data", d.path, rec.ID, id)
	}
	if rec.New {
		// An earlier start was interrupted before Raft used this log, so begin again with a new one.
		for _, part := range []string{boltFile, votesFile, walDir, markFile, settledPath, snapshotDir} {
			if err := d.disk.Remove(filepath.Join(d.path, part)); err != nil {
				return fmt.Errorf("data directory %s: %w", d.path, err)
			}
		}
		return d.mark(nodeRecord{ID: id, Log: cmp.Or(kind, LogWAL), New: true, Directory: rand.Text()})
	}
	if kind != "" && kind != rec.Log {
		return fmt.Errorf("data directory %s keeps its log in %q, not in %q: leave out --log-store, or remove this node from the cluster and join with an empty directory", d.path, rec.Log, kind)
	}
	if rec.Log != LogWAL && rec.Log != LogBolt {
		return fmt.Errorf("data directory %s: %s names the log store %q: use the program that wrote it", d.path, nodeFile, rec.Log)
	}
	d.rec = rec
	if err := d.complete(); err != nil {
		return err
	}
	if rec.Directory == "" { // written by an earlier version, which did not name directories
		rec.Directory = rand.Text()
		return d.mark(rec)
	}
	return nil
}

// unused fails if the directory has a file that a node makes only after node.json.
func (d *Dir) unused() error {
	for _, part := range ownFiles {
		_, err := os.Lstat(filepath.Join(d.path, part))
		if err == nil {
			return fmt.Errorf("data directory %s has %s but no %s: if a node has used it, %s; if not, name another directory with --data", d.path, part, nodeFile, AdviceRejoin)
		}
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("data directory %s: %w", d.path, err)
		}
	}
	return nil
}

// complete fails if a file of the log, the term or the vote is missing or empty: the node might forget entries, or vote twice.
func (d *Dir) complete() error {
	parts := []string{boltFile, markFile}
	if d.rec.Log == LogWAL {
		parts = append(parts, walDir)
	}
	if d.rec.Votes {
		parts = append(parts, votesFile)
	}
	for _, part := range parts {
		info, err := os.Stat(filepath.Join(d.path, part))
		if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
			return fmt.Errorf("data directory %s has lost its log (%s): %s", d.path, part, AdviceRejoin)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mark writes rec to node.json. While rec.New is set, from identify to Finish, a start makes the log anew.
func (d *Dir) mark(rec nodeRecord) error {
	rec.Format = dataFormat
	b, err := rec.encode()
	if err != nil {
		return err
	}
	if err := replaceFile(d.disk, filepath.Join(d.path, nodeFile), b); err != nil {
		return fmt.Errorf("data directory %s: %w", d.path, err)
	}
	d.naming.Lock()
	d.rec = rec
	d.naming.Unlock()
	return nil
}

// amend changes node.json if the function change says so. Requests of peers need the lock naming, so amend writes without it.
func (d *Dir) amend(change func(rec *nodeRecord) (bool, error)) error {
	d.amending.Lock()
	defer d.amending.Unlock()
	rec := d.rec // without naming, because after Open d.rec changes only while amending is held
	write, err := change(&rec)
	if err != nil || !write {
		return err
	}
	return d.mark(rec)
}

// Finish records that a new directory is complete, its cluster, and whether the node has yet to join; in any directory, that raft.last
// exists.
func (d *Dir) Finish(cluster string, joining bool) error {
	return d.amend(func(rec *nodeRecord) (bool, error) {
		was := rec.New
		if was {
			rec.New, rec.Cluster, rec.Joining = false, cluster, joining
		}
		was = was || !rec.Votes // version 0.1.0 wrote the record, without Votes
		rec.Votes = true
		return was, nil
	})
}

// ErrOtherCluster means that a node belongs to another cluster than it should.
var ErrOtherCluster = errors.New("cluster: this node belongs to another cluster")

// Bind records the name of the cluster that the node joins; the node is no member yet. Bind fails with ErrOtherCluster if
// another name is recorded.
func (d *Dir) Bind(cluster string) error {
	return d.amend(func(rec *nodeRecord) (bool, error) {
		if rec.Cluster != "" && rec.Cluster != cluster {
			return false, ErrOtherCluster
		}
		write := rec.Cluster != cluster
		rec.Cluster = cluster
		return write, nil
	})
}

// Unbind forgets the cluster that the node was to join. The caller must know that the node has taken nothing of that cluster.
func (d *Dir) Unbind() error {
	return d.amend(func(rec *nodeRecord) (bool, error) {
		write := rec.Joining && rec.Cluster != ""
		if write {
			rec.Cluster = ""
		}
		return write, nil
	})
}

// SetCluster records that the node is now a member of the cluster with this name. It fails with ErrOtherCluster if another
// name is recorded.
func (d *Dir) SetCluster(cluster string) error {
	return d.amend(func(rec *nodeRecord) (bool, error) {
		if rec.Cluster != "" && rec.Cluster != cluster {
			return false, ErrOtherCluster
		}
		write := rec.Cluster != cluster || rec.Joining
		rec.Cluster, rec.Joining = cluster, false
		return write, nil
	})
}

// Cluster returns the name of the cluster to which the directory belongs; "" if it is not recorded.
func (d *Dir) Cluster() string {
	d.naming.RLock()
	defer d.naming.RUnlock()
	return d.rec.Cluster
}

// Joining reports whether the node has yet to become a member of the cluster that it joins.
func (d *Dir) Joining() bool {
	d.naming.RLock()
	defer d.naming.RUnlock()
	return d.rec.Joining
}

// SnapshotConfiguration returns the index of the configuration in the newest
// snapshot; 0 if there is no snapshot, or if the snapshots cannot be listed.
func (d *Dir) SnapshotConfiguration() uint64 {
	list, err := d.Snapshots.List()
	if err != nil || len(list) == 0 {
		return 0
	}
	return list[0].ConfigurationIndex
}

// openLog opens the term, the vote and the log. bbolt panics on some kinds of damage; openLog returns such a panic as an error.
func (d *Dir) openLog(logs hclog.Logger) (err error) {
	part := boltFile
	damaged := func(why any) error {
		if err, ok := why.(error); ok && !ofData(err) {
			return err
		}
		return fmt.Errorf("data directory %s: its log (%s) is damaged (%v): %s", d.path, part, why, AdviceRejoin)
	}
	defer func() {
		if p := recover(); p != nil {
			err = damaged(p)
		}
	}()
	if err := d.openBolt(); err != nil {
		return damaged(err)
	}
	store := logStore(boltLog{d.bolt})
	if d.rec.Log == LogWAL {
		part = walDir
		if store, err = openWAL(d.disk, filepath.Join(d.path, walDir), reached(filepath.Join(d.path, markFile)), logs); err != nil {
			return damaged(err)
		}
	}
	d.store = store
	log, err := openGuarded(d.disk, store, filepath.Join(d.path, markFile), d.rec.New, d.Snapshots)
	if err != nil {
		return damaged(err)
	}
	d.Log = log
	if err := log.openSettled(d.disk, filepath.Join(d.path, settledPath)); err != nil {
		return damaged(err)
	}
	d.Snapshots.outgrown = log.outgrown
	if err := log.join(); err != nil {
		return damaged(err)
	}
	return nil
}

func (d *Dir) openBolt() (err error) {
	path := filepath.Join(d.path, boltFile)
	if err := checkBolt(path); err != nil {
		return err
	}
	d.bolt, err = raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			// This process already holds LOCK, so only other tools can hold bbolt's lock.
			Timeout: time.Second,
			// bbolt rebuilds the list of free pages at the start, instead of
			// writing it in every transaction.
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
		},
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return inUse(path)
	}
	if err != nil {
		return err
	}
	d.votes, err = openVotes(d.disk, d.disk.Stable(d.bolt), filepath.Join(d.path, votesFile))
	return err
}

// Close closes the files and lets other processes use the directory.
func (d *Dir) Close() {
	switch {
	case d.Log != nil:
		d.Log.Close()
	case d.store != nil:
		d.store.Close()
	}
	if d.bolt != nil {
		d.votes.close()
		d.bolt.Close()
	}
	if d.lock != nil {
		d.lock.Close() // releases the lock
	}
}

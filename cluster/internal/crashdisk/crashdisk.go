// Package crashdisk has disks for tests of data directories: Disk knows what a power failure would leave of a directory,
// Gate delays syncs or lets them fail, and UnsyncedFiles leaves syncs out.
package crashdisk

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
)

// Files of the data directory that a Disk treats in a special way.
const (
	boltFile  = "raft.db"
	votesFile = "raft.last"
	walDir    = "log"
)

// SegmentSize is the size of a full segment of the log on a Disk. It is small, so that even a short log has many segments.
const SegmentSize = 8 << 10

// Disk counts each change and each sync as a step, and its power fails in a chosen step. Image makes what that leaves, from the
// files now and as of the last sync. bbolt writes its files without the Disk, so each change of such a file is one step.
type Disk struct {
	// Quiet hides the power failure from writes of Raft's term and vote, at whose errors Raft would panic. That is safe: the log
	// takes no entry then.
	Quiet bool

	base string
	root *inode

	mu     sync.Mutex
	steps  []string
	stopAt int // the power fails in the step with this number; 0: never
	down   bool
}

// ErrPower is the error of the step in which the power fails, and of all later changes and syncs.
var ErrPower = errors.New("the power has failed")

// inode is a file or a directory, as it is now and as of its last sync.
type inode struct {
	dir           bool
	now, synced   []byte
	names, stored map[string]*inode
}

func newInode(dir bool) *inode {
	return &inode{dir: dir, names: map[string]*inode{}, stored: map[string]*inode{}}
}

// New returns an empty disk in the directory base. The power fails in step stopAt, the first being 1; 0: never.
func New(base string, stopAt int) *Disk {
	return &Disk{base: base, root: newInode(true), stopAt: stopAt}
}

// As returns the disk in the form that package datadir uses.
func (d *Disk) As() datadir.Disk {
	return datadir.Disk{
		Files:       crashFiles{d},
		SegmentSize: SegmentSize,
		Meta:        func(m types.MetaStore) types.MetaStore { return crashMeta{m, d} },
		Stable:      func(s raft.StableStore) raft.StableStore { return crashStable{s, d} },
	}
}

// begin counts a step, and fails without power. done is false if the power fails in this step. The caller holds mu.
func (d *Disk) begin(format string, args ...any) (done bool, err error) {
	if d.down {
		return false, ErrPower
	}
	d.steps = append(d.steps, fmt.Sprintf(format, args...))
	if len(d.steps) == d.stopAt {
		d.down = true
	}
	return !d.down, nil
}

func (d *Disk) rel(path string) string {
	rel, err := filepath.Rel(d.base, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		panic(path + " is not on this disk")
	}
	return rel
}

// lookup returns the directory that holds path, and the name of path in that directory.
func (d *Disk) lookup(path string) (dir *inode, name string) {
	dir, rel := d.root, d.rel(path)
	for {
		first, rest, more := strings.Cut(rel, string(filepath.Separator))
		if !more {
			return dir, first
		}
		if dir.names[first] == nil { // other code has made this directory
			dir.names[first] = newInode(true)
		}
		dir, rel = dir.names[first], rest
	}
}

func (d *Disk) find(path string) *inode {
	if d.rel(path) == "." {
		return d.root
	}
	dir, name := d.lookup(path)
	return dir.names[name]
}

// Base returns the real directory in which the disk works.
func (d *Disk) Base() string { return d.base }

// Down reports whether the power has failed.
func (d *Disk) Down() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.down
}

// Steps returns the description of each step. If the power has failed, it failed in the last step.
func (d *Disk) Steps() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.steps)
}

// Resume gives the power back for good. Nothing that was written is lost, as if only the process had been killed.
func (d *Disk) Resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down, d.stopAt = false, 0
}

// act counts a step, changes the inodes by picture and the real files by real. If the power fails in this step, only picture
// runs.
func (d *Disk) act(real func() error, picture func(), format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	done, err := d.begin(format, args...)
	if err != nil {
		return err
	}
	picture()
	if !done {
		return ErrPower
	}
	return real()
}

// crashFiles implements datadir.Files: the files that lockstep itself writes.
type crashFiles struct{ d *Disk }

func (c crashFiles) Create(path string) (datadir.File, error) {
	var f *os.File
	node := newInode(false)
	err := c.d.act(func() (err error) {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
		return err
	}, func() {
		dir, name := c.d.lookup(path)
		if old := dir.names[name]; old != nil {
			node = old
			node.now = nil
		}
		dir.names[name] = node
	}, "create %s", c.d.rel(path))
	if err != nil {
		return nil, err
	}
	return &crashFile{File: f, node: node, d: c.d, name: c.d.rel(path)}, nil
}

func (c crashFiles) Open(path string) (datadir.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return &crashFile{File: f, node: c.d.find(path), d: c.d, name: c.d.rel(path)}, nil
}

func (c crashFiles) Mkdir(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return c.d.act(func() error { return os.Mkdir(path, 0o700) }, func() {
		dir, name := c.d.lookup(path)
		dir.names[name] = newInode(true)
	}, "mkdir %s", c.d.rel(path))
}

func (c crashFiles) Rename(from, to string) error {
	return c.d.act(func() error { return os.Rename(from, to) }, func() {
		dir, name := c.d.lookup(from)
		there, as := c.d.lookup(to)
		there.names[as] = dir.names[name]
		delete(dir.names, name)
	}, "rename %s %s", c.d.rel(from), c.d.rel(to))
}

func (c crashFiles) Remove(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return nil
	}
	return c.d.act(func() error { return os.RemoveAll(path) }, func() {
		dir, name := c.d.lookup(path)
		delete(dir.names, name)
	}, "remove %s", c.d.rel(path))
}

func (c crashFiles) SyncDir(path string) error {
	return c.d.act(func() error { return nil }, func() {
		if node := c.d.find(path); !c.d.down {
			node.stored = maps.Clone(node.names)
		}
	}, "sync directory %s", c.d.rel(path))
}

// Free always says that there is room: a Disk loses its power, but it does not fill up.
func (crashFiles) Free(string) (int64, error) { return 1 << 40, nil }

// crashFile is an open file.
type crashFile struct {
	*os.File
	node *inode
	d    *Disk
	name string
	at   int64
}

func (f *crashFile) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.at)
	f.at += int64(n)
	return n, err
}

func (f *crashFile) WriteAt(p []byte, at int64) (n int, err error) {
	err = f.d.act(func() (err error) {
		n, err = f.File.WriteAt(p, at)
		return err
	}, func() {
		if grow := int(at) + len(p) - len(f.node.now); grow > 0 {
			f.node.now = append(f.node.now, make([]byte, grow)...)
		}
		copy(f.node.now[at:], p)
	}, "write %s %d+%d", f.name, at, len(p))
	if f.name == votesFile { // Raft's term or vote is being stored
		err = f.d.silent(err)
	}
	return n, err
}

func (f *crashFile) Sync() error {
	return f.d.act(func() error { return nil }, func() {
		if !f.d.down {
			f.node.synced = append([]byte(nil), f.node.now...)
		}
	}, "sync %s", f.name)
}

func (f *crashFile) SyncData() error { return f.Sync() }

func (f *crashFile) Reserve(from, length int64, _ bool) error {
	size := int(from + length)
	return f.d.act(func() error { return f.Truncate(int64(size)) }, func() {
		if grow := size - len(f.node.now); grow > 0 {
			f.node.now = append(f.node.now, make([]byte, grow)...)
		}
	}, "reserve %s %d", f.name, size)
}

// crashMeta is raft-wal's list of segments; each change is a step.
type crashMeta struct {
	types.MetaStore
	d *Disk
}

func (m crashMeta) CommitState(s types.PersistentState) error {
	return m.d.act(func() error { return m.MetaStore.CommitState(s) }, func() {}, "commit %s", metadb.FileName)
}

// crashStable is the store of the term and the vote; each change is a step.
type crashStable struct {
	raft.StableStore
	d *Disk
}

func (s crashStable) Set(k, v []byte) error {
	return s.d.silent(s.d.act(func() error { return s.StableStore.Set(k, v) }, func() {}, "set %s", k))
}

func (s crashStable) SetUint64(k []byte, v uint64) error {
	return s.d.silent(s.d.act(func() error { return s.StableStore.SetUint64(k, v) }, func() {}, "set %s=%d", k, v))
}

// silent returns nil instead of ErrPower if Quiet is set.
func (d *Disk) silent(err error) error {
	if d.Quiet && errors.Is(err, ErrPower) {
		return nil
	}
	return err
}

// Outcome says which changes survive a power failure although they were not synced.
type Outcome struct {
	Name            string
	names, contents bool   // whether unsynced names survive, and unsynced contents
	torn            uint32 // not 0: each sector is either as it is now or as of the last sync; the choice is random, with this seed
}

// Outcomes are the outcomes that tests try.
var Outcomes = []Outcome{
	{Name: "nothing unsynced"},
	{Name: "names only", names: true},
	{Name: "contents only", contents: true},
	{Name: "everything", names: true, contents: true},
	{Name: "torn", names: true, torn: 1},
	{Name: "torn otherwise", torn: 2},
}

// Image makes a directory at the path in the parameter to. The directory has what a power failure would leave now, with the outcome o.
func (d *Disk) Image(to string, o Outcome) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.root.image(to, o); err != nil {
		return err
	}
	// bbolt's files are as their last transaction has left them.
	for _, path := range []string{boltFile, filepath.Join(walDir, metadb.FileName)} {
		b, err := os.ReadFile(filepath.Join(d.base, path))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, path)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, path), b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *inode) image(path string, o Outcome) error {
	if !n.dir {
		return os.WriteFile(path, n.content(path, o), 0o600)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	names := n.stored
	if o.names {
		names = n.names
	}
	for name, child := range names {
		if err := child.image(filepath.Join(path, name), o); err != nil {
			return err
		}
	}
	return nil
}

// sector is the number of bytes that a disk writes either completely or not at all.
const sector = 512

func (n *inode) content(path string, o Outcome) []byte {
	switch {
	case o.contents:
		return n.now
	case o.torn == 0:
		return n.synced
	}
	b := append([]byte(nil), n.now...)
	for at := 0; at < len(b); at += sector {
		h := fnv.New32a()
		fmt.Fprint(h, filepath.Base(path), at, o.torn)
		if h.Sum32()%2 == 0 {
			end := min(at+sector, len(b))
			clear(b[at:end])
			if at < len(n.synced) {
				copy(b[at:end], n.synced[at:])
			}
		}
	}
	return b
}

package datadir

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/raftfsm"
)

// Snapshots on disk, each in a directory of its own:
//
//	snapshots/<term>-<index>-<number>/state.bin   raftfsm/snapshot.go
//	                                 /meta.json   Raft's metadata of the snapshot
//
// meta.json is one line of JSON and, from format 1 on, a second line with the CRC-32C of the first in hexadecimal. A snapshot loses the
// ".tmp" at the end of its directory's name when all of it is on the disk.
//
// hashicorp/raft's own snapshot store makes one long sync, which delays the log's, and does not check whether the content can be
// restored.
const (
	snapshotDir   = "snapshots"
	stateFile     = "state.bin"
	metaFile      = "meta.json"
	unfinished    = ".tmp"
	metaFormat    = 1
	snapshotsKept = 2

	// afterRead is how long after the last read of a snapshot the log keeps the entries behind it, which the reader needs next.
	afterRead = 10 * time.Second

	// syncBytes is how much of a snapshot is written between two syncs.
	syncBytes = 1 << 20
)

// snapshotMeta is the content of meta.json.
type snapshotMeta struct {
	raft.SnapshotMeta
	CRC    []byte // CRC-64 (ECMA) of state.bin
	Format int    `json:",omitempty"` // 0: the format of hashicorp/raft's own store
}

var crc64Table = crc64.MakeTable(crc64.ECMA)

// Snapshots keeps the latest two snapshots.
type Snapshots struct {
	dir  string
	disk Files
	log  hclog.Logger
	pace func() *pace // makes the pace for writing a snapshot; nil: write as fast as the disk can
	// clock returns the monotonic time. nil: no node runs on this directory, so no snapshot is sent.
	clock func() time.Duration
	// outgrown is Log.outgrown. nil: the log is not open yet.
	outgrown func(index, term uint64) (bool, error)
	unread   error // why the disk could not read a snapshot at the start; nil: it could read all

	mu      sync.Mutex
	list    []snapshotMeta           // whole snapshots, the newest first
	spoiled []string                 // ids of damaged and unreadable snapshots, and of those that could not be deleted
	number  uint64                   // number of the next snapshot
	read    map[uint64]time.Duration // time of the last read of a snapshot, by the snapshot's index
}

var _ raft.SnapshotStore = (*Snapshots)(nil)

func (s *Snapshots) sort() {
	slices.SortFunc(s.list, func(a, b snapshotMeta) int {
		_, _, m, _ := parseSnapshotID(a.ID)
		_, _, n, _ := parseSnapshotID(b.ID)
		return -cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Index, b.Index), cmp.Compare(m, n))
	})
}

func parseSnapshotID(id string) (term, index, number uint64, ok bool) {
	n, err := fmt.Sscanf(id, "%d-%d-%d", &term, &index, &number)
	return term, index, number, err == nil && n == 3 && id == snapshotID(term, index, number)
}

func snapshotID(term, index, number uint64) string {
	return fmt.Sprintf("%d-%d-%d", term, index, number)
}

// verify reads all of a snapshot, checks it, and returns its metadata.
func (s *Snapshots) verify(name string) (snapshotMeta, error) {
	b, err := readSmall(filepath.Join(s.dir, name, metaFile))
	if err != nil {
		return snapshotMeta{}, err
	}
	meta, err := decodeMeta(b)
	if err != nil {
		return meta, err
	}
	if term, index, _, _ := parseSnapshotID(name); meta.ID != name || meta.Term != term || meta.Index != index {
		return meta, fmt.Errorf("%s describes another snapshot", metaFile)
	}
	f, err := os.Open(filepath.Join(s.dir, name, stateFile))
	if err != nil {
		return meta, err
	}
	defer f.Close()
	sum, check := crc64.New(crc64Table), raftfsm.NewChecker()
	n, err := io.CopyBuffer(io.MultiWriter(sum, check), struct{ io.Reader }{f}, make([]byte, 1<<18))
	switch {
	case err != nil:
		return meta, err
	case n != meta.Size || !bytes.Equal(sum.Sum(nil), meta.CRC):
		return meta, errors.New(stateFile + " is not what was written")
	}
	return meta, check.Check()
}

func (m *snapshotMeta) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(append(b, '\n'), "%08x\n", crc32.Checksum(b, markTable)), nil
}

func decodeMeta(b []byte) (meta snapshotMeta, err error) {
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	if err := json.Unmarshal(line, &meta); err != nil {
		return meta, fmt.Errorf("%s: %w", metaFile, err)
	}
	if meta.Format == 0 && len(rest) == 0 {
		return meta, nil
	}
	if string(rest) != fmt.Sprintf("%08x\n", crc32.Checksum(line, markTable)) {
		return meta, errors.New(metaFile + " is not what was written")
	}
	if meta.Format > metaFormat {
		return meta, fmt.Errorf("%w (%s format %d, this program knows %d): its data is intact; upgrade this node's program and start it again",
			raftfsm.ErrNewer, metaFile, meta.Format, metaFormat)
	}
	return meta, nil
}

// Newest returns the metadata of the newest snapshot; zero if there is none.
func (s *Snapshots) Newest() raft.SnapshotMeta {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return raft.SnapshotMeta{}
	}
	return s.list[0].SnapshotMeta
}

// covered returns the index up to which entries may be deleted. Those behind the older snapshot, or behind one being sent, stay.
func (s *Snapshots) covered() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) < snapshotsKept {
		return 0
	}
	index := s.list[len(s.list)-1].Index
	for from, at := range s.read {
		if s.clock()-at > afterRead {
			delete(s.read, from)
			continue
		}
		index = min(index, from-1) // Raft also reads the term of the snapshot's last entry
	}
	return index
}

// noteRead records that the snapshot of this index is being read now; the caller holds mu.
func (s *Snapshots) noteRead(index uint64) {
	if s.clock != nil {
		s.read[index] = s.clock()
	}
}

// List implements raft.SnapshotStore.
func (s *Snapshots) List() (list []*raft.SnapshotMeta, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.list {
		list = append(list, &m.SnapshotMeta)
	}
	return list, nil
}

// Open implements raft.SnapshotStore.
func (s *Snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.list, func(m snapshotMeta) bool { return m.ID == id })
	if i < 0 {
		return nil, nil, fmt.Errorf("snapshot %s: %w", id, os.ErrNotExist)
	}
	f, err := os.Open(filepath.Join(s.dir, id, stateFile))
	if err != nil {
		return nil, nil, err
	}
	meta := s.list[i]
	s.noteRead(meta.Index)
	return &meta.SnapshotMeta, &snapshotReader{File: f, store: s, meta: meta, sum: crc64.New(crc64Table)}, nil
}

// spoil takes a damaged snapshot out of the list. The method add deletes its files when the next snapshot is complete.
func (s *Snapshots) spoil(id string) {
	s.log.Error("a snapshot is damaged and is not used any more; look after the disk", "snapshot", id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(m snapshotMeta) bool { return m.ID == id })
	s.spoiled = append(s.spoiled, id)
}

// snapshotReader reads a snapshot. At the end of the snapshot it fails if the content differs from what was written.
type snapshotReader struct {
	*os.File
	store *Snapshots
	meta  snapshotMeta
	sum   hash.Hash64
	n     int64
	over  bool
}

func (r *snapshotReader) Read(p []byte) (int, error) {
	r.store.mu.Lock()
	r.store.noteRead(r.meta.Index)
	r.store.mu.Unlock()
	n, err := r.File.Read(p)
	r.sum.Write(p[:n])
	r.n += int64(n)
	if err == io.EOF && !r.over {
		r.over = true
		if r.n != r.meta.Size || !bytes.Equal(r.sum.Sum(nil), r.meta.CRC) {
			r.store.spoil(r.meta.ID)
			return n, fmt.Errorf("snapshot %s: %s is not what was written", r.meta.ID, stateFile)
		}
	}
	return n, err
}

// WriteTo hides the WriteTo of os.File, which would bypass Read.
func (r *snapshotReader) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{r})
}

// Create implements raft.SnapshotStore.
func (s *Snapshots) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	s.mu.Lock()
	number := s.number
	s.number++
	s.mu.Unlock()
	sink := &snapshotSink{store: s, check: raftfsm.NewChecker(), sum: crc64.New(crc64Table), meta: snapshotMeta{Format: metaFormat, SnapshotMeta: raft.SnapshotMeta{
		Version: version, ID: snapshotID(term, index, number), Index: index, Term: term,
		Configuration: conf, ConfigurationIndex: confIndex,
	}}}
	if s.pace != nil {
		sink.pace = s.pace()
	}
	if err := s.leavesRoom(); err != nil {
		return nil, err
	}
	sink.dir = filepath.Join(s.dir, sink.meta.ID+unfinished)
	if err := s.disk.Mkdir(sink.dir); err != nil {
		return nil, err
	}
	var err error
	if sink.file, err = s.disk.Create(filepath.Join(sink.dir, stateFile)); err != nil {
		return nil, errors.Join(err, s.disk.Remove(sink.dir))
	}
	return sink, nil
}

// snapshotSink is a snapshot that is being written.
type snapshotSink struct {
	store  *Snapshots
	dir    string
	meta   snapshotMeta
	file   File
	check  *raftfsm.Checker
	sum    hash.Hash64
	dirty  int // bytes since the last sync
	pace   *pace
	own    bool // the snapshot is of this node's own state; it does not come from a peer
	closed bool
}

// ID implements raft.SnapshotSink.
func (k *snapshotSink) ID() string { return k.meta.ID }

// Write implements io.Writer. It syncs after each syncBytes, because the log's syncs would wait for one large sync.
func (k *snapshotSink) Write(p []byte) (int, error) {
	if k.pace != nil {
		defer k.pace.add(k.pace.now())
	}
	n, err := k.file.Write(p)
	k.sum.Write(p[:n])
	k.check.Write(p[:n])
	k.meta.Size += int64(n)
	if k.dirty += n; err == nil && k.dirty >= syncBytes {
		k.dirty = 0
		err = errors.Join(k.file.Sync(), k.store.leavesRoom())
	}
	return n, err
}

// OwnState returns a writer of this node's own state to sink. The writer rests between pieces of work unless hurried returns true.
func OwnState(sink raft.SnapshotSink, hurried func() bool) io.Writer {
	if k, ok := sink.(*snapshotSink); ok {
		if k.pace != nil {
			k.pace.hurried = hurried
		}
		return k.whole()
	}
	return sink
}

// whole returns a writer to k whose pace also counts the time between two writes, in which the caller encodes this node's state.
func (k *snapshotSink) whole() io.Writer {
	k.own = true
	if k.pace == nil {
		return k
	}
	w := &pacedWriter{out: k, pace: k.pace, began: k.pace.now()}
	k.pace = nil
	return w
}

// Cancel implements raft.SnapshotSink.
func (k *snapshotSink) Cancel() error {
	if k.closed {
		return nil
	}
	k.closed = true
	return errors.Join(k.file.Close(), k.store.discard(k.meta.ID))
}

// Close completes the snapshot and gives it its final name. It checks the snapshot first, because an
// inconsistent snapshot must not replace a consistent one.
func (k *snapshotSink) Close() error {
	if k.closed {
		return nil
	}
	if err := k.check.Check(); err != nil {
		return errors.Join(fmt.Errorf("snapshot %s is not kept: %w", k.meta.ID, err), k.Cancel())
	}
	if err := k.late(); err != nil {
		return errors.Join(err, k.Cancel())
	}
	k.closed = true
	if err := errors.Join(k.file.Sync(), k.file.Close()); err != nil {
		return errors.Join(err, k.store.discard(k.meta.ID))
	}
	k.meta.CRC = k.sum.Sum(nil)
	if err := k.finish(); err != nil { // finish may have renamed the snapshot before it failed; discard deletes it in both cases
		return errors.Join(err, k.store.discard(k.meta.ID))
	}
	return k.store.add(k.meta)
}

var errLateSnapshot = errors.New("cluster: a snapshot from a peer that this node has gone beyond")

// late fails if this node's newest snapshot or log has gone beyond a peer's snapshot: Raft would delete later entries. The log does not
// change meanwhile, because Raft waits for Close.
func (k *snapshotSink) late() error {
	if k.own || k.store.outgrown == nil {
		return nil
	}
	newest := k.store.Newest()
	if newest.Index > k.meta.Index {
		return errLateSnapshot
	}
	beyond, err := k.store.outgrown(k.meta.Index, k.meta.Term)
	if err == nil && beyond {
		err = errLateSnapshot
	}
	return err
}

func (k *snapshotSink) finish() error {
	fs := k.store.disk
	b, err := k.meta.encode()
	if err != nil {
		return err
	}
	if err := writeFile(fs, filepath.Join(k.dir, metaFile), b); err != nil {
		return err
	}
	if err := fs.SyncDir(k.dir); err != nil {
		return err
	}
	if err := fs.Rename(k.dir, strings.TrimSuffix(k.dir, unfinished)); err != nil {
		return err
	}
	return fs.SyncDir(k.store.dir)
}

// add adds a new snapshot to the list. It deletes the damaged snapshots, and those that are too old
// to be among the latest snapshotsKept.
func (s *Snapshots) add(meta snapshotMeta) error {
	s.mu.Lock()
	s.list = append(s.list, meta)
	s.sort()
	gone := s.spoiled
	s.spoiled = nil
	if len(s.list) > snapshotsKept {
		for _, m := range s.list[snapshotsKept:] {
			gone = append(gone, m.ID)
		}
		s.list = s.list[:snapshotsKept]
	}
	s.mu.Unlock()
	if err := s.discard(gone...); err != nil {
		s.log.Warn("old snapshots could not be deleted", "error", err)
	}
	return nil
}

// discard deletes snapshots that are not in the list. If it cannot delete one, add tries again when the next snapshot is complete.
func (s *Snapshots) discard(gone ...string) error {
	var faults []error
	for _, id := range gone {
		if err := s.erase(filepath.Join(s.dir, id)); err != nil {
			faults = append(faults, err)
			s.mu.Lock()
			s.spoiled = append(s.spoiled, id)
			s.mu.Unlock()
		}
	}
	return errors.Join(faults...)
}

// erase deletes the snapshot at path. It renames it first, because a half deleted snapshot must not look like a damaged one.
func (s *Snapshots) erase(path string) error {
	if _, err := os.Lstat(path); err == nil {
		if err := s.disk.Rename(path, path+unfinished); err != nil {
			return err
		}
	}
	return s.disk.Remove(path + unfinished)
}

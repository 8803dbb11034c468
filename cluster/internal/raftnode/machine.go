package raftnode

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// machine adapts the FSM to the interface of hashicorp/raft.
type machine struct {
	log   *Node
	fsm   *raftfsm.FSM
	hooks Hooks
	fatal func(error)
	brake brake.Worker

	written atomic.Pointer[writtenState] // the latest snapshot; nil: none has been taken
}

func newMachine(r *Node, hooks Hooks) *machine {
	m := &machine{log: r, fsm: r.fsm, hooks: hooks, fatal: r.cfg.Fatal}
	m.fsm.Brake(m.bring)
	return m
}

var (
	_ raft.FSM                = (*machine)(nil)
	_ raft.ConfigurationStore = (*machine)(nil)
)

// Apply applies a committed entry. Raft calls it on every node, from one goroutine.
func (m *machine) Apply(l *raft.Log) any {
	if err := m.log.dir.Log.AwaitWritten(l.Index); err != nil {
		return err // the process ends
	}
	m.bring(2 * len(l.Data)) // room for the entry that was read, and for the values made of it; for a long entry Load makes room
	own := *l                // Load adds long data to this copy, not to l: Raft keeps dozens of entries until the last is applied
	l = &own
	if err := m.log.dir.Log.Load(l); err != nil {
		m.fatal(fmt.Errorf("data directory %s: log entry %d: %w", m.log.cfg.Data, l.Index, err))
		return err
	}
	began := m.log.cfg.Time.Monotonic()
	out, err := m.fsm.Apply(l.Index, l.Data)
	if m.log.cfg.Took != nil {
		m.log.cfg.Took(m.log.cfg.Time.Monotonic() - began)
	}
	if err != nil {
		// Later entries were evaluated on the state after this one, which this node lacks, so compare-and-append rejects them.
		advice := ": " + datadir.AdviceRejoin
		if errors.Is(err, raftfsm.ErrNewer) {
			advice = "" // the error itself says what to do
		}
		m.fatal(fmt.Errorf("data directory %s: log entry %d: %w%s", m.log.cfg.Data, l.Index, err, advice))
		return err
	}
	out.Term = l.Term
	m.brake.Did(len(l.Data))
	m.log.trans.progress.done.Store(l.Index)
	m.hooks.Applied(out)
	if out.Messages {
		m.log.trans.notifyCommit(matched{l.Term, l.Index})
	}
	return out
}

func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	// Raft counts an entry as applied even if Apply fails, so a snapshot would claim entries that it lacks.
	if err := cmp.Or(m.fsm.Failed(), m.log.dir.Log.WriteError()); err != nil {
		return nil, err
	}
	w := &writtenState{s: m.fsm.Snapshot(), over: make(chan struct{})}
	m.written.Store(w)
	return w, nil
}

// bring makes room in memory, and may wait. It is called before data are made, copied, or read from a snapshot.
func (m *machine) bring(bytes int) {
	brake.Bring(bytes)
	m.awaitRoom(brake.Crowded)
	if brake.Crowded() {
		m.hooks.Crowded()
	}
}

// awaitRoom waits, if memory is crowded, for the snapshot being written: that snapshot keeps an earlier state beside the present
// one.
func (m *machine) awaitRoom(crowded func() bool) {
	w := m.written.Load()
	if w == nil || !w.begun.Load() || w.isOver() || !crowded() {
		return
	}
	w.hurried.Store(true)
	select {
	case <-w.over:
	case <-m.log.stop:
	}
}

func (m *machine) Restore(in io.ReadCloser) error {
	defer in.Close()
	// ForgetBefore comes first because it may fail, and an error must leave the state as it was. The snapshot is on disk already.
	at := m.log.dir.SnapshotConfiguration()
	if err := m.log.dir.ForgetBefore(at); err != nil {
		return err
	}
	var from io.Reader = brakedReader{in, m.bring}
	if m.log.started.Load() { // a peer has sent the snapshot; at the start nothing else needs the processor, so there is no pace
		from = m.log.dir.Paced(from)
	}
	if err := m.fsm.Restore(from, m.log.dir.Snapshots.Newest().Index); err != nil {
		return err
	}
	seq, lease := m.fsm.Position()
	m.hooks.Restored(seq, lease)
	m.log.trans.progress.done.Store(m.log.dir.Snapshots.Newest().Index)
	m.log.configured.Store(at)
	m.hooks.Members()
	return nil
}

// brakedReader makes room in memory before it reads a piece of a snapshot. It may wait for a snapshot that Raft writes: once
// begun, Persist needs neither the state machine nor Raft's main goroutine.
type brakedReader struct {
	in    io.Reader
	bring func(bytes int)
}

func (r brakedReader) Read(p []byte) (int, error) {
	r.bring(2 * len(p)) // the bytes, and the keys and values made of them
	return r.in.Read(p)
}

// StoreConfiguration notes a configuration that has been committed.
func (m *machine) StoreConfiguration(index uint64, conf raft.Configuration) {
	var members []string
	for _, s := range conf.Servers {
		members = append(members, string(s.ID))
	}
	if err := m.log.dir.ForgetRemoved(index, members); err != nil {
		// The next start reads this configuration again, and then forgets the removed members.
		m.log.cfg.Logger.Error("who is a member no more could not be noted", "error", err)
	}
	m.log.configured.Store(index)
	m.log.trans.progress.done.Store(index)
	m.hooks.Members()
}

// writtenState is a state that Raft writes as a snapshot.
type writtenState struct {
	s       *raftfsm.Snapshot
	over    chan struct{} // closed when Raft needs the state no more
	once    sync.Once
	begun   atomic.Bool // Persist has begun; it can end while Raft's main goroutine waits for the state machine
	hurried atomic.Bool // awaitRoom waits for over, so Persist writes without pauses
}

func (w *writtenState) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// Persist implements raft.FSMSnapshot.
func (w *writtenState) Persist(sink raft.SnapshotSink) error {
	w.begun.Store(true)
	defer w.Release()
	if err := w.s.Encode(datadir.OwnState(sink, w.hurried.Load)); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (w *writtenState) Release() {
	w.once.Do(func() {
		w.s = nil // free the state now: the machine keeps w until the next snapshot
		close(w.over)
	})
}

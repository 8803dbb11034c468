package peers

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clock"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// Config has what a Watcher needs from its node.
type Config struct {
	ID, RunID string
	Data      string // the node's data directory, for messages
	PeerAddr  string // the node's own peer address
	Addresses Addresses
	DownAfter time.Duration // how long a member may be silent before it counts as down
	Version   string        // of the program
	Wish      Wish          // what the operator wants of this node
	Clock     clock.Source
	Logger    *slog.Logger
	Dialer    *peerport.Dialer

	Opened <-chan struct{}            // closed when the function Raft may be called
	Raft   func() Raft                // returns what Raft and the data directory know
	Leader func() raftnode.Leadership // returns the leader as the node knows it
	// Overruns returns the users whose work gets less time than usual on this node (fair.Limits).
	Overruns func() []fair.Overrun
	Members  func(members []raftnode.Member) // is called with the members that Raft knows, in every Period and when they have changed
	Removed  func()                          // is called when the node finds that it has been removed
	Fatal    func(error)                     // ends the node
}

// Raft is what Raft and the data directory know.
type Raft interface {
	Members() ([]raftnode.Member, error)
	Facts() raftnode.Facts
	// Cluster returns the name of the cluster; "" if it is not known.
	Cluster() string
	// Joining reports whether the node has yet to become a member. Joined notes that it has become one, of the cluster with this name.
	Joining() bool
	Joined(cluster string) error
	// Directory returns the name of the data directory; "" if there is none.
	Directory() string
	// Meet notes a member's directory, or fails if the member has been met with another one.
	Meet(id, directory string) error
	// Recognize fails if the member has been met with another directory, and notes nothing.
	Recognize(id, directory string) error
	// Met reports whether the node has met a member, and whether that was with this directory. It notes nothing.
	Met(id, directory string) (met, same bool)
	// Blank reports whether the node is a first member that is just beginning.
	Blank() bool
	// Trouble says why the log accepts no entries; "" if it accepts them.
	Trouble() string
	// Proposed returns the bytes that the node has proposed, and those of known outcome. At RoomUntil proposed bytes, its disk is
	// full.
	Proposed() (begun, done int64)
	RoomUntil() int64
}

// Watcher asks the other members for their status and holds what they say. Lock order: mu comes before the locks that
// Config.Leader takes.
type Watcher struct {
	cfg  Config
	ctx  context.Context
	work sync.WaitGroup

	mu     sync.Mutex
	heard  map[string]*heard
	last   string        // the last known leader
	voter  bool          // this node is a voter
	member bool          // this node is a member, with or without a vote
	moved  chan struct{} // wakes Run after a change of the configuration; has room for one element

	misplaced misplaced
	room      atomic.Int64 // how many bytes this node can have proposed while the disks of a majority still have room (sumRoom)
	health    health

	// older is true while some member may run version 0.1.0: it has sent no list of members.
	older   atomic.Bool
	has     atomic.Bool // some member runs version 0.1.0: it has answered without a list of members
	removed atomic.Bool // this node has been removed from the cluster

	disowned sync.Once // calls Config.Fatal when another node knows this one with another data directory (disown)

	current atomic.Pointer[Topology]
	changed chan struct{} // the channel Changed of the current topology; closed and replaced with mu held

	clientsMu sync.Mutex
	clients   map[string]string // addresses for clients, by id
}

// NewWatcher returns a Watcher that asks until ctx ends.
func NewWatcher(ctx context.Context, cfg Config) *Watcher {
	w := &Watcher{cfg: cfg, ctx: ctx, heard: map[string]*heard{}, moved: make(chan struct{}, 1),
		clients: map[string]string{cfg.ID: cfg.Addresses.For(false).Plain}}
	w.room.Store(math.MaxInt64)
	return w
}

// Older reports whether some member may run version 0.1.0.
func (w *Watcher) Older() bool { return w.older.Load() }

// HasOlder reports whether some member is known to run version 0.1.0. Unlike Older, it leaves out members not heard from.
func (w *Watcher) HasOlder() bool { return w.has.Load() }

// Removed reports whether this node has been removed from its cluster, as far as it knows.
func (w *Watcher) Removed() bool { return w.removed.Load() }

// Client returns the address of a member for clients; "" if it is not known.
func (w *Watcher) Client(id string) string {
	w.clientsMu.Lock()
	defer w.clientsMu.Unlock()
	return w.clients[id]
}

// LearnClient notes the address of a member for clients.
func (w *Watcher) LearnClient(id, addr string) {
	w.clientsMu.Lock()
	defer w.clientsMu.Unlock()
	w.clients[id] = addr
}

// Alive reports whether this node has heard from another member within Config.DownAfter.
func (w *Watcher) Alive(id string) bool {
	now := w.cfg.Clock.Monotonic()
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.heard[id]
	return h != nil && h.told && now-h.seen < w.cfg.DownAfter
}

// Applied returns the Raft index that a member has applied, as far as this node has heard.
func (w *Watcher) Applied(id string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.heard[id]; h != nil {
		return h.status.Applied
	}
	return 0
}

// heard is the latest news of a member.
type heard struct {
	status Status
	addr   string // its peer address
	told   bool   // the member has sent its status
	asked  bool   // the member has answered a question that this node sent to its address
	voter  bool
	first  time.Duration // when this node began to look for it
	seen   time.Duration // when its last status came; the value of the field first if none has come

	foreign bool // the node at this address belongs to another cluster, and this has been logged
}

// MayBeOlder returns false only if the status of the member at addr has shown a later version than 0.1.0.
func (w *Watcher) MayBeOlder(addr string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.heard {
		if h.addr == addr {
			return !h.status.ToldMembers
		}
	}
	return true
}

// Topology returns what this node knows of the cluster. It costs one atomic load.
func (w *Watcher) Topology() *Topology { return w.current.Load() }

// Own returns the status that this node tells the others.
func (w *Watcher) Own() Status {
	return Status{
		ID:      w.cfg.ID,
		Addrs:   w.cfg.Addresses,
		RunID:   w.cfg.RunID,
		Applied: w.cfg.Raft().Facts().Applied,
		Cluster: w.cfg.Raft().Cluster(),
		Peer:    w.cfg.PeerAddr,

		Directory: w.cfg.Raft().Directory(),
	}
}

// addressOf returns the peer address of another member; "" if this node knows no such member.
func (w *Watcher) addressOf(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.heard[id]; h != nil {
		return h.addr
	}
	return ""
}

// record stores a member's status. The parameter asked is true if this node has asked for it at the member's address.
func (w *Watcher) record(f Status, asked bool) {
	now := w.cfg.Clock.Monotonic()
	if own := w.cfg.Raft().Cluster(); !asked && (f.Directory == "" || own != "" && f.Cluster != "" && f.Cluster != own) {
		return // a member that asks names its data directory, and belongs to no other cluster
	}
	known := w.sameDirectory(f, w.addressOf(f.ID))
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.heard[f.ID]
	if h == nil || !known || f.Peer != "" && f.Peer != h.addr {
		return // no member has this id, or the member has another data directory or another address
	}
	if !asked { // lists of members and of overruns are believed only from a member that answers at its address
		f.Members, f.ToldMembers = h.status.Members, h.status.ToldMembers
		f.Overruns, f.Room, f.asOf = h.status.Overruns, h.status.Room, h.status.asOf
		f.Version, f.Wish = h.status.Version, h.status.Wish
		// Only answers have the TLS addresses.
		f.Addrs.TLSPlain, f.Addrs.TLSSentinel, f.Addrs.TLSCluster = h.status.Addrs.TLSPlain, h.status.Addrs.TLSSentinel, h.status.Addrs.TLSCluster
	}
	h.asked = h.asked || asked
	news := !h.told || h.status.Addrs != f.Addrs || h.status.RunID != f.RunID
	h.status, h.told, h.seen = f, true, now
	w.LearnClient(f.ID, f.Addrs.For(false).Plain)
	if news {
		w.renew(now)
	}
	w.adopt(f)
	w.sumRoom(now)
}

// Overruns calls learn for each member, with mu held: list is from the member's latest answer, age the time since its latest
// status.
func (w *Watcher) Overruns(learn func(list []fair.Overrun, age time.Duration)) {
	now := w.cfg.Clock.Monotonic()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.heard {
		learn(h.status.Overruns, now-h.seen)
	}
}

// Vouched reports whether a member that is not silent lists id as a member, or is of a version that sends no list.
func (w *Watcher) Vouched(id string) bool {
	now := w.cfg.Clock.Monotonic()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.heard {
		if h.asked && now-h.seen < w.cfg.DownAfter && (!h.status.ToldMembers || slices.Contains(h.status.Members, id)) {
			return true
		}
	}
	return false
}

// Look renews the topology and logs changes of the health (tellHealth), because by now a member may have been silent for too long.
func (w *Watcher) Look() {
	led := w.cfg.Leader().ID != ""
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.Clock.Monotonic()
	w.renew(now)
	w.sumRoom(now)
	w.tellHealth(now, led)
}

// renew replaces the topology; mu is held. It runs at least once in every Period, to notice silent members.
func (w *Watcher) renew(now time.Duration) {
	leader := w.cfg.Leader()
	if leader.ID != "" {
		w.last = leader.ID
	}
	t := &Topology{Self: w.cfg.ID, Leader: leader.ID, Last: w.last, Term: w.cfg.Raft().Facts().Term, DownAfter: w.cfg.DownAfter}
	own := w.Own()
	t.Nodes = append(t.Nodes, Sighting{ID: own.ID, Addresses: own.Addrs, RunID: own.RunID, Applied: own.Applied, Up: true, Known: now, NoVote: !w.voter})
	if w.voter {
		t.Members++
	}
	for id, h := range w.heard {
		if !h.voter {
			continue
		}
		t.Members++
		if !h.told {
			continue
		}
		silence := now - h.seen
		// A leader is up even if its status does not arrive, because Raft hears from it.
		up := silence < w.cfg.DownAfter || id == leader.ID
		t.Nodes = append(t.Nodes, Sighting{ID: id, Addresses: h.status.Addrs, RunID: h.status.RunID, Applied: h.status.Applied,
			Up: up, Silence: silence, Known: now - h.first})
	}
	slices.SortFunc(t.Nodes, func(a, b Sighting) int { return strings.Compare(a.ID, b.ID) })
	outdated := w.changed
	w.changed = make(chan struct{})
	t.Changed = w.changed
	w.current.Store(t)
	if outdated != nil {
		close(outdated)
	}
}

// Update takes over the members that Raft knows. It returns the others' peer addresses, or nil if Raft is being stopped.
func (w *Watcher) Update() map[string]string {
	list, err := w.cfg.Raft().Members()
	if err != nil {
		return nil
	}
	now := w.cfg.Clock.Monotonic()
	addrs := map[string]string{}
	w.mu.Lock()
	w.voter = false
	for _, m := range list {
		if m.ID == w.cfg.ID {
			w.voter = m.Voter
			continue
		}
		addrs[m.ID] = m.PeerAddr
		if w.heard[m.ID] == nil {
			w.heard[m.ID] = &heard{first: now, seen: now}
		}
		w.heard[m.ID].voter, w.heard[m.ID].addr = m.Voter, m.PeerAddr
	}
	for id := range w.heard {
		if _, still := addrs[id]; !still {
			delete(w.heard, id)
		}
	}
	older, has := false, false
	for _, h := range w.heard {
		older = older || !h.status.ToldMembers
		has = has || h.asked && !h.status.ToldMembers // only answers have the list
	}
	w.older.Store(older)
	w.has.Store(has)
	w.mu.Unlock()
	w.judge(list)
	w.cfg.Members(list)
	return addrs
}

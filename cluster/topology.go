package cluster

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// What a node knows of the others. A follower has a link to the leader and to nobody else, but a
// client may ask any node for all of them (Sentinel, Cluster). So every node asks every other one for
// its addresses and its applied index (facts.go). Topology puts that together with what Raft says. It
// is an immutable value that costs one load to read; a channel closes when it is out of date. Raft
// alone says who leads. The nodes' own questions tell addresses and silence (Config.DownAfter), so no
// client is sent anywhere by a vote of these.

// Addresses are what a node tells clients of itself, by protocol; "" if it
// does not speak it.
type Addresses struct {
	Plain    string // Redis without Sentinel or Cluster
	Sentinel string
	Cluster  string

	// The same for clients that speak TLS.
	TLSPlain, TLSSentinel, TLSCluster string
}

// told are the addresses in the form in which clients of one kind are told them: in the
// first three. Where a node has no address of that kind, the other one stands: a client
// that asks without TLS may be told to speak it elsewhere.
func (a Addresses) told(secret bool) Addresses {
	if secret {
		return Addresses{Plain: cmp.Or(a.TLSPlain, a.Plain), Sentinel: cmp.Or(a.TLSSentinel, a.Sentinel), Cluster: cmp.Or(a.TLSCluster, a.Cluster)}
	}
	return Addresses{Plain: cmp.Or(a.Plain, a.TLSPlain), Sentinel: cmp.Or(a.Sentinel, a.TLSSentinel), Cluster: cmp.Or(a.Cluster, a.TLSCluster)}
}

// Told returns the topology as clients are told it, those that speak TLS or those that do
// not.
func (t *Topology) Told(secret bool) *Topology {
	if !slices.ContainsFunc(t.Nodes, func(n Sighting) bool { return n.TLSPlain != "" || n.TLSSentinel != "" || n.TLSCluster != "" }) {
		return t
	}
	told := *t
	told.Nodes = slices.Clone(t.Nodes)
	for i := range told.Nodes {
		told.Nodes[i].Addresses = told.Nodes[i].told(secret)
	}
	return &told
}

// Topology is what a node knows of the cluster at one instant. It is never
// changed: another one takes its place.
type Topology struct {
	Self   string
	Leader string // who leads; "" while nobody is known to
	Last   string // who leads or, while nobody does, who led last
	Term   uint64
	Nodes  []Sighting // this node and the voters of which the addresses are known, by id
	// Members is how many members vote, known or not. Those that do not are no
	// part of a majority, and clients are not sent to them.
	Members int
	// DownAfter is how long a member may be silent before it counts as down.
	DownAfter time.Duration
	// Changed is closed when this topology is out of date.
	Changed <-chan struct{}
}

// Sighting is what a node knows of a member, itself included.
type Sighting struct {
	ID string
	// NoVote is true of this node while it is no member, or one without a vote.
	NoVote bool
	Addresses
	RunID   string // of its present process
	Applied uint64 // Raft index of the last entry that it applied
	Up      bool
	Silence time.Duration // how long it has said nothing
	Known   time.Duration // how long it has been known
}

// Node returns what is known of a member; nil if nothing is.
func (t *Topology) Node(id string) *Sighting {
	for i := range t.Nodes {
		if t.Nodes[i].ID == id {
			return &t.Nodes[i]
		}
	}
	return nil
}

// Up is how many voters are up, as far as this node can see.
func (t *Topology) Up() (n int) {
	for i := range t.Nodes {
		if t.Nodes[i].Up && !t.Nodes[i].NoVote {
			n++
		}
	}
	return n
}

// Quorum is how many voters are a majority.
func (t *Topology) Quorum() int { return t.Members/2 + 1 }

// discovery is what a node has been told by the others. Lock order:
// discovery.mu, Node.mu.
type discovery struct {
	mu     sync.Mutex
	heard  map[string]*heard
	last   string        // who led last
	voter  bool          // this node is one
	member bool          // ... or at least a member
	moved  chan struct{} // has room for one: the configuration has changed

	misplaced misplaced
	health    health

	// older: some member may run version 0.1.0, as far as this node knows. It may as long
	// as it has not said whom it knows, which is newer.
	older atomic.Bool

	disowned sync.Once // another node knows this one with another data directory

	current atomic.Pointer[Topology]
	changed chan struct{} // of current; closed and replaced with mu held
}

// heard is the latest word of a member.
type heard struct {
	facts facts
	addr  string // its peer address
	told  bool   // facts are its own words
	asked bool   // ... and it was found at its address
	voter bool
	first time.Duration // when it was first looked for
	seen  time.Duration // when it last spoke

	foreign bool // it belongs to another cluster, and the log tells so
}

// mayBeOlder reports whether the member at a peer address may run version 0.1.0. It has not said otherwise yet.
func (d *discovery) mayBeOlder(at raft.ServerAddress) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.heard {
		if h.addr == string(at) {
			return !h.facts.toldMembers
		}
	}
	return true
}

// Topology returns what this node knows of the cluster. It costs one load.
func (n *Node) Topology() *Topology { return n.disc.current.Load() }

// facts are what this node tells the others.
func (n *Node) facts() facts {
	var s Status
	n.cons.Facts(&s)
	directory := ""
	if a, ok := n.cons.(acquainted); ok {
		directory = a.Directory()
	}
	return facts{
		id:      n.cfg.ID,
		addrs:   n.cfg.addresses(),
		runID:   n.cfg.RunID,
		applied: s.Applied,
		cluster: n.clusterName(),
		peer:    n.cfg.peerAddr(),

		directory: directory,
	}
}

// note takes in what a member says of itself. asked is true if it was asked at its address.
func (n *Node) note(f facts, asked bool) {
	now := n.cfg.Time.Monotonic()
	if own := n.clusterName(); !asked && (f.directory == "" || own != "" && f.cluster != "" && f.cluster != own) {
		return // a member says whose it is, and is of this cluster
	}
	known := n.meet(f)
	n.disc.mu.Lock()
	defer n.disc.mu.Unlock()
	h := n.disc.heard[f.id]
	if h == nil || !known || f.peer != "" && f.peer != h.addr {
		return // not a member, or not any more
	}
	if !asked { // what it says of others counts if it was looked for
		f.members, f.toldMembers = h.facts.members, h.facts.toldMembers
		// Only the answer has these.
		f.addrs.TLSPlain, f.addrs.TLSSentinel, f.addrs.TLSCluster = h.facts.addrs.TLSPlain, h.facts.addrs.TLSSentinel, h.facts.addrs.TLSCluster
	}
	h.asked = h.asked || asked
	news := !h.told || h.facts.addrs != f.addrs || h.facts.runID != f.runID
	h.facts, h.told, h.seen = f, true, now
	n.mu.Lock()
	n.clients[f.id] = f.addrs.told(false).Plain
	n.mu.Unlock()
	if news {
		n.renew(now)
	}
	n.belong(f)
}

// vouched reports whether a member that has been heard lately knows a node as a member: one
// that was away knows old configurations. Versions that do not say whom they know may know it.
func (n *Node) vouched(id string) bool {
	now := n.cfg.Time.Monotonic()
	n.disc.mu.Lock()
	defer n.disc.mu.Unlock()
	for _, h := range n.disc.heard {
		if h.asked && now-h.seen < n.cfg.DownAfter && (!h.facts.toldMembers || slices.Contains(h.facts.members, id)) {
			return true
		}
	}
	return false
}

// look renews the topology, and with it who is thought to be up.
func (n *Node) look() {
	n.mu.Lock()
	led := n.leader.id != ""
	n.mu.Unlock()
	n.disc.mu.Lock()
	defer n.disc.mu.Unlock()
	now := n.cfg.Time.Monotonic()
	n.renew(now)
	n.tellHealth(now, led)
}

// renew puts another topology in place of the present one; discovery.mu is
// held. It runs at every beat, so that silence is known to within one.
func (n *Node) renew(now time.Duration) {
	n.mu.Lock()
	leader := n.leader
	n.mu.Unlock()
	d := &n.disc
	if leader.id != "" {
		d.last = leader.id
	}
	var s Status
	n.cons.Facts(&s)
	t := &Topology{Self: n.cfg.ID, Leader: leader.id, Last: d.last, Term: s.Term, DownAfter: n.cfg.DownAfter}
	own := n.facts()
	t.Nodes = append(t.Nodes, Sighting{ID: own.id, Addresses: own.addrs, RunID: own.runID, Applied: own.applied, Up: true, Known: now, NoVote: !d.voter})
	if d.voter {
		t.Members++
	}
	for id, h := range d.heard {
		if !h.voter {
			continue
		}
		t.Members++
		if !h.told {
			continue
		}
		silence := now - h.seen
		// Who leads is heard by Raft, whatever becomes of these words.
		up := silence < n.cfg.DownAfter || id == leader.id
		t.Nodes = append(t.Nodes, Sighting{ID: id, Addresses: h.facts.addrs, RunID: h.facts.runID, Applied: h.facts.applied,
			Up: up, Silence: silence, Known: now - h.first})
	}
	slices.SortFunc(t.Nodes, func(a, b Sighting) int { return strings.Compare(a.ID, b.ID) })
	outdated := d.changed
	d.changed = make(chan struct{})
	t.Changed = d.changed
	d.current.Store(t)
	if outdated != nil {
		close(outdated)
	}
}

// census keeps what was heard to the members that Raft knows, and returns the
// peer addresses of the others; nil if Raft is being stopped.
func (n *Node) census() map[string]string {
	list, err := n.cons.Members()
	if err != nil {
		return nil
	}
	now := n.cfg.Time.Monotonic()
	addrs := map[string]string{}
	d := &n.disc
	d.mu.Lock()
	d.voter = false
	for _, m := range list {
		if m.ID == n.cfg.ID {
			d.voter = m.Voter
			continue
		}
		addrs[m.ID] = m.PeerAddr
		if d.heard[m.ID] == nil {
			d.heard[m.ID] = &heard{first: now, seen: now}
		}
		d.heard[m.ID].voter, d.heard[m.ID].addr = m.Voter, m.PeerAddr
	}
	for id := range d.heard {
		if _, still := addrs[id]; !still {
			delete(d.heard, id)
		}
	}
	older := false
	for _, h := range d.heard {
		older = older || !h.facts.toldMembers
	}
	d.older.Store(older)
	d.mu.Unlock()
	n.judge(list)
	n.dismiss(list)
	return addrs
}

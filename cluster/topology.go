package cluster

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// What a node knows of the others. A follower has a link only to the leader, but a client may ask any node for
// all of them (Sentinel, Cluster). So every node asks every other one for its addresses and its applied index
// (facts.go). A Topology combines the answers with what Raft says. It is an immutable value that costs one load
// to read; a channel closes when it is out of date. Raft alone says who leads. The answers only tell addresses
// and silence (Config.DownAfter), so no vote among these questions ever sends a client anywhere.

// Addresses holds the addresses of a node for clients, by protocol; "" if the node does not speak the protocol.
type Addresses struct {
	Plain    string // Redis without Sentinel or Cluster
	Sentinel string
	Cluster  string

	// The same for clients that speak TLS.
	TLSPlain, TLSSentinel, TLSCluster string
}

// told returns the addresses for clients with TLS (secret) or without, in the first three fields. If a node has
// no address of that kind, the other one takes its place: a client without TLS may learn the address of a TLS
// port.
func (a Addresses) told(secret bool) Addresses {
	if secret {
		return Addresses{Plain: cmp.Or(a.TLSPlain, a.Plain), Sentinel: cmp.Or(a.TLSSentinel, a.Sentinel), Cluster: cmp.Or(a.TLSCluster, a.Cluster)}
	}
	return Addresses{Plain: cmp.Or(a.Plain, a.TLSPlain), Sentinel: cmp.Or(a.Sentinel, a.TLSSentinel), Cluster: cmp.Or(a.Cluster, a.TLSCluster)}
}

// Told returns the topology with the addresses for clients that speak TLS (secret) or for clients that do
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

// Topology is what a node knows of the cluster at one instant. It never changes: a new one replaces it.
type Topology struct {
	Self   string
	Leader string // id of the leader; "" while no leader is known
	Last   string // id of the leader or, without a leader, of the last one
	Term   uint64
	Nodes  []Sighting // this node and the voters with known addresses, by id
	// Members is the number of voters, with known addresses or not. Members without a vote do not
	// count for a majority, and clients are not sent to them.
	Members int
	// DownAfter is how long a member may be silent before it counts as down.
	DownAfter time.Duration
	// Changed is closed when this topology is out of date.
	Changed <-chan struct{}
}

// Sighting is what a node knows of a member, itself included.
type Sighting struct {
	ID string
	// NoVote is true for this node while it is no member, or a member without a vote.
	NoVote bool
	Addresses
	RunID   string // run id of its present process
	Applied uint64 // Raft index of the last entry that it applied
	Up      bool
	Silence time.Duration // time since its last message
	Known   time.Duration // time since this node began to look for it
}

// Node returns what is known of a member; nil if the member is not in Nodes.
func (t *Topology) Node(id string) *Sighting {
	for i := range t.Nodes {
		if t.Nodes[i].ID == id {
			return &t.Nodes[i]
		}
	}
	return nil
}

// Up returns how many voters are up, as far as this node can see.
func (t *Topology) Up() (n int) {
	for i := range t.Nodes {
		if t.Nodes[i].Up && !t.Nodes[i].NoVote {
			n++
		}
	}
	return n
}

// Quorum returns how many voters make a majority.
func (t *Topology) Quorum() int { return t.Members/2 + 1 }

// discovery is what a node has learned from the others. Lock order: discovery.mu, Node.mu.
type discovery struct {
	mu     sync.Mutex
	heard  map[string]*heard
	last   string        // the last known leader
	voter  bool          // this node is a voter
	member bool          // ... or at least a member
	moved  chan struct{} // has room for one: the configuration has changed

	misplaced misplaced
	health    health

	// older is true while some member may run version 0.1.0. A member may run it until its facts
	// contain a list of members, which version 0.1.0 does not send.
	older atomic.Bool

	disowned sync.Once // another node knows this one with another data directory

	current atomic.Pointer[Topology]
	changed chan struct{} // Changed of current; closed and replaced with mu held
}

// heard is the latest news of a member.
type heard struct {
	facts facts
	addr  string // its peer address
	told  bool   // the member has sent facts
	asked bool   // ... in answer to a question at its address
	voter bool
	first time.Duration // when this node began to look for it
	seen  time.Duration // when its last facts came

	foreign bool // the node there belongs to another cluster, and this has been logged
}

// mayBeOlder reports whether the member at a peer address may run version 0.1.0: its facts have not shown otherwise.
func (d *discovery) mayBeOlder(addr string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.heard {
		if h.addr == addr {
			return !h.facts.toldMembers
		}
	}
	return true
}

// Topology returns what this node knows of the cluster. It costs one load.
func (n *Node) Topology() *Topology { return n.disc.current.Load() }

// facts returns the facts that this node tells the others.
func (n *Node) facts() facts {
	return facts{
		id:      n.cfg.ID,
		addrs:   n.cfg.addresses(),
		runID:   n.cfg.RunID,
		applied: n.cons.Facts().Applied,
		cluster: n.cons.Cluster(),
		peer:    n.cfg.peerAddr(),

		directory: n.cons.Directory(),
	}
}

// note stores the facts of a member. asked is true if they are the answer to a question at its address.
func (n *Node) note(f facts, asked bool) {
	now := n.cfg.Time.Monotonic()
	if own := n.cons.Cluster(); !asked && (f.directory == "" || own != "" && f.cluster != "" && f.cluster != own) {
		return // a member names its data directory, and belongs to this cluster
	}
	known := n.meet(f)
	n.disc.mu.Lock()
	defer n.disc.mu.Unlock()
	h := n.disc.heard[f.id]
	if h == nil || !known || f.peer != "" && f.peer != h.addr {
		return // not a member, or not any more
	}
	if !asked { // a list of members counts only from a member that was found at its address
		f.members, f.toldMembers = h.facts.members, h.facts.toldMembers
		// Only answers have the TLS addresses.
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

// vouched reports whether a member that has been heard lately counts a node as a member. This node needs that if it
// was away and knows only old configurations. A version that sends no list of members may know the node.
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

// look renews the topology and the health, as time makes members silent.
func (n *Node) look() {
	n.mu.Lock()
	led := n.leader.ID != ""
	n.mu.Unlock()
	n.disc.mu.Lock()
	defer n.disc.mu.Unlock()
	now := n.cfg.Time.Monotonic()
	n.renew(now)
	n.tellHealth(now, led)
}

// renew replaces the topology; discovery.mu is held. It runs at every beat, so silence is known to within one
// beat.
func (n *Node) renew(now time.Duration) {
	n.mu.Lock()
	leader := n.leader
	n.mu.Unlock()
	d := &n.disc
	if leader.ID != "" {
		d.last = leader.ID
	}
	t := &Topology{Self: n.cfg.ID, Leader: leader.ID, Last: d.last, Term: n.term(), DownAfter: n.cfg.DownAfter}
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
		// Raft hears from the leader, even if its facts do not arrive.
		up := silence < n.cfg.DownAfter || id == leader.ID
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

// census adjusts discovery to the members that Raft knows, and returns the peer addresses of the other members.
// It returns nil if Raft is being stopped.
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

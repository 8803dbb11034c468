// Package peers watches the other members of a cluster: each node asks every other one for its status. From the answers a
// node learns which members are up, at which addresses clients find them, and whether it has been removed itself.
package peers

import (
	"cmp"
	"slices"
	"time"
)

// A Topology combines the members' answers (ask.go) with what Raft says of the leader, so that any node can tell a client of all
// nodes. It is immutable; its channel Changed closes when there is a newer one.

// Addresses holds the addresses of a node for clients, by protocol; "" if the node does not speak the protocol.
type Addresses struct {
	Plain    string // Redis without Sentinel or Cluster
	Sentinel string
	Cluster  string

	// The same for clients that speak TLS.
	TLSPlain, TLSSentinel, TLSCluster string
}

// For returns the addresses for clients with TLS (secret) or without, in the first three fields. The other kind replaces a
// missing address.
func (a Addresses) For(secret bool) Addresses {
	if secret {
		return Addresses{Plain: cmp.Or(a.TLSPlain, a.Plain), Sentinel: cmp.Or(a.TLSSentinel, a.Sentinel), Cluster: cmp.Or(a.TLSCluster, a.Cluster)}
	}
	return Addresses{Plain: cmp.Or(a.Plain, a.TLSPlain), Sentinel: cmp.Or(a.Sentinel, a.TLSSentinel), Cluster: cmp.Or(a.Cluster, a.TLSCluster)}
}

// Told returns the topology with the addresses of each node replaced by For(secret).
func (t *Topology) Told(secret bool) *Topology {
	if !slices.ContainsFunc(t.Nodes, func(n Sighting) bool { return n.TLSPlain != "" || n.TLSSentinel != "" || n.TLSCluster != "" }) {
		return t
	}
	told := *t
	told.Nodes = slices.Clone(t.Nodes)
	for i := range told.Nodes {
		told.Nodes[i].Addresses = told.Nodes[i].For(secret)
	}
	return &told
}

// Topology is what a node knows of the cluster at one instant. It never changes: a new one replaces it.
type Topology struct {
	Self   string
	Leader string // id of the leader; "" while no leader is known
	Last   string // id of the leader or, without a leader, of the last one
	Term   uint64
	Nodes  []Sighting // this node and the voters that have sent their status, sorted by id
	// Members is the number of voters, heard from or not. Clients are sent to no other member.
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
	Silence time.Duration // time since its last status; 0 for this node
	Known   time.Duration // time since this node began to look for it
}

// Node returns the element of Nodes with an id; nil if there is none.
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

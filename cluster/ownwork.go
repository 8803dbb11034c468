package cluster

import (
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
)

// OwnKind is a kind of heavy work that a node does by itself, for one client at a time.
type OwnKind = fair.OwnKind

const (
	OwnList   = fair.OwnList
	OwnFacts  = fair.OwnFacts
	OwnFile   = fair.OwnFile
	OwnDigest = fair.OwnDigest
)

// Rest lets the requests of other clients go first after this node has worked by itself for c.
func (n *Node) Rest(c *Client, took time.Duration) { n.own.Rest(c, took) }

// Alone waits until this node does no other work of this kind. If ok is true, the caller may work, and must then call leave.
func (n *Node) Alone(c *Client, kind OwnKind) (leave func(), ok bool) { return n.own.Alone(c, kind) }

// Pace waits for the client's turn before this node does heavy work for it. The caller must call done; ok is as in Alone.
func (n *Node) Pace(c *Client) (done func(), ok bool) { return n.own.Pace(c) }

// stateHash is a hash of the state, with the log index of that state.
type stateHash struct {
	index uint64
	hash  string
}

// StateHash returns the hash of the state at a log index. Calls that begin while the state is being read share the next reading.
func (n *Node) StateHash(c *Client) (index uint64, hash string, err error) {
	h, err := n.hashes.Get(c, func(last stateHash) (stateHash, error) {
		snap := n.fsm.Snapshot()
		if last.hash != "" && last.index == snap.Index() {
			return last, nil
		}
		hash, err := n.hash(snap)
		return stateHash{snap.Index(), hash}, err
	})
	return h.index, h.hash, err
}

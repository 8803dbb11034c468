package cluster

import (
	"time"

	"lockstep/cluster/internal/fair"
)

// OwnKind is a kind of heavy work that a node does by itself, for one client at a time.
type OwnKind = fair.OwnKind

const (
	OwnList   = fair.OwnList
	OwnFacts  = fair.OwnFacts
	OwnFile   = fair.OwnFile
	OwnDigest = fair.OwnDigest
)

// Rest lets the requests of other clients go first after this node has done work by itself for client c. The parameter took is
// the time of that work. The next piece of work for c may begin when Rest returns.
func (n *Node) Rest(c *Client, took time.Duration) { n.own.Rest(c, took) }

// Alone waits until this node does no other work of the given kind. The result ok is false if the client has been cut off, or the
// node closes; otherwise the caller may do the work, and must then call the function leave.
func (n *Node) Alone(c *Client, kind OwnKind) (leave func(), ok bool) { return n.own.Alone(c, kind) }

// Pace waits for the turn of a client before this node does heavy work for it. The caller must call the function done at the end
// of the work. The result ok is false in the same cases as the ok of Alone.
func (n *Node) Pace(c *Client) (done func(), ok bool) { return n.own.Pace(c) }

// stateHash is a hash of the state, with the log index of that state.
type stateHash struct {
	index uint64
	hash  string
}

// StateHash returns the hash of the state, and the log index of that state. It reads the whole state; the node keeps serving.
// All calls that begin while the state is being read share the result of the next reading. If no entry was applied since the
// last reading, StateHash returns the last result.
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

package cluster

import (
	"errors"
	"fmt"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/roster"
)

// A leader's address may by now belong to another cluster's node of the same id. So the handshakes of a link name the cluster and
// the data directory.

// errOtherCluster is the error for a peer that names another cluster.
var errOtherCluster = errors.New("cluster: a peer belongs to another cluster")

// handshake returns the handshake with which this node calls a member at its address.
func (n *Node) handshake() forward.Handshake {
	return n.handshakeAs(forward.Identity{Cluster: n.cons.Cluster(), Directory: n.cons.Directory()})
}

// handshakeAs returns this node's handshake with an identity. A test may let this node speak a version that names no identity.
func (n *Node) handshakeAs(own forward.Identity) forward.Handshake {
	h := forward.Handshake{Speaks: n.cfg.speaks, ID: n.cfg.ID, Client: n.cfg.addresses().For(false).Plain}
	if h.Speaks.Minor >= forward.MinorIdentity && n.cons.Directory() != "" {
		h.More = own.More()
	}
	return h
}

// handshakeFor answers the node id. It names this node's data directory only to a known member: others could pass for this node.
func (n *Node) handshakeFor(id string, said forward.Identity) forward.Handshake {
	own := forward.Identity{Cluster: n.cons.Cluster()}
	if _, same := n.cons.Met(id, said.Directory); same && !n.otherCluster(said) {
		own.Directory = n.cons.Directory()
	}
	return n.handshakeAs(own)
}

func (n *Node) otherCluster(said forward.Identity) bool {
	own := n.cons.Cluster()
	return own != "" && said.Cluster != "" && said.Cluster != own
}

// reaches fails if the node at the address of the member id is another node. h is the handshake of the node at that address.
func (n *Node) reaches(id string, h forward.Handshake) error {
	if h.ID != id {
		return fmt.Errorf("%q answers at the address of %s", roster.Clip(h.ID), id)
	}
	if h.Speaks.Minor < forward.MinorIdentity || n.cons.Directory() == "" {
		return nil
	}
	said, err := h.Identity()
	if err != nil {
		return err
	}
	return n.recognize(id, said)
}

// recognize fails if a node is not the member id, as far as this node knows. The node calls itself id, and has said its
// identity.
func (n *Node) recognize(id string, said forward.Identity) error {
	met, same := n.cons.Met(id, said.Directory)
	switch {
	case n.otherCluster(said):
		return fmt.Errorf("%s: %w", id, errOtherCluster)
	case said.Directory == "":
		return fmt.Errorf("%s does not name its data directory: it does not know this node yet, or only with another data directory", id)
	case met && !same:
		return fmt.Errorf("%s: %w", id, datadir.ErrOtherDirectory)
	}
	return nil
}

// mayClaim fails if the peer is no member, or has another data directory than the member with its id.
func (p *peerConn) mayClaim() error {
	if !p.n.peers.HasMember(p.id) {
		return errors.New("it is no member")
	}
	if p.older || p.n.cons.Directory() == "" {
		return nil
	}
	return p.n.recognize(p.id, p.said)
}

package server

import (
	"crypto/sha1"
	"encoding/hex"
	"net"
	"strconv"

	"lockstep/cluster"
)

// Face is what a connection takes this server for. The listener decides, so
// that no client mistakes one mode of Redis for another.
type Face uint8

const (
	// FacePlain is a Redis that knows nothing of Sentinel or Cluster.
	FacePlain Face = iota
	// FaceCluster is a node of a Redis Cluster with one shard: the leader owns
	// every slot and the others are its replicas.
	FaceCluster
)

// mode is what HELLO and INFO call the face.
func (s *session) mode() string {
	switch {
	case s.srv.watch != nil:
		return "sentinel"
	case s.face == FaceCluster:
		return "cluster"
	}
	return "standalone"
}

// endpoint is an address as clients are told it.
type endpoint struct {
	host string
	port int
}

// known reports whether there is an address at all.
func (e endpoint) known() bool { return e.port != 0 }

func (e endpoint) digits() string { return strconv.Itoa(e.port) }

// hostPort is the endpoint as one word. Redis does not put brackets around
// IPv6 addresses.
func (e endpoint) hostPort() string { return e.host + ":" + e.digits() }

// endpointOf reads an advertised address. A node that listens everywhere and
// advertises nothing is said to be where this client has found it: with one
// node that is true, and of several each has to be told its address.
func (s *session) endpointOf(addr string) endpoint {
	host, digits, err := net.SplitHostPort(addr)
	if err != nil {
		return endpoint{}
	}
	port, err := strconv.Atoi(digits)
	if err != nil {
		return endpoint{}
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if here, _, err := net.SplitHostPort(s.laddr); err == nil {
			host = here
		}
	}
	return endpoint{host: host, port: port}
}

// identity derives one of a node's 40-digit names: it stays the same over
// restarts and on every node that says it.
func identity(kind, id string) string {
	sum := sha1.Sum([]byte("lockstep " + kind + " " + id))
	return hex.EncodeToString(sum[:])
}

// nodeName is a node's name in CLUSTER commands.
func nodeName(id string) string { return identity("node", id) }

// sentinelName is the name of a node's Sentinel.
func sentinelName(id string) string { return identity("sentinel", id) }

// topology is the cluster with the addresses that this client is to be told.
func (s *session) topology() *cluster.Topology { return s.srv.backend.Topology().Told(s.secret) }

// clusterEndpoint is where a node's Cluster listener is.
func (s *session) clusterEndpoint(n *cluster.Sighting) endpoint {
	if n == nil {
		return endpoint{}
	}
	return s.endpointOf(n.Cluster)
}

package server

import (
	"crypto/sha1"
	"encoding/hex"
	"net"
	"strconv"

	"github.com/lockstep-io/lockstep/cluster"
)

// Face is the mode of Redis that a connection sees. The listener decides it, so that no client mistakes
// one mode for another.
type Face uint8

const (
	// FacePlain is a Redis that is not a node of a Redis Cluster, or a Sentinel, which the method mode recognizes by its Server.
	FacePlain Face = iota
	// FaceCluster is a node of a Redis Cluster with one shard: the leader owns
	// every slot and the other nodes are its replicas.
	FaceCluster
)

// mode returns the mode of Redis that HELLO and INFO show.
func (s *session) mode() string {
	switch {
	case s.srv.watch != nil:
		return "sentinel"
	case s.face == FaceCluster:
		return "cluster"
	}
	return "standalone"
}

// endpoint is an address in the form that clients get.
type endpoint struct {
	host string
	port int
}

// known reports whether there is an address.
func (e endpoint) known() bool { return e.port != 0 }

func (e endpoint) digits() string { return strconv.Itoa(e.port) }

// hostPort returns the endpoint as host:port. Redis does not put brackets around IPv6 addresses.
func (e endpoint) hostPort() string { return e.host + ":" + e.digits() }

// endpointOf parses an advertised address. A client gets the host that it is connected to if the node advertises none.
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

// identity derives a name of 40 hexadecimal digits from a node's id. kind tells the node from its Sentinel.
func identity(kind, id string) string {
	sum := sha1.Sum([]byte("lockstep " + kind + " " + id))
	return hex.EncodeToString(sum[:])
}

// nodeName is a node's name in CLUSTER commands.
func nodeName(id string) string { return identity("node", id) }

// sentinelName is the name of a node's Sentinel.
func sentinelName(id string) string { return identity("sentinel", id) }

// topology returns the cluster with the addresses that this client should use.
func (s *session) topology() *cluster.Topology { return s.srv.backend.Topology().Told(s.secret) }

// clusterEndpoint returns the address of a node's Cluster listener.
func (s *session) clusterEndpoint(n *cluster.Sighting) endpoint {
	if n == nil {
		return endpoint{}
	}
	return s.endpointOf(n.Cluster)
}

package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// lead returns the leader's address for this client. If none is known, down is true, and at is the last leader's address or has the host
// "?".
func (s *session) lead() (at endpoint, down bool) {
	t := s.topology()
	down = t.Leader == ""
	if n := t.Node(t.Last); n != nil && !(down && n.ID == t.Self) {
		at = s.endpointHere(n)
	}
	if !at.known() {
		at.host, down = "?", true
	}
	return at, down
}

// endpointHere returns the address of a node's listener with the face of this client (plain or Cluster).
func (s *session) endpointHere(n *cluster.Sighting) endpoint {
	if s.face == FaceCluster {
		return s.endpointOf(n.Cluster)
	}
	return s.endpointOf(n.Plain)
}

// followers returns the other voters that are up and have an address for this client. Only the leader may call it.
func (s *session) followers() (list []*cluster.Sighting) {
	t := s.topology()
	for i := range t.Nodes {
		if n := &t.Nodes[i]; n.ID != t.Self && n.Up && s.endpointHere(n).known() {
			list = append(list, n)
		}
	}
	return list
}

// infoReplication writes the section by which Redisson's replicated mode finds the leader: role must be exactly master or slave.
//
// connected_slaves is one less than a majority of the voters. Redisson sends WAIT with this number, and gives a lock up if the reply
// differs.
//
// slave_read_only is 0, because StackExchange.Redis sends no writes to a replica that reports 1.
func infoReplication(srv *Server, f *facts) {
	applied, leads := f.status.Applied, f.status.Role == cluster.Leader
	copies := srv.backend.Topology().Quorum() - 1
	if leads {
		f.all("role", "master", "connected_slaves", copies)
		if f.s.script == nil {
			infoFollowers(f)
		}
	} else {
		infoLeader(f, copies)
	}
	f.all(
		"master_failover_state", "no-failover",
		"master_replid", srv.replicationID(),
		"master_replid2", strings.Repeat("0", 40),
		"master_repl_offset", applied,
		"second_repl_offset", -1,
		"repl_backlog_active", 0,
		"repl_backlog_size", srv.params.value("repl-backlog-size"),
		"repl_backlog_first_byte_offset", 0,
		"repl_backlog_histlen", 0,
	)
}

func infoFollowers(f *facts) {
	for i, n := range f.s.followers() {
		at := f.s.endpointHere(n)
		f.add(fmt.Sprintf("slave%d", i), fmt.Sprintf("ip=%s,port=%d,state=online,offset=%d,lag=%d", at.host, at.port, n.Applied, seconds(n.Silence)))
	}
}

func infoLeader(f *facts, copies int) {
	at, down := f.s.lead()
	link := "up"
	if down {
		link = "down"
	}
	f.all(
		"role", "slave",
		"master_host", at.host,
		"master_port", at.port,
		"master_link_status", link,
		"master_last_io_seconds_ago", 0,
		"master_sync_in_progress", 0,
		"slave_read_repl_offset", f.status.Applied,
		"slave_repl_offset", f.status.Applied,
	)
	if down {
		f.add("master_link_down_since_seconds", 0)
	}
	f.all(
		"slave_priority", 100,
		"slave_read_only", 0,
		"replica_announced", 1,
		"connected_slaves", copies,
	)
}

// replicationID derives an id from the leader or, if there is none, from the last leader. Nodes that know the same leader
// have the same id.
func (srv *Server) replicationID() string {
	return identity("replication", srv.backend.Topology().Last)
}

func doRole(s *session, _ [][]byte) store.Reply {
	applied := store.Int(int64(s.srv.backend.Status().Applied))
	if s.srv.leads() {
		replicas := store.List()
		for _, n := range s.followers() {
			at := s.endpointHere(n)
			replicas.Elems = append(replicas.Elems, store.Strs(at.host, at.digits(), fmt.Sprint(n.Applied)))
		}
		return store.List(store.Str("master"), applied, replicas)
	}
	at, down := s.lead()
	state := "connected"
	if down {
		state = "connect"
	}
	return store.List(store.Str("slave"), store.Str(at.host), store.Int(int64(at.port)), store.Str(state), applied)
}

// tooFewReplicas reports whether min-replicas-to-write and min-replicas-max-lag forbid a command that writes. A majority gets every
// acknowledged write in any case.
func (s *session) tooFewReplicas(cmd *store.Command, args [][]byte) bool {
	writes := cmd.Is(store.Write) || s.srv.pause.scriptWrites(cmd, args)
	if cmd == s.srv.execCmd && s.multi != nil {
		writes = slices.ContainsFunc(s.multi.commands, func(q queued) bool {
			return q.cmd.Is(store.Write) || s.srv.pause.scriptWrites(q.cmd, q.args)
		})
	}
	if !writes || s.srv.params.maxLag.Load() == 0 { // 0: as in Redis, no check
		return false
	}
	p, topology, good := s.srv.params, s.srv.backend.Topology(), int64(0)
	for _, n := range topology.Nodes {
		if n.ID != topology.Self && n.Up && n.Silence <= time.Duration(p.maxLag.Load())*time.Second {
			good++
		}
	}
	return good < p.minReplicas.Load()
}

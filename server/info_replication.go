package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep/cluster"
	"lockstep/store"
)

// lead is where clients of this face find whoever leads; down is true while
// nobody is known to, and then it is who led last.
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

// endpointHere is where a node has the face that this client sees.
func (s *session) endpointHere(n *cluster.Sighting) endpoint {
	if s.face == FaceCluster {
		return s.endpointOf(n.Cluster)
	}
	return s.endpointOf(n.Plain)
}

// followers are the other members that clients can reach, while this node leads.
func (s *session) followers() (list []*cluster.Sighting) {
	t := s.topology()
	for i := range t.Nodes {
		if n := &t.Nodes[i]; n.ID != t.Self && n.Up && s.endpointHere(n).known() {
			list = append(list, n)
		}
	}
	return list
}

// infoReplication is what Redisson's replicated mode finds the leader by: a
// role of exactly master or slave. What the log has been applied to stands for
// the offset of replication.
//
// connected_slaves counts what an acknowledged write is known to be on besides
// the node that answers: one less than a majority. Clients that see a number
// there (Redisson) send WAIT with it after every write and give a lock up if
// they get another one back; this one WAIT answers at once, however many of the
// listed replicas are down.
//
// slave_read_only is 0: every node takes writes, and StackExchange.Redis sends
// none to a replica that says otherwise.
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

// replicationID is the same on every node that follows one leader.
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

// tooFewReplicas reports whether min-replicas-to-write refuses a command. A majority has
// every write anyway; who wants it to be on more members says so by this. Of a script
// that does not say that it only reads, it is not waited to see whether it does.
func (s *session) tooFewReplicas(cmd *store.Command, args [][]byte) bool {
	writes := cmd.Is(store.Write) || s.srv.pause.scriptWrites(cmd, args)
	if cmd == s.srv.execCmd && s.multi != nil {
		writes = slices.ContainsFunc(s.multi.commands, func(q queued) bool {
			return q.cmd.Is(store.Write) || s.srv.pause.scriptWrites(q.cmd, q.args)
		})
	}
	if !writes {
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

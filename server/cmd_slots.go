package server

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// clusterRows are the commands of Redis Cluster. The plain listener answers them as a Redis without
// cluster support does, so that clients continue in plain mode.
func clusterRows() []row {
	const (
		plain  = store.Loading | store.Stale | store.Fast | store.Connection
		admin  = store.Stale | store.Admin
		change = admin | store.NoAsyncLoading
	)
	varies := []string{"nondeterministic_output"}
	sub := func(name string, arity int, flags store.Flags, usage, since, summary string, tips []string, do handler) row {
		return row{Command: store.Command{Name: name, Arity: arity, Flags: flags, Since: since, Usage: usage, Summary: summary, Tips: tips}, do: inCluster(do)}
	}
	top := func(name string, flags store.Flags, summary string, do handler) row {
		return row{Command: store.Command{Name: name, Arity: 1, Flags: flags, Group: "cluster", Since: "3.0.0", Summary: summary}, do: inCluster(do)}
	}
	onLeader := func(r row) row {
		r.Run = runKeysInSlot
		return r
	}
	helping := helpRow("cluster", "5.0.0", 0)
	helping.do = inCluster(helping.do)
	replicas := sub("replicas", 3, admin, "node-id", "5.0.0", "Lists the replicas of a node.", varies, ofMember(doClusterReplicas))
	slaves := sub("slaves", 3, admin, "node-id", "3.0.0", "Lists the replicas of a node.", varies, ofMember(doClusterReplicas))
	slaves.Deprecated, slaves.ReplacedBy = "5.0.0", "`CLUSTER REPLICAS`"
	return []row{
		{
			Command: store.Command{Name: "cluster", Arity: -2, Group: "cluster", Since: "3.0.0", Summary: "Commands of Redis Cluster."},
			sub: []row{
				sub("addslots", -3, change, "slot [slot ...]", "3.0.0", "Refused: the leader has every slot.", nil, doClusterFixed),
				sub("addslotsrange", -4, change, "start-slot end-slot [start-slot end-slot ...]", "7.0.0", "Refused: the leader has every slot.", nil, doClusterFixed),
				sub("bumpepoch", 2, change, "", "3.0.0", "Refused: the epoch is Raft's term.", varies, doClusterFixed),
				sub("count-failure-reports", 3, admin, "node-id", "3.0.0", "Counts who says that a node is down: this node or nobody.", varies, ofMember(doFailureReports)),
				onLeader(sub("countkeysinslot", 3, store.Stale, "slot", "3.0.0", "Counts the keys of a slot.", nil, doCountKeysInSlot)),
				sub("delslots", -3, change, "slot [slot ...]", "3.0.0", "Refused: the leader has every slot.", nil, doClusterFixed),
				sub("delslotsrange", -4, change, "start-slot end-slot [start-slot end-slot ...]", "7.0.0", "Refused: the leader has every slot.", nil, doClusterFixed),
				sub("failover", -2, change, "[FORCE | TAKEOVER]", "3.0.0", "Makes this node the leader.", nil, doClusterFailover),
				sub("flushslots", 2, change, "", "3.0.0", "Refused: the leader has every slot.", nil, doClusterFixed),
				sub("forget", 3, change, "node-id", "3.0.0", "Refused: members are removed from the Raft group.", nil, ofMember(doClusterNode)),
				onLeader(sub("getkeysinslot", 4, store.Stale, "slot count", "3.0.0", "Lists keys of a slot.", varies, doGetKeysInSlot)),
				helping,
				sub("info", 2, store.Stale, "", "3.0.0", "Describes the state of the cluster.", varies, doClusterInfo),
				sub("keyslot", 3, store.Stale, "key", "3.0.0", "Returns the hash slot of a key.", nil, doKeySlot),
				sub("links", 2, store.Stale, "", "7.0.0", "Lists the connections between this node and the others.", varies, ofMember(doClusterLinks)),
				sub("meet", -4, change, "ip port [cluster-bus-port]", "3.0.0", "Refused: members are added to the Raft group.", nil, doClusterFixed),
				sub("myid", 2, store.Stale, "", "3.0.0", "Returns the id of this node.", nil, doMyID),
				sub("nodes", 2, store.Stale, "", "3.0.0", "Lists the nodes of the cluster.", varies, ofMember(doClusterNodes)),
				replicas,
				sub("replicate", 3, change, "node-id", "3.0.0", "Refused: every node follows the leader.", nil, ofMember(doClusterNode)),
				sub("reset", -2, admin|store.NoScript, "[HARD | SOFT]", "3.0.0", "Refused: members are removed from the Raft group.", nil, doClusterReset),
				sub("saveconfig", 2, change, "", "3.0.0", "Does nothing: the Raft log has the configuration.", nil, doOK),
				sub("set-config-epoch", 3, change, "config-epoch", "3.0.0", "Refused: the epoch is Raft's term.", nil, doClusterFixed),
				sub("setslot", -4, change, "slot (IMPORTING node-id | MIGRATING node-id | NODE node-id | STABLE)", "3.0.0", "Refused: the leader has every slot.", nil, doClusterFixed),
				sub("shards", 2, store.Stale, "", "7.0.0", "Lists the shards of the cluster.", varies, ofMember(doClusterShards)),
				slaves,
				sub("slots", 2, store.Stale, "", "3.0.0", "Lists which node serves which hash slots.", varies, ofMember(doClusterSlots)),
			},
		},
		top("asking", store.Fast|store.Connection, "Has the next command served during a move of its slot.", doOK),
		top("readonly", plain, "Allows reads from a replica.", func(s *session, _ [][]byte) store.Reply {
			s.replica = true
			return store.OK
		}),
		top("readwrite", plain, "Ends READONLY.", func(s *session, _ [][]byte) store.Reply {
			s.replica = false
			return store.OK
		}),
	}
}

// inCluster makes a handler refuse commands on all listeners but those of Redis Cluster.
func inCluster(do handler) handler {
	return func(s *session, args [][]byte) store.Reply {
		if s.face != FaceCluster {
			return store.Err(errNoCluster)
		}
		return do(s, args)
	}
}

// ofMember makes a handler refuse commands while this node is no member: it would name itself as the owner of all slots.
func ofMember(do handler) handler {
	return func(s *session, args [][]byte) store.Reply {
		switch {
		case s.srv.backend.Removed():
			return store.Err(cluster.ErrRemoved)
		case s.topology().Members == 0: // this node is joining, and has not heard from a voter yet
			return store.Err(cluster.ErrClusterDown)
		}
		return do(s, args)
	}
}

func doClusterFixed(*session, [][]byte) store.Reply { return store.Err(errFixedCluster) }

// doClusterNode refuses a change to one node, but first checks that the node exists.
func doClusterNode(s *session, args [][]byte) store.Reply {
	if sh := s.shard(); sh.named(args[2]) == nil {
		return store.Err(errUnknownNode(args[2]))
	}
	return store.Err(errFixedCluster)
}

func doClusterReset(_ *session, args [][]byte) store.Reply {
	switch {
	case len(args) > 3:
		return store.Err(errSubcommandArgs("cluster", args[1]))
	case len(args) == 3 && !strings.EqualFold(string(args[2]), "hard") && !strings.EqualFold(string(args[2]), "soft"):
		return store.Err(store.ErrSyntax)
	}
	return store.Err(errFixedCluster)
}

// doClusterFailover makes this node the leader. As in Redis, the reply only means that the failover has
// begun.
func doClusterFailover(s *session, args [][]byte) store.Reply {
	if len(args) > 3 || len(args) == 3 && !strings.EqualFold(string(args[2]), "force") && !strings.EqualFold(string(args[2]), "takeover") {
		return store.Err(store.ErrSyntax)
	}
	if s.srv.leads() {
		return store.Err(errFailoverMaster)
	}
	s.srv.transfer(s.srv.cfg.NodeID)
	return store.OK
}

// transfer begins to hand leadership to a member, or to any member if id is empty.
func (srv *Server) transfer(id string) {
	go func() {
		if err := srv.backend.Transfer(id); err != nil {
			srv.cfg.Log.Warn("leadership was not handed over", "error", err)
		}
	}()
}

func doMyID(s *session, _ [][]byte) store.Reply { return store.Str(nodeName(s.srv.cfg.NodeID)) }

func doKeySlot(_ *session, args [][]byte) store.Reply { return store.Int(int64(slotOf(args[2]))) }

// runKeysInSlot is the leader's part of CLUSTER COUNTKEYSINSLOT and GETKEYSINSLOT. The count 0 asks for all names: followers of an
// older version count these.
func runKeysInSlot(c *store.Ctx) store.Reply {
	if c.InScript {
		return store.Err(errNoCluster)
	}
	var n [2]int64 // the slot, and how many names to list at most
	for i, arg := range c.Args[2:] {
		var ok bool
		if n[i], ok = redistext.ParseInt(arg); !ok {
			return store.Err(store.ErrNotInteger)
		}
	}
	slot, most := n[0], n[1]
	count, size, names := int64(0), int64(0), store.List()
	c.Ascend(c.DB, 0, func(e *store.Entry) bool {
		c.Work(len(e.Key()) / hashedPerStep)
		if int64(slotOf([]byte(e.Key()))) != slot {
			return true
		}
		if count++; len(c.Args) == 3 {
			return true
		}
		name := store.Str(e.Key())
		names.Elems = append(names.Elems, name)
		size += int64(store.Extent([]store.Reply{name}, math.MaxInt))
		return count != most && size <= c.MaxReply()
	})
	switch {
	case len(c.Args) == 3:
		return store.Int(count)
	case size > c.MaxReply():
		return store.Err(c.ErrReply())
	}
	return names
}

func doCountKeysInSlot(s *session, args [][]byte) store.Reply {
	slot, ok := redistext.ParseInt(args[2])
	switch {
	case !ok:
		return store.Err(store.ErrNotInteger)
	case slot < 0 || slot >= slots:
		return store.Err(errSlot)
	}
	r := s.onLeader("cluster", "countkeysinslot", string(args[2]))
	if r.Kind == store.Array { // the leader runs an older version, which lists the names
		return store.Int(int64(len(r.Elems)))
	}
	return r
}

func doGetKeysInSlot(s *session, args [][]byte) store.Reply {
	slot, ok := redistext.ParseInt(args[2])
	count, ok2 := redistext.ParseInt(args[3])
	switch {
	case !ok || !ok2:
		return store.Err(store.ErrNotInteger)
	case slot < 0 || slot >= slots || count < 0:
		return store.Err(errSlotOrCount)
	case count == 0:
		return store.List()
	}
	r := s.onLeader("cluster", "getkeysinslot", string(args[2]), string(args[3]))
	if r.Kind == store.Array && int64(len(r.Elems)) > count { // the leader runs an older version, which lists all names
		r.Elems = r.Elems[:count]
	}
	return r
}

// shard is the cluster as clients see it: one shard, with the owner of all slots as the first node.
type shard struct {
	*cluster.Topology
	owner string // the member id of the owner
	nodes []cluster.Sighting
}

// shard chooses the node that clients get as the owner of the slots: a reachable leader, or else this node, where commands wait for the
// next. A node that may be cut off names the last leader.
func (s *session) shard() shard {
	t := s.topology()
	sh := shard{Topology: t, owner: t.Self}
	if t.Leader != "" && s.clusterEndpoint(t.Node(t.Leader)).known() && s.srv.backend.Reaches() {
		sh.owner = t.Leader
	} else if t.Up() < t.Quorum() && s.clusterEndpoint(t.Node(t.Last)).known() {
		sh.owner = t.Last
	}
	for _, n := range t.Nodes {
		if !s.clusterEndpoint(&n).known() {
			continue
		}
		// A leader that is not the owner does not answer this node. So show it as down, although Raft may not have noticed
		// yet.
		n.Up = n.Up && (n.ID == sh.owner || n.ID != t.Leader)
		if n.ID == sh.owner {
			sh.nodes = slices.Insert(sh.nodes, 0, n)
		} else {
			sh.nodes = append(sh.nodes, n)
		}
	}
	return sh
}

// named returns the node that has the given name in Redis Cluster (nodeName); nil if there is none.
func (sh *shard) named(name []byte) *cluster.Sighting {
	for i := range sh.nodes {
		if nodeName(sh.nodes[i].ID) == string(name) {
			return &sh.nodes[i]
		}
	}
	return nil
}

// doClusterSlots omits replicas that are down, as Redis does.
func doClusterSlots(s *session, _ [][]byte) store.Reply {
	sh := s.shard()
	r := store.List(store.Int(0), store.Int(slots-1))
	for i := range sh.nodes {
		n := &sh.nodes[i]
		if !n.Up && n.ID != sh.owner {
			continue
		}
		at := s.endpointOf(n.Cluster)
		r.Elems = append(r.Elems, store.List(store.Str(at.host), store.Int(int64(at.port)), store.Str(nodeName(n.ID)), store.MapOf()))
	}
	return store.List(r)
}

// portName returns the name by which CLUSTER SHARDS reports the port to this client.
func (s *session) portName() string {
	if s.secret {
		return "tls-port"
	}
	return "port"
}

func doClusterShards(s *session, _ [][]byte) store.Reply {
	sh := s.shard()
	list := store.List()
	for i := range sh.nodes {
		n := &sh.nodes[i]
		role, health := "replica", "online"
		if n.ID == sh.owner {
			role = "master"
		}
		if !n.Up {
			health = "fail"
		}
		at := s.endpointOf(n.Cluster)
		fields := []store.Reply{store.Str("id"), store.Str(nodeName(n.ID)), store.Str(s.portName()), store.Int(int64(at.port))}
		if net.ParseIP(at.host) != nil {
			fields = append(fields, store.Str("ip"), store.Str(at.host), store.Str("endpoint"), store.Str(at.host))
		} else {
			fields = append(fields, store.Str("ip"), store.Str(""), store.Str("endpoint"), store.Str(at.host), store.Str("hostname"), store.Str(at.host))
		}
		fields = append(fields, store.Str("role"), store.Str(role), store.Str("replication-offset"), store.Int(int64(n.Applied)),
			store.Str("health"), store.Str(health))
		list.Elems = append(list.Elems, store.MapOf(fields...))
	}
	return store.List(store.MapOf(store.Str("slots"), store.List(store.Int(0), store.Int(slots-1)), store.Str("nodes"), list))
}

// busOffset is the distance from a node's port to its cluster bus port in Redis. Clients expect a bus port, although there is none.
const busOffset = 10000

func busPort(port int) int {
	if port+busOffset > 65535 {
		return port - busOffset
	}
	return port + busOffset
}

// nodeLine describes a node in a line of CLUSTER NODES.
func (s *session) nodeLine(sh *shard, n *cluster.Sighting) string {
	at := s.endpointOf(n.Cluster)
	flags := ""
	if n.ID == sh.Self {
		flags = "myself,"
	}
	owner, served := "-", ""
	if n.ID == sh.owner {
		flags += "master"
		served = fmt.Sprintf(" 0-%d", slots-1)
	} else {
		flags += "slave"
		owner = nodeName(sh.owner)
	}
	link, pong := "connected", s.srv.cfg.Clock().Add(-n.Silence).UnixMilli()
	if !n.Up {
		flags += ",fail"
		link = "disconnected"
	}
	return fmt.Sprintf("%s %s@%d %s %s 0 %d %d %s%s", nodeName(n.ID), at.hostPort(), busPort(at.port), flags, owner, pong, sh.Term, link, served)
}

func doClusterNodes(s *session, _ [][]byte) store.Reply {
	sh := s.shard()
	var b strings.Builder
	for i := range sh.nodes {
		b.WriteString(s.nodeLine(&sh, &sh.nodes[i]) + "\n")
	}
	return store.Text(b.String())
}

func doClusterReplicas(s *session, args [][]byte) store.Reply {
	sh := s.shard()
	n := sh.named(args[2])
	switch {
	case n == nil:
		return store.Err(errUnknownNode(args[2]))
	case n.ID != sh.owner:
		return store.Err(errNotMaster)
	}
	r := store.List()
	for i := range sh.nodes {
		if sh.nodes[i].ID != sh.owner {
			r.Elems = append(r.Elems, store.Str(s.nodeLine(&sh, &sh.nodes[i])))
		}
	}
	return r
}

func doFailureReports(s *session, args [][]byte) store.Reply {
	sh := s.shard()
	n := sh.named(args[2])
	switch {
	case n == nil:
		return store.Err(errUnknownNode(args[2]))
	case n.Up:
		return store.Zero
	}
	return store.Int(1)
}

// doClusterInfo reports the state fail if this node has been removed, or if too few members are up to elect a leader.
func doClusterInfo(s *session, _ [][]byte) store.Reply {
	sh := s.shard()
	f := &facts{b: &strings.Builder{}}
	state, served := "ok", slots
	if sh.Up() < sh.Quorum() || s.srv.backend.Removed() {
		state, served = "fail", 0
	}
	f.all(
		"cluster_state", state,
		"cluster_slots_assigned", slots,
		"cluster_slots_ok", served,
		"cluster_slots_pfail", 0,
		"cluster_slots_fail", slots-served,
		"cluster_known_nodes", len(sh.nodes),
		"cluster_size", 1,
		"cluster_current_epoch", sh.Term,
		"cluster_my_epoch", sh.Term,
		"cluster_stats_messages_sent", 0,
		"cluster_stats_messages_received", 0,
		"total_cluster_links_buffer_limit_exceeded", 0,
	)
	return store.Text(f.b.String())
}

// doClusterLinks lists two links for each other node that is up: the peers connect to each other in
// both directions.
func doClusterLinks(s *session, _ [][]byte) store.Reply {
	sh := s.shard()
	r := store.List()
	for i := range sh.nodes {
		n := &sh.nodes[i]
		if n.ID == sh.Self || !n.Up {
			continue
		}
		since := s.srv.cfg.Clock().Add(-n.Known).UnixMilli()
		for _, direction := range []string{"to", "from"} {
			r.Elems = append(r.Elems, store.MapOf(
				store.Str("direction"), store.Str(direction),
				store.Str("node"), store.Str(nodeName(n.ID)),
				store.Str("create-time"), store.Int(since),
				store.Str("events"), store.Str("r"),
				store.Str("send-buffer-allocated"), store.Zero,
				store.Str("send-buffer-used"), store.Zero,
			))
		}
	}
	return r
}

package server

import (
	"fmt"
	"sync/atomic"

	"lockstep/cluster"
	"lockstep/store"
)

// A Sentinel is a server of its own beside the one for data: other commands,
// other channels, other clients. It watches one master, which is whoever leads
// the Raft group, and its replicas, the other members. It decides nothing: what
// a redis-sentinel finds out by asking and voting, Raft tells this node.

// watcher is what makes a server a Sentinel.
type watcher struct {
	name      string      // of the master, as clients ask for it
	promoting atomic.Bool // SENTINEL FAILOVER is being carried out
}

// aside is a backend that a busy script does not keep from answering.
type aside struct{ Backend }

func (aside) Busy() bool { return false }

// NewSentinel makes a Sentinel that calls its master by a name. As New, it
// panics on a configuration that Validate refuses.
//
// Events are the same for all its clients, addresses are not: clients that speak TLS have
// a Sentinel of their own.
func NewSentinel(cfg Config, backend Backend, name string, secret bool) *Server {
	cfg.secretSentinel = secret
	cfg.Hub = NewHub() // events are not for the clients of the plain listener
	own := sentinelRows()
	var list []store.Command
	for _, r := range rows() {
		if sentinelToo(r.Name) {
			list = append(list, r.command())
		}
	}
	for _, r := range own {
		list = append(list, r.command())
	}
	table := store.NewTable(list)
	srv := New(cfg, aside{backend}, table)
	srv.watch = &watcher{name: name}
	for _, r := range own {
		cmd := table.Lookup([]byte(r.Name))
		if r.do != nil {
			srv.handlers[cmd] = r.do
		}
		for i := range r.sub {
			srv.handlers[&cmd.Sub[i]] = r.sub[i].do
		}
	}
	anywhere := &session{srv: srv, secret: cfg.secretSentinel}
	go srv.watchMembers(anywhere, anywhere.watched())
	return srv
}

// sentinelToo reports whether a Sentinel answers a command as other servers do.
func sentinelToo(name string) bool {
	switch name {
	case "auth", "client", "command", "hello", "info", "ping", "shutdown",
		"subscribe", "unsubscribe", "psubscribe", "punsubscribe":
		return true
	}
	return false
}

// watched is the master as one topology shows it.
type watched struct {
	*cluster.Topology
	id     string            // of the master
	master *cluster.Sighting // nil while its address is not known
	at     endpoint
	find   func(addr string) endpoint
}

// seenBy is what a client of the Sentinel is to be told about a topology.
func (s *session) seenBy(t *cluster.Topology) watched { return watch(t, s.endpointOf) }

func watch(t *cluster.Topology, find func(string) endpoint) watched {
	w := watched{Topology: t, id: t.Last, find: find}
	if n := t.Node(t.Last); n != nil {
		if at := find(n.Plain); at.known() {
			w.master, w.at = n, at
		}
	}
	return w
}

// replicas are the other members that serve clients.
func (w *watched) replicas() (list []*cluster.Sighting) {
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.ID != w.id && w.find(n.Plain).known() {
			list = append(list, n)
		}
	}
	return list
}

// sentinels are the other members that have a Sentinel.
func (w *watched) sentinels() (list []*cluster.Sighting) {
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.ID != w.Self && w.find(n.Sentinel).known() {
			list = append(list, n)
		}
	}
	return list
}

// down is the state of the master in INFO's words: a majority that sees it down
// too makes that objective.
func (w *watched) down() string {
	switch {
	case w.master.Up:
		return "ok"
	case w.Up() >= w.Quorum():
		return "odown"
	}
	return "sdown"
}

// watchMembers publishes what happens to the members, since they were as before, until
// the server stops.
func (srv *Server) watchMembers(anywhere *session, before watched) {
	for {
		select {
		case <-srv.stop:
			return
		case <-before.Changed:
		}
		now := anywhere.watched()
		srv.tell(before, now)
		if now.master == nil {
			// Whoever leads has not said where it is: go on with the old one.
			now.master, now.at, now.id = before.master, before.at, before.id
		}
		before = now
	}
}

// event publishes one event.
func (srv *Server) event(channel, format string, args ...any) {
	srv.hub.Publish(store.Channel, channel, fmt.Sprintf(format, args...))
}

// tell publishes what has changed between two topologies, in the order and the
// words of redis-sentinel.
func (srv *Server) tell(before, now watched) {
	if now.Term > before.Term {
		srv.event("+new-epoch", "%d", now.Term)
	}
	switched := now.master != nil && before.master != nil && (now.id != before.id || now.at != before.at)
	if switched {
		srv.tellSwitch(before, now)
	}
	if now.master == nil {
		return
	}
	if before.master != nil {
		was := before.down()
		if switched {
			was = "ok" // another one, and not looked at before
		} else if before.master.RunID != now.master.RunID {
			srv.event("+reboot", "master %s %s %d", srv.watch.name, now.at.host, now.at.port)
		}
		srv.tellMaster(was, now)
	}
	for _, n := range now.replicas() {
		old := before.Node(n.ID)
		if switched {
			// +slave has been said, and then Redis thinks well of a replica
			// until it has found that it is down.
			fresh := *n
			fresh.Up = true
			old = &fresh
		}
		srv.tellOne("slave", old, n, now, old == nil || !now.find(old.Plain).known())
	}
	for _, n := range now.sentinels() {
		old := before.Node(n.ID)
		srv.tellOne("sentinel", old, n, now, old == nil || !now.find(old.Sentinel).known())
	}
}

// tellOne publishes what has become of a replica or a Sentinel.
func (srv *Server) tellOne(kind string, old, n *cluster.Sighting, now watched, isNew bool) {
	what := kind + " " + srv.instance(kind, n, now)
	switch {
	case isNew:
		srv.event("+"+kind, "%s", what)
		return
	case old.Up && !n.Up:
		srv.event("+sdown", "%s", what)
	case !old.Up && n.Up:
		srv.event("-sdown", "%s", what)
	}
	if kind == "slave" && old.RunID != n.RunID {
		srv.event("+reboot", "%s", what)
	}
}

// tellMaster publishes that the master has gone down or come back.
func (srv *Server) tellMaster(was string, now watched) {
	what := fmt.Sprintf("master %s %s %d", srv.watch.name, now.at.host, now.at.port)
	is := now.down()
	if was == "ok" && is != "ok" {
		srv.event("+sdown", "%s", what)
	}
	if was != "odown" && is == "odown" {
		srv.event("+odown", "%s #quorum %d/%d", what, now.Up(), now.Quorum())
	}
	if was == "odown" && is != "odown" {
		srv.event("-odown", "%s", what)
	}
	if was != "ok" && is == "ok" {
		srv.event("-sdown", "%s", what)
	}
}

// tellSwitch publishes a change of master: on the node that leads now, as the
// Sentinel that has carried out the failover; on the others, as those that
// learn of it.
func (srv *Server) tellSwitch(before, now watched) {
	old := fmt.Sprintf("master %s %s %d", srv.watch.name, before.at.host, before.at.port)
	under := fmt.Sprintf("@ %s %s %d", srv.watch.name, before.at.host, before.at.port)
	if now.id == now.Self {
		chosen := fmt.Sprintf("slave %s %s %d %s", now.at.hostPort(), now.at.host, now.at.port, under)
		srv.event("+try-failover", "%s", old)
		srv.event("+vote-for-leader", "%s %d", sentinelName(now.Self), now.Term)
		srv.event("+elected-leader", "%s", old)
		srv.event("+failover-state-select-slave", "%s", old)
		srv.event("+selected-slave", "%s", chosen)
		srv.event("+failover-state-send-slaveof-noone", "%s", chosen)
		srv.event("+failover-state-wait-promotion", "%s", chosen)
		srv.event("+promoted-slave", "%s", chosen)
		srv.event("+failover-state-reconf-slaves", "%s", old)
		for _, n := range now.replicas() {
			if n.ID == before.id {
				continue
			}
			at := now.find(n.Plain)
			other := fmt.Sprintf("slave %s %s %d %s", at.hostPort(), at.host, at.port, under)
			for _, stage := range []string{"sent", "inprog", "done"} {
				srv.event("+slave-reconf-"+stage, "%s", other)
			}
		}
		srv.event("+failover-end", "%s", old)
	} else if at := now.find(now.master.Sentinel); at.known() {
		srv.event("+config-update-from", "sentinel %s %s %d %s", sentinelName(now.id), at.host, at.port, under)
	}
	srv.event("+switch-master", "%s %s %d %s %d", srv.watch.name, before.at.host, before.at.port, now.at.host, now.at.port)
	for _, n := range now.replicas() {
		srv.event("+slave", "slave %s", srv.instance("slave", n, now))
	}
}

// instance describes a replica or a Sentinel in events.
func (srv *Server) instance(kind string, n *cluster.Sighting, w watched) string {
	at := w.find(n.Plain)
	name := at.hostPort()
	if kind == "sentinel" {
		at, name = w.find(n.Sentinel), sentinelName(n.ID)
	}
	return fmt.Sprintf("%s %s %d @ %s %s %d", name, at.host, at.port, srv.watch.name, w.at.host, w.at.port)
}

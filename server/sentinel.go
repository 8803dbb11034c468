package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// A Sentinel is a Server of its own beside the server for data. Raft tells it what a redis-sentinel finds out by asking and voting.

// watcher is the part of a Server that makes it a Sentinel.
type watcher struct {
	name      string // the name by which clients ask for the master
	failovers failovers
}

// failoverPause is the shortest time from any failover to one by SENTINEL FAILOVER, because each failover pauses all clients, and anybody
// may ask for one.
const failoverPause = 10 * time.Second

// failovers says when SENTINEL FAILOVER may begin a failover.
type failovers struct {
	mu    sync.Mutex
	runs  bool      // a failover that SENTINEL FAILOVER has begun is in progress
	ended time.Time // when the last such failover ended, or the master last changed for any reason; zero: never
}

// begin reports whether SENTINEL FAILOVER may begin a failover now. If so, the failover counts as in progress until the method end is
// called.
func (f *failovers) begin(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	since := now.Sub(f.ended)
	if f.runs || since >= 0 && since < failoverPause { // since is negative if the clock has been set back
		return false
	}
	f.runs = true
	return true
}

// end notes the end of the failover that begin admitted.
func (f *failovers) end(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs, f.ended = false, now
}

// seen notes a change of the master, whoever has caused it.
func (f *failovers) seen(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = now
}

// aside is a backend that is never busy: a Sentinel answers while a script runs.
type aside struct{ Backend }

func (aside) Busy() bool { return false }

// NewSentinel makes a Sentinel that calls its master by the given name, and panics like New. cfg.Hub is the Hub of the server for data,
// whose default user may log in with the cluster's password (with cfg.AnyClient: cfg.RequirePass). Clients with TLS need other addresses,
// so they have a Sentinel of their own, for which secret is true.
func NewSentinel(cfg Config, backend Backend, name string, secret bool) *Server {
	cfg.secretSentinel = secret
	users := cfg.Hub.accounts
	cfg.Hub = NewHub() // clients of the server for data must not get the Sentinel's events
	if !cfg.AnyClient {
		cfg.Hub.accounts.cluster = users
	}
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

// sentinelToo reports whether a Sentinel has the command with this name in the same form as the servers for data.
func sentinelToo(name string) bool {
	switch name {
	case "auth", "client", "command", "hello", "info", "ping", "shutdown",
		"subscribe", "unsubscribe", "psubscribe", "punsubscribe":
		return true
	}
	return false
}

// watched is the master as a topology shows it.
type watched struct {
	*cluster.Topology
	id     string                     // the id of the master
	master *cluster.Sighting          // nil while the master's address is not known
	at     endpoint                   // the master's address, in the form that clients get
	find   func(addr string) endpoint // returns an advertised address in that form
}

// seenBy returns the master as the session's client sees it. A removed node learns of no later leader, so it knows no master.
func (s *session) seenBy(t *cluster.Topology) watched {
	if s.srv.backend.Removed() {
		return watched{Topology: t, find: s.endpointOf}
	}
	return watch(t, s.endpointOf)
}

func watch(t *cluster.Topology, find func(string) endpoint) watched {
	w := watched{Topology: t, id: t.Last, find: find}
	if n := t.Node(t.Last); n != nil {
		if at := find(n.Plain); at.known() {
			w.master, w.at = n, at
		}
	}
	return w
}

// replicas returns the nodes, except the master, that have a known address for clients.
func (w *watched) replicas() (list []*cluster.Sighting) {
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.ID != w.id && w.find(n.Plain).known() {
			list = append(list, n)
		}
	}
	return list
}

// sentinels returns the nodes, except this one, that have a Sentinel.
func (w *watched) sentinels() (list []*cluster.Sighting) {
	for i := range w.Nodes {
		if n := &w.Nodes[i]; n.ID != w.Self && w.find(n.Sentinel).known() {
			list = append(list, n)
		}
	}
	return list
}

// down returns the master's state in INFO's words. odown needs a majority of voters that are up. w.master must not be nil.
func (w *watched) down() string {
	switch {
	case w.master.Up:
		return "ok"
	case w.Up() >= w.Quorum():
		return "odown"
	}
	return "sdown"
}

// watchMembers publishes each change of the members until the server stops. The session anywhere has no client: it determines the
// addresses in events.
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
			// The leader has not announced its address: keep the old master.
			now.master, now.at, now.id = before.master, before.at, before.id
		}
		before = now
	}
}

func (srv *Server) event(channel, format string, args ...any) {
	srv.hub.Publish(store.Channel, channel, fmt.Sprintf(format, args...))
}

// tell publishes the changes between two topologies, in the order and with the texts of redis-sentinel.
func (srv *Server) tell(before, now watched) {
	if now.Term > before.Term {
		srv.event("+new-epoch", "%d", now.Term)
	}
	switched := now.master != nil && before.master != nil && (now.id != before.id || now.at != before.at)
	if switched {
		srv.watch.failovers.seen(srv.cfg.Clock())
		srv.tellSwitch(before, now)
	}
	if now.master == nil {
		return
	}
	if before.master != nil {
		was := before.down()
		if switched {
			was = "ok" // a new master, which has no earlier state
		} else if before.master.RunID != now.master.RunID {
			srv.event("+reboot", "master %s %s %d", srv.watch.name, now.at.host, now.at.port)
		}
		srv.tellMaster(was, now)
	}
	for _, n := range now.replicas() {
		old := before.Node(n.ID)
		if switched {
			// tellSwitch has published +slave for n. As in Redis, n counts as up at that moment: if n is
			// down, +sdown follows.
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

// tellOne publishes a change of a replica or a Sentinel.
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

// tellMaster publishes a change of the master's state. The argument was is the earlier state, as the method down returned it.
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

// tellSwitch publishes a change of master: at the new leader what Redis's Sentinel that ran the failover publishes, elsewhere what Redis's
// other Sentinels publish.
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

// instance describes a replica or a Sentinel for an event.
func (srv *Server) instance(kind string, n *cluster.Sighting, w watched) string {
	at := w.find(n.Plain)
	name := at.hostPort()
	if kind == "sentinel" {
		at, name = w.find(n.Sentinel), sentinelName(n.ID)
	}
	return fmt.Sprintf("%s %s %d @ %s %s %d", name, at.host, at.port, srv.watch.name, w.at.host, w.at.port)
}

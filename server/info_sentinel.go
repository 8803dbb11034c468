package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// infoSection is a section of INFO. The field usual is true if INFO shows the section by default.
type infoSection struct {
	title string
	usual bool
	write func(srv *Server, f *facts)
}

// sections returns the sections that a server has, in order.
func (srv *Server) sections() []infoSection {
	if srv.watch == nil {
		return infoSections
	}
	var list []infoSection
	for _, sec := range infoSections {
		switch sec.title {
		case "Server", "Clients", "Stats", "CPU":
			list = append(list, sec)
		}
	}
	return append(list, infoSection{"Sentinel", true, infoSentinel})
}

func infoSentinel(srv *Server, f *facts) {
	w := f.s.watched()
	masters := 0
	if w.master != nil {
		masters = 1
	}
	f.all(
		"sentinel_masters", masters,
		"sentinel_tilt", 0,
		"sentinel_tilt_since_seconds", -1,
		"sentinel_running_scripts", 0,
		"sentinel_scripts_queue_length", 0,
		"sentinel_simulate_failure_flags", 0,
	)
	if w.master != nil {
		f.add("master0", fmt.Sprintf("name=%s,status=%s,address=%s,slaves=%d,sentinels=%d",
			srv.watch.name, w.down(), w.at.hostPort(), len(w.replicas()), len(w.sentinels())+1))
	}
}

// doInfoCache answers SENTINEL INFO-CACHE: the part of each member's INFO that this node knows, with the leader first.
func doInfoCache(s *session, args [][]byte) store.Reply {
	w := s.watched()
	// As in Redis, the reply has one entry for a name that is given twice.
	if w.master == nil || !slices.ContainsFunc(args[2:], func(name []byte) bool { return string(name) == s.srv.watch.name }) {
		return store.List()
	}
	entries := store.List(cachedInfo(w, w.master))
	for _, n := range w.replicas() {
		entries.Elems = append(entries.Elems, cachedInfo(w, n))
	}
	return store.List(store.Str(s.srv.watch.name), entries)
}

func cachedInfo(w watched, n *cluster.Sighting) store.Reply {
	f := &facts{b: &strings.Builder{}}
	f.b.WriteString("# Server\r\n")
	f.all("redis_version", store.RedisVersion, "redis_mode", "standalone", "run_id", n.RunID, "tcp_port", w.find(n.Plain).port)
	f.b.WriteString("\r\n# Replication\r\n")
	if n == w.master {
		f.all("role", "master", "connected_slaves", 0)
	} else {
		link := "up"
		if !n.Up {
			link = "down"
		}
		f.all("role", "slave", "master_host", w.at.host, "master_port", w.at.port, "master_link_status", link, "slave_repl_offset", n.Applied)
	}
	return store.List(store.Int(int64(n.Silence/time.Millisecond)), store.Str(f.b.String()))
}

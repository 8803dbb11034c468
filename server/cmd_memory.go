package server

import (
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// memoryRows are the commands about the memory of this node, as Go's runtime reports it.
func memoryRows() []row {
	const random, shards, special = "nondeterministic_output", "request_policy:all_shards", "response_policy:special"
	sub := func(name, summary string, do handler, tips ...string) row {
		return row{Command: store.Command{Name: name, Arity: 2, Since: "4.0.0", Summary: summary, Tips: tips}, do: do}
	}
	return []row{{
		Command: store.Command{Name: "memory", Arity: -2, Group: "server", Since: "4.0.0", Summary: "Commands about memory."},
		sub: []row{
			sub("doctor", "Says what is wrong with this node's memory.", doMemoryDoctor, random, shards, special),
			helpRow("memory", "4.0.0", 0),
			sub("malloc-stats", "Describes the state of the allocator.", doMallocStats, random, shards, special),
			sub("purge", "Returns unused memory to the system.", doMemoryPurge, shards, "response_policy:all_succeeded"),
			sub("stats", "Returns figures about this node's memory.", doMemoryStats, random, shards, special),
			// The leader runs MEMORY USAGE, because the leader has the keys: this row has no handler.
			{Command: store.Command{
				Name: "usage", Arity: -3, Flags: store.ReadOnly, Since: "4.0.0", Usage: "key [SAMPLES count]",
				Keys:    []store.KeySpec{{Begin: 2, Step: 1, Flags: store.KeyRO}},
				Summary: "Estimates the memory that a key and its value take.", Run: store.MemoryUsage,
			}},
		},
	}}
}

// memoryFigures are the figures in bytes that Go's runtime can give without stopping the world. They leave out Config.Ballast.
type memoryFigures struct{ objects, heap, free, released, total uint64 }

func (srv *Server) readMemory() memoryFigures {
	read := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/total:bytes"},
	}
	metrics.Read(read)
	v := func(i int) uint64 { return read[i].Value.Uint64() }
	none := min(uint64(srv.cfg.Ballast), v(0))
	return memoryFigures{objects: v(0) - none, heap: v(0) + v(1) - none, free: v(2), released: v(3), total: v(4) - none}
}

func ratio(a, b uint64) float64 { return float64(a) / float64(max(b, 1)) }

// noteMemory records m.objects as a measured memory use, and returns the highest and the first recorded value.
func (srv *Server) noteMemory(m memoryFigures) (peak, first uint64) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.firstMemory == 0 {
		srv.firstMemory = m.objects
	}
	srv.peakMemory = max(srv.peakMemory, m.objects)
	return srv.peakMemory, srv.firstMemory
}

// memoryReport is the memory of a node in bytes, for MEMORY STATS and INFO.
type memoryReport struct {
	memoryFigures
	peak, first             uint64 // the highest and the first measured value of the field objects
	rss, clients, scripts   uint64
	keys                    int
	overhead, data, eachKey uint64
}

func (srv *Server) memory(st *cluster.Status) memoryReport {
	r := memoryReport{memoryFigures: srv.readMemory()}
	r.peak, r.first = srv.noteMemory(r.memoryFigures)
	r.rss = residentMemory(r.memoryFigures)
	r.clients, r.scripts = uint64(srv.clients())*sessionMemory, uint64(st.ScriptSize)
	for _, n := range st.Keys {
		r.keys += n
	}
	r.data = min(uint64(st.DataSize), r.objects) // DataSize is what maxmemory limits
	r.overhead = r.objects - r.data
	r.eachKey = (r.objects - min(r.first, r.objects)) / uint64(max(r.keys, 1))
	return r
}

// residentMemory returns how many bytes of the machine's memory the process uses. On systems other than Linux, it
// returns an estimate from m.
func residentMemory(m memoryFigures) uint64 {
	var size, pages uint64
	if statm, err := os.ReadFile("/proc/self/statm"); err == nil { // only Linux has this file
		if _, err := fmt.Sscanf(string(statm), "%d %d", &size, &pages); err == nil {
			return pages * uint64(os.Getpagesize())
		}
	}
	return m.total - m.released
}

// machineMemory returns how many bytes of memory the machine has; 0 if that is not known.
func machineMemory() uint64 {
	var kib uint64
	if meminfo, err := os.ReadFile("/proc/meminfo"); err == nil { // only Linux has this file
		if _, err := fmt.Sscanf(string(meminfo), "MemTotal: %d kB", &kib); err != nil {
			return 0
		}
	}
	return kib << 10
}

func doMemoryStats(s *session, _ [][]byte) store.Reply {
	st := s.status()
	m := s.srv.memory(&st)
	r := store.MapOf()
	num := func(name string, n uint64) {
		r.Elems = append(r.Elems, store.Str(name), store.Int(int64(n)))
	}
	float := func(name string, f float64) {
		r.Elems = append(r.Elems, store.Str(name), store.Float(f))
	}
	num("peak.allocated", m.peak)
	num("total.allocated", m.objects)
	num("startup.allocated", m.first)
	num("replication.backlog", 0)
	num("clients.slaves", 0)
	num("clients.normal", m.clients)
	num("cluster.links", 0)
	num("aof.buffer", 0)
	num("lua.caches", m.scripts)
	num("functions.caches", 0)
	for db := range st.Keys {
		if st.Keys[db] == 0 {
			continue
		}
		r.Elems = append(r.Elems, store.Str("db."+strconv.Itoa(db)), store.MapOf(
			store.Str("overhead.hashtable.main"), store.Int(int64(st.Keys[db])*keyOverhead),
			store.Str("overhead.hashtable.expires"), store.Int(int64(st.Deadlines[db])*keyOverhead),
			store.Str("overhead.hashtable.slot-to-keys"), store.Zero))
	}
	num("overhead.total", m.overhead)
	num("keys.count", uint64(m.keys))
	num("keys.bytes-per-key", m.eachKey)
	num("dataset.bytes", m.data)
	float("dataset.percentage", 100*ratio(m.data, m.objects))
	float("peak.percentage", 100*ratio(m.objects, m.peak))
	num("allocator.allocated", m.objects)
	num("allocator.active", m.heap)
	num("allocator.resident", m.heap+m.free)
	float("allocator-fragmentation.ratio", ratio(m.heap, m.objects))
	num("allocator-fragmentation.bytes", m.heap-m.objects)
	float("allocator-rss.ratio", ratio(m.heap+m.free, m.heap))
	num("allocator-rss.bytes", m.free)
	float("rss-overhead.ratio", ratio(m.rss, m.heap+m.free))
	num("rss-overhead.bytes", m.rss-min(m.rss, m.heap+m.free))
	float("fragmentation", ratio(m.rss, m.objects))
	num("fragmentation.bytes", m.rss-min(m.rss, m.objects))
	return r
}

const (
	sessionMemory = 6 << 10 // bytes of an idle connection
	keyOverhead   = 48      // bytes of a key's entry in a tree
)

// MEMORY DOCTOR gives no opinion if objects take fewer than littleMemory bytes, as in Redis.
const littleMemory = 5 << 20

func doMemoryDoctor(s *session, _ [][]byte) store.Reply {
	m := s.srv.readMemory()
	peak, _ := s.srv.noteMemory(m)
	rss := residentMemory(m)
	var found []string
	if peak > m.objects+m.objects/2 {
		found = append(found, " * Peak memory: this node once used more than one and a half times what it uses now.")
	}
	if rss > 2*m.objects {
		found = append(found, " * Fragmentation: the process holds more than twice what its objects take. MEMORY PURGE returns what is free.")
	}
	switch {
	case m.objects < littleMemory:
		return store.Text("This node uses so little memory that there is nothing to say about it.\n")
	case found == nil:
		return store.Text("Nothing about this node's memory looks wrong.\n")
	}
	return store.Text("What looks unusual about this node's memory:\n\n" + strings.Join(found, "\n") + "\n")
}

// purgePause is the shortest time between the starts of two purges, because each is a whole garbage collection.
const purgePause = time.Second

// purging returns memory to the system. Its method purge does nothing while another purge runs, or if the previous
// purge began less than purgePause ago.
type purging struct {
	mu   sync.Mutex
	last time.Time
	do   func() // debug.FreeOSMemory
}

func (p *purging) purge(now time.Time) {
	if !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	if now.Sub(p.last) >= purgePause {
		p.do()
		p.last = now
	}
}

// doMemoryPurge takes as long as a garbage collection. A script does not wait for the collection, because all clients wait for the
// script.
func doMemoryPurge(s *session, _ [][]byte) store.Reply {
	if s.script != nil {
		go s.srv.purging.purge(s.srv.cfg.Clock())
		return store.OK
	}
	s.srv.purging.purge(s.srv.cfg.Clock())
	return store.OK
}

func doMallocStats(s *session, _ [][]byte) store.Reply {
	m := s.srv.readMemory()
	var b strings.Builder
	f := facts{b: &b}
	f.all("allocator", "Go "+runtime.Version(), "objects", m.objects, "heap", m.heap, "free", m.free, "released", m.released, "total", m.total)
	return store.Text(b.String())
}

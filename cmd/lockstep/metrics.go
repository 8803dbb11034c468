package main

import (
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cluster/tally"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/bridge"
	"github.com/lockstep-io/lockstep/server"
)

// What /metrics shows. The labels are kinds of locks, names and groups of commands, and fixed words. So what clients do can make only few
// series. Nothing is measured here: a scrape reads what the node counts anyway.

// figuresFormat is the format of /metrics, whatever a client accepts: the page is made once for all clients.
var figuresFormat = expfmt.NewFormat(expfmt.TypeTextPlain)

// newRegistry returns the metrics of a node. It does not use the parts yet.
func newRegistry(p *parts) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newNodeCollector(p), newCommandCollector(p), newMeasureCollector(p), newRaftCollector())
	return r
}

// writeFigures writes the metrics of a registry.
func writeFigures(w io.Writer, r *prometheus.Registry) error {
	families, err := r.Gather()
	if err != nil {
		return err
	}
	e := expfmt.NewEncoder(w, figuresFormat)
	for _, f := range families {
		if err := e.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

// describe returns the description of a metric.
func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("lockstep_"+name, help, labels, nil)
}

// glance is what the collector of a node looks at in one scrape.
type glance struct {
	cluster.Status
	node            *cluster.Node
	srv             *server.Server
	lines           *lineQueue
	keys, deadlines int
	down            int // members that are down
	clientBytes     int64
	cutOff          int64
	tracked         int
	trackedBytes    int64
	clients         int64
	blocked         int64
	bridge          *bridge.Bridge // nil without --bridge
	bridgeUp        bool
	bridgeLocks     int
}

func look(p *parts) *glance {
	g := &glance{Status: p.node.Status(), node: p.node, srv: p.server, lines: p.lines}
	for db := range g.Keys {
		g.keys, g.deadlines = g.keys+g.Keys[db], g.deadlines+g.Deadlines[db]
	}
	if members, err := p.node.Members(); err == nil { // otherwise the node is closing
		for _, m := range members {
			if !m.Up {
				g.down++
			}
		}
	}
	g.clientBytes, g.cutOff = p.server.ClientMemory()
	g.tracked, g.trackedBytes = p.server.TrackedKeys()
	g.clients, g.blocked = p.server.Clients()
	g.bridge = p.bridge
	g.bridgeUp, g.bridgeLocks = p.bridge.Up()
	return g
}

// figure is a metric without labels.
type figure struct {
	name, help string
	value      func(g *glance) float64
}

// bridged returns the value of a count of the bridge; 0 without --bridge.
func bridged(count func(c *bridge.Counts) uint64) func(g *glance) float64 {
	return func(g *glance) float64 {
		if c := g.bridge.Counts(); c != nil {
			return float64(count(c))
		}
		return 0
	}
}

func flag01(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

var gauges = []figure{
	{"is_leader", "1 if this node leads.", func(g *glance) float64 { return flag01(g.Role == cluster.Leader) }},
	{"has_leader", "1 if this node knows a leader.", func(g *glance) float64 { return flag01(g.LeaderID != "") }},
	{"ready", "1 if this node reaches the leader, has applied its log, is a voter, its log takes entries, and it does not stop.", func(g *glance) float64 { return flag01(unready(g.node) == "") }},
	{"is_voter", "1 if this node has a vote; 0 while it joins or catches up, and when it has been removed.", func(g *glance) float64 { return flag01(g.Membership == cluster.Voter) }},
	{"members", "Voting members of the cluster as this node knows it.", func(g *glance) float64 { return float64(g.node.Topology().Members) }},
	{"members_down", "Members that this node has not heard from for 1.5 s.", func(g *glance) float64 { return float64(g.down) }},
	{"term", "Raft term.", func(g *glance) float64 { return float64(g.Term) }},
	{"applied_index", "Raft index of the last entry applied.", func(g *glance) float64 { return float64(g.Applied) }},
	{"commit_index", "Raft index of the last entry committed.", func(g *glance) float64 { return float64(g.Commit) }},
	{"keys", "Keys in all databases.", func(g *glance) float64 { return float64(g.keys) }},
	{"keys_with_deadline", "Keys with a time to live.", func(g *glance) float64 { return float64(g.deadlines) }},
	{"data_bytes", "What the keys take, as maxmemory counts it.", func(g *glance) float64 { return float64(g.DataSize) }},
	{"maxmemory_bytes", "From how much on nothing may be added; 0: no limit.", func(g *glance) float64 { return float64(g.MemoryLimit) }},
	{"data_dir_bytes", "Bytes of the files in the data directory, looked at every five seconds, with a quota four times a second.", func(g *glance) float64 { return float64(g.DirectorySize) }},
	{"data_dir_quota_bytes", "From how much of them on nothing may be added, while this node leads; 0: no limit.", func(g *glance) float64 { return float64(g.DirectoryQuota) }},
	{"disk_trouble", "1 while the log takes no entries, because the disk is full or hangs.", func(g *glance) float64 { return flag01(g.node.Trouble() != "") }},
	{"reply_bytes", "Bytes of large replies that wait to be encoded for their clients; beyond 8 MB long reads wait, beyond 24 MB every request.", func(g *glance) float64 { return float64(g.node.RepliesInHand()) }},
	{"kept_reply_bytes", "Bytes of replies to writes of other nodes, kept in case that they are sent again; about 8 MB of one node at most.", func(g *glance) float64 { return float64(g.KeptReplies) }},
	{"scripts", "Scripts in the cache.", func(g *glance) float64 { return float64(g.Scripts) }},
	{"last_leaderless_seconds", "Time without a leader before the last election that this node has won.", func(g *glance) float64 { return g.LastLeaderless.Seconds() }},
	{"connected_clients", "Clients of this node, without those of Sentinel ports.", func(g *glance) float64 { return float64(g.clients) }},
	{"blocked_clients", "Clients of this node that wait in a blocking command or in a pause.", func(g *glance) float64 { return float64(g.blocked) }},
	{"client_bytes", "Bytes that clients hold in buffers, queues and tables, without those who hold less than 64 KB; maxmemory-clients bounds the sum.", func(g *glance) float64 { return float64(g.clientBytes) }},
	{"tracking_keys", "Keys that are remembered for CLIENT TRACKING, which tracking-table-max-keys bounds.", func(g *glance) float64 { return float64(g.tracked) }},
	{"bridge_up", "1 if the old Redis of --bridge has answered the last command; 0 without --bridge.", func(g *glance) float64 { return flag01(g.bridgeUp) }},
	{"bridge_locks", "Locks that this node compares with the old Redis of --bridge.", func(g *glance) float64 { return float64(g.bridgeLocks) }},
	{"tracking_bytes", "Bytes that those keys take, at most half of maxmemory-clients, beside that.", func(g *glance) float64 { return float64(g.trackedBytes) }},
}

var counters = []figure{
	{"leader_changes_total", "How often this node has heard of a new leader.", func(g *glance) float64 { return float64(g.LeaderChanges) }},
	{"leaderless_seconds_total", "Time without a leader by which leases were lengthened, in the elections that this node has won.", func(g *glance) float64 { return g.Leaderless.Seconds() }},
	{"leases_lengthened_total", "Leases that this node has lengthened as leader, because the log took them so late.", func(g *glance) float64 { return float64(g.node.Measures().Lengthened.Load()) }},
	{"wall_clock_shift_seconds_total", "By how much the clock of this machine was set or has drifted, back and forth, while this node led. Leases do not follow it.", func(g *glance) float64 { return g.WallShift.Seconds() }},
	{"write_sets_total", "Write sets applied: log entries that have changed the data.", func(g *glance) float64 { return float64(g.Sequence) }},
	{"expired_keys_total", "Keys deleted at their deadline.", func(g *glance) float64 { return float64(g.Expired) }},
	{"peer_refused_total", "Connections to the peer port that were turned away: not from a peer, or one that did not prove it.", func(g *glance) float64 { return float64(g.node.Strangers()) }},
	{"tls_handshake_failures_total", "Clients that failed at the TLS handshake, or spoke TLS to a port without it; without Sentinel ports.", func(g *glance) float64 { return float64(g.srv.FailedHandshakes()) }},
	{"evicted_clients_total", "Clients cut off by maxmemory-clients.", func(g *glance) float64 { return float64(g.cutOff) }},
	{"bridge_lost_locks_total", "Locks of clients of this node that the old Redis of --bridge has lost; their owners keep them here.", bridged(func(c *bridge.Counts) uint64 { return c.Lost.Load() })},
	{"bridge_restored_locks_total", "Of these, locks that the node has put back on the old Redis.", bridged(func(c *bridge.Counts) uint64 { return c.Restored.Load() })},
	{"bridge_refused_total", "Commands that the old Redis of --bridge has executed, and that were refused here and taken back there, because another client has the lock.", bridged(func(c *bridge.Counts) uint64 { return c.Refused.Load() })},
	{"bridge_alone_total", "Commands about locks of clients here that were decided without the old Redis of --bridge, because it did not answer or has lost the lock.", bridged(func(c *bridge.Counts) uint64 { return c.Alone.Load() })},
	{"bridge_failed_total", "Commands that were answered by an error, because the old Redis of --bridge did not answer or has refused them.", bridged(func(c *bridge.Counts) uint64 { return c.Failed.Load() })},
	{"bridge_forgotten_locks_total", "Locks that this node does not compare with the old Redis of --bridge, because there are too many.", bridged(func(c *bridge.Counts) uint64 { return c.Forgot.Load() })},
	{"log_lines_lost_total", "Lines that the log lacks, because nobody read it in time or because it could not be written.", func(g *glance) float64 {
		if g.lines == nil {
			return 0
		}
		return float64(g.lines.lost.Load())
	}},
}

// nodeCollector collects the metrics without labels.
type nodeCollector struct {
	p               *parts
	gauges, counter []*prometheus.Desc
}

func newNodeCollector(p *parts) *nodeCollector {
	c := &nodeCollector{p: p}
	for _, f := range gauges {
		c.gauges = append(c.gauges, describe(f.name, f.help))
	}
	for _, f := range counters {
		c.counter = append(c.counter, describe(f.name, f.help))
	}
	return c
}

func (c *nodeCollector) Describe(out chan<- *prometheus.Desc) { tell(out, c.gauges, c.counter) }

func tell(out chan<- *prometheus.Desc, lists ...[]*prometheus.Desc) {
	for _, list := range lists {
		for _, d := range list {
			out <- d
		}
	}
}

func (c *nodeCollector) Collect(out chan<- prometheus.Metric) {
	g := look(c.p)
	for i, f := range gauges {
		out <- prometheus.MustNewConstMetric(c.gauges[i], prometheus.GaugeValue, f.value(g))
	}
	for i, f := range counters {
		out <- prometheus.MustNewConstMetric(c.counter[i], prometheus.CounterValue, f.value(g))
	}
}

// commandCollector collects the metrics of commands.
type commandCollector struct {
	p                                *parts
	calls, failed, rejected, seconds *prometheus.Desc
}

func newCommandCollector(p *parts) *commandCollector {
	return &commandCollector{p,
		describe("commands_total", "Calls of a command; the calls of its subcommands count here, too.", "command"),
		describe("commands_failed_total", "Calls of a command that were answered by an error.", "command"),
		describe("commands_rejected_total", "Calls of a command that were refused, and not run.", "command"),
		describe("command_seconds", "Time that commands take on the node of their client, from their arrival to their reply, by group of commands; "+
			"without those that waited as blocking commands, and while latency-tracking is off.", "group"),
	}
}

func (c *commandCollector) Describe(out chan<- *prometheus.Desc) {
	tell(out, []*prometheus.Desc{c.calls, c.failed, c.rejected, c.seconds})
}

func (c *commandCollector) Collect(out chan<- prometheus.Metric) {
	groups := map[string]tally.Seen{}
	c.p.server.EachCommand(func(f server.CommandFigures) {
		for _, m := range []struct {
			desc  *prometheus.Desc
			value uint64
		}{{c.calls, f.Calls}, {c.failed, f.Failed}, {c.rejected, f.Rejected}} {
			if m.value > 0 {
				out <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(m.value), f.Name)
			}
		}
		if f.Took.Count == 0 {
			return
		}
		sum := groups[f.Group]
		if sum.Upto == nil {
			sum.Upto = make([]uint64, len(f.Took.Upto))
		}
		for i, n := range f.Took.Upto {
			sum.Upto[i] += n
		}
		sum.Count, sum.Sum = sum.Count+f.Took.Count, sum.Sum+f.Took.Sum
		groups[f.Group] = sum
	})
	for group, sum := range groups {
		out <- histogram(c.seconds, sum, server.CommandBounds(), float64(time.Second), group)
	}
}

// histogram makes a metric of a histogram. The sum has the unit of the bounds times per.
func histogram(desc *prometheus.Desc, s tally.Seen, bounds []float64, per float64, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(bounds))
	for i, b := range bounds {
		buckets[b] = s.Upto[i]
	}
	return prometheus.MustNewConstHistogram(desc, s.Count, float64(s.Sum)/per, buckets, labels...)
}

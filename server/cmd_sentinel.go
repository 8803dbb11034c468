package server

import (
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// sentinelRows are the commands that only a Sentinel has, or that it answers differently from other servers.
func sentinelRows() []row {
	sub := func(name string, arity int, usage, since, summary string, do handler) row {
		return row{Command: store.Command{Name: name, Arity: arity, Flags: store.Admin, Since: since, Usage: usage, Summary: summary}, do: do}
	}
	slaves := sub("slaves", 3, "master-name", "2.8.0", "Lists the replicas.", ofMaster(doSentinelReplicas))
	slaves.Deprecated, slaves.ReplacedBy = "5.0.0", "`SENTINEL REPLICAS`"
	return []row{
		{
			Command: store.Command{Name: "sentinel", Arity: -2, Flags: store.Admin, Group: "sentinel", Since: "2.8.4", Summary: "Commands of Redis Sentinel."},
			sub: []row{
				sub("ckquorum", 3, "master-name", "2.8.4", "Says whether enough members are up to elect a leader.", ofMaster(doCkQuorum)),
				sub("config", -3, "GET option | SET option value", "6.2.0", "Returns the configuration; it cannot be changed.", doSentinelConfig),
				sub("debug", -2, "[parameter value [parameter value ...]]", "7.0.0", "Lists the times that govern a failover.", doSentinelDebug),
				sub("failover", 3, "master-name", "2.8.4", "Hands leadership to another member.", ofMaster(doSentinelFailover)),
				sub("flushconfig", 2, "", "2.8.4", "Does nothing: there is no configuration file.", doOK),
				sub("get-master-addr-by-name", 3, "master-name", "2.8.4", "Returns the address of the leader.", doGetMasterAddr),
				helpRow("sentinel", "6.2.0", 0),
				sub("info-cache", -3, "master-name [master-name ...]", "3.2.0", "Returns what is known of the members in the form of INFO.", doInfoCache),
				sub("is-master-down-by-addr", 6, "ip port current-epoch runid", "2.8.4", "Says whether a leader is down.", doIsMasterDown),
				sub("master", 3, "master-name", "2.8.4", "Describes the leader.", ofMaster(doSentinelMaster)),
				sub("masters", 2, "", "2.8.4", "Lists the leader.", doSentinelMasters),
				sub("monitor", 6, "name ip port quorum", "2.8.4", "Refused: the cluster says what is watched.", doSentinelMonitor),
				sub("myid", 2, "", "6.2.0", "Returns the id of this Sentinel.", doSentinelID),
				sub("pending-scripts", 2, "", "2.8.4", "Lists the scripts to be run: none.", doEmptyList),
				sub("remove", 3, "master-name", "2.8.4", "Refused: the cluster says what is watched.", ofMaster(doSentinelFixed)),
				sub("replicas", 3, "master-name", "5.0.0", "Lists the replicas.", ofMaster(doSentinelReplicas)),
				sub("reset", 3, "pattern", "2.8.4", "Counts the masters of a name; there is nothing to forget about them.", doSentinelReset),
				sub("sentinels", 3, "master-name", "2.8.4", "Lists the other Sentinels.", ofMaster(doSentinelPeers)),
				sub("set", -5, "master-name option value [option value ...]", "2.8.4", "Refused: the cluster says how it is watched.", ofMaster(doSentinelSet)),
				sub("simulate-failure", -3, "[CRASH-AFTER-ELECTION] [CRASH-AFTER-PROMOTION] [HELP]", "3.2.0", "Refused, HELP apart.", doSimulateFailure),
				slaves,
			},
		},
		{Command: store.Command{
			Name: "role", Arity: 1, Flags: store.NoScript | store.Loading | store.Stale | store.Fast | store.Admin | store.Dangerous, Group: "server", Since: "2.8.12",
			Summary: "Says that this is a Sentinel, and of which masters.",
		}, do: doSentinelRole},
		{Command: store.Command{
			Name: "publish", Arity: 3, Flags: store.PubSub | store.Loading | store.Stale | store.Fast, Group: "pubsub", Since: "2.0.0",
			Usage: "channel message", Summary: "Takes the greetings of other Sentinels.",
		}, do: doSentinelPublish},
	}
}

// ofMaster returns a handler that calls do if the argument names the watched master and the master's address is known.
func ofMaster(do func(s *session, w watched, args [][]byte) store.Reply) handler {
	return func(s *session, args [][]byte) store.Reply {
		w := s.watched()
		if string(args[2]) != s.srv.watch.name || w.master == nil {
			return store.Err(errNoMaster)
		}
		return do(s, w, args)
	}
}

func (s *session) watched() watched { return s.seenBy(s.topology()) }

func doSentinelRole(s *session, _ [][]byte) store.Reply {
	return store.List(store.Str("sentinel"), store.Strs(s.srv.watch.name))
}

// helloChannel is the channel on which Sentinels greet each other in Redis.
const helloChannel = "__sentinel__:hello"

func doSentinelPublish(_ *session, args [][]byte) store.Reply {
	if string(args[1]) != helloChannel {
		return store.Err(errHelloOnly)
	}
	return store.Int(1)
}

func doSentinelID(s *session, _ [][]byte) store.Reply {
	return store.Str(sentinelName(s.srv.cfg.NodeID))
}

func doGetMasterAddr(s *session, args [][]byte) store.Reply {
	w := s.watched()
	if string(args[2]) != s.srv.watch.name || w.master == nil {
		return store.Reply{Kind: store.NullArray}
	}
	return store.Strs(w.at.host, w.at.digits())
}

func doSentinelMasters(s *session, _ [][]byte) store.Reply {
	w := s.watched()
	if w.master == nil {
		return store.List()
	}
	return store.List(describeMaster(s, w))
}

func doSentinelMaster(s *session, w watched, _ [][]byte) store.Reply { return describeMaster(s, w) }

func doSentinelReplicas(s *session, w watched, _ [][]byte) store.Reply {
	r := store.List()
	for _, n := range w.replicas() {
		r.Elems = append(r.Elems, describeReplica(w, n))
	}
	return r
}

func doSentinelPeers(s *session, w watched, _ [][]byte) store.Reply {
	r := store.List()
	for _, n := range w.sentinels() {
		r.Elems = append(r.Elems, describeSentinel(w, n))
	}
	return r
}

// traits are the fields by which a Sentinel describes a master, a replica or another Sentinel. Every value is a bulk
// string.
type traits struct{ fields []store.Reply }

func (f *traits) text(name, value string) {
	f.fields = append(f.fields, store.Str(name), store.Str(value))
}
func (f *traits) num(name string, n int64) { f.text(name, strconv.FormatInt(n, 10)) }
func (f *traits) ms(name string, d time.Duration) {
	f.num(name, int64(d/time.Millisecond))
}

// common adds the fields with which the description of every kind of instance begins.
func (f *traits) common(w watched, n *cluster.Sighting, name string, at endpoint, runID, kind string) {
	flags := kind
	if !n.Up {
		flags = kind + ",disconnected"
		if kind == "master" && w.down() == "odown" {
			flags = "o_down," + flags
		}
		flags = "s_down," + flags
	}
	f.text("name", name)
	f.text("ip", at.host)
	f.text("port", at.digits())
	f.text("runid", runID)
	f.text("flags", flags)
	f.text("link-pending-commands", "0")
	f.text("link-refcount", "1")
	waiting := time.Duration(0)
	if !n.Up {
		waiting = n.Silence
	}
	f.ms("last-ping-sent", waiting)
	f.ms("last-ok-ping-reply", n.Silence)
	f.ms("last-ping-reply", n.Silence)
	if !n.Up {
		since := max(0, n.Silence-w.DownAfter)
		f.ms("s-down-time", since)
		if kind == "master" && w.down() == "odown" {
			f.ms("o-down-time", since)
		}
	}
	f.ms("down-after-milliseconds", w.DownAfter)
}

// These are the values of a redis-sentinel with its default configuration.
const (
	failoverTimeout = 180 * time.Second
	parallelSyncs   = 1
)

func describeMaster(s *session, w watched) store.Reply {
	var f traits
	f.common(w, w.master, s.srv.watch.name, w.at, w.master.RunID, "master")
	f.ms("info-refresh", w.master.Silence)
	f.text("role-reported", "master")
	f.ms("role-reported-time", w.master.Known)
	f.num("config-epoch", int64(w.Term))
	f.num("num-slaves", int64(len(w.replicas())))
	f.num("num-other-sentinels", int64(len(w.sentinels())))
	f.num("quorum", int64(w.Quorum()))
	f.ms("failover-timeout", failoverTimeout)
	f.num("parallel-syncs", parallelSyncs)
	return store.MapOf(f.fields...)
}

func describeReplica(w watched, n *cluster.Sighting) store.Reply {
	at := w.find(n.Plain)
	link, down := "ok", time.Duration(0)
	if !n.Up {
		link, down = "err", n.Silence
	}
	var f traits
	f.common(w, n, at.hostPort(), at, n.RunID, "slave")
	f.ms("info-refresh", n.Silence)
	f.text("role-reported", "slave")
	f.ms("role-reported-time", n.Known)
	f.ms("master-link-down-time", down)
	f.text("master-link-status", link)
	f.text("master-host", w.at.host)
	f.text("master-port", w.at.digits())
	f.text("slave-priority", "100")
	f.num("slave-repl-offset", int64(n.Applied))
	f.text("replica-announced", "1")
	return store.MapOf(f.fields...)
}

func describeSentinel(w watched, n *cluster.Sighting) store.Reply {
	name := sentinelName(n.ID)
	var f traits
	f.common(w, n, name, w.find(n.Sentinel), name, "sentinel")
	f.ms("last-hello-message", n.Silence)
	f.text("voted-leader", "?")
	f.text("voted-leader-epoch", "0")
	return store.MapOf(f.fields...)
}

func doCkQuorum(_ *session, w watched, _ [][]byte) store.Reply {
	usable := w.Up()
	if usable >= w.Quorum() {
		return store.Status("OK " + strconv.Itoa(usable) + " usable Sentinels. Quorum and failover authorization can be reached")
	}
	// Redis distinguishes the quorum from the majority; here they are the same.
	return store.Err(errf("NOQUORUM %d usable Sentinels. Not enough available Sentinels to reach the specified quorum for this master."+
		" Not enough available Sentinels to reach the majority and authorize a failover", usable))
}

// doSentinelFailover replies when the failover has begun, as redis-sentinel does. Until failoverPause after the end of a failover, it
// refuses another one.
func doSentinelFailover(s *session, w watched, _ [][]byte) store.Reply {
	fit := false
	for _, n := range w.replicas() {
		fit = fit || n.Up
	}
	if !fit {
		return store.Err(errNoGoodReplica)
	}
	if !s.srv.watch.failovers.begin(s.srv.cfg.Clock()) {
		return store.Err(errFailoverBusy)
	}
	go func() {
		defer func() { s.srv.watch.failovers.end(s.srv.cfg.Clock()) }()
		if err := s.srv.backend.Transfer(""); err != nil {
			s.srv.cfg.Log.Warn("SENTINEL FAILOVER: leadership was not handed over", "error", err)
		}
	}()
	return store.OK
}

func doIsMasterDown(s *session, args [][]byte) store.Reply {
	port, ok := redistext.ParseInt(args[3])
	_, ok2 := redistext.ParseInt(args[4])
	if !ok || !ok2 {
		return store.Err(store.ErrNotInteger)
	}
	w := s.watched()
	down := store.Zero
	if w.master != nil && !w.master.Up && w.at.host == string(args[2]) && int64(w.at.port) == port {
		down = store.Int(1)
	}
	voted, epoch := "*", int64(0)
	if string(args[5]) != "*" && w.Leader != "" {
		voted, epoch = sentinelName(w.Leader), int64(w.Term)
	}
	return store.List(down, store.Str(voted), store.Int(epoch))
}

func doSentinelReset(s *session, args [][]byte) store.Reply {
	w := s.watched()
	if w.master == nil || !redistext.Match(string(args[2]), s.srv.watch.name) {
		return store.Zero
	}
	s.srv.event("+reset-master", "master %s %s %d", s.srv.watch.name, w.at.host, w.at.port)
	return store.Int(1)
}

func doSentinelFixed(*session, watched, [][]byte) store.Reply { return store.Err(errFixedSentinel) }

func doSentinelMonitor(s *session, args [][]byte) store.Reply {
	quorum, ok := redistext.ParseInt(args[5])
	port, ok2 := redistext.ParseInt(args[4])
	switch {
	case !ok:
		return store.Err(errMonitorQuorum)
	case quorum <= 0:
		return store.Err(errQuorumLow)
	case !ok2 || port < 0 || port > 65535:
		return store.Err(errMonitorPort)
	case string(args[2]) == s.srv.watch.name:
		return store.Err(errMonitorTwice)
	}
	return store.Err(errFixedSentinel)
}

// sentinelOptions are the options of SENTINEL SET in Redis, each with its number of values.
var sentinelOptions = map[string]int{
	"down-after-milliseconds": 1, "failover-timeout": 1, "parallel-syncs": 1, "notification-script": 1,
	"client-reconfig-script": 1, "auth-pass": 1, "auth-user": 1, "quorum": 1, "rename-command": 2, "master-reboot-down-after-period": 1,
}

func doSentinelSet(_ *session, _ watched, args [][]byte) store.Reply {
	for i := 3; i < len(args); i++ {
		values, known := sentinelOptions[strings.ToLower(string(args[i]))]
		if !known || i+values >= len(args) {
			return store.Err(errSentinelOption("SET", args[i]))
		}
		i += values
	}
	return store.Err(errFixedSentinel)
}

// sentinelConfig returns the options of SENTINEL CONFIG GET. The two about host names are yes if a node advertises a host name.
func (s *session) sentinelConfig() [][2]string {
	names := "no"
	for _, n := range s.topology().Nodes {
		if at := s.endpointOf(n.Plain); at.known() && net.ParseIP(at.host) == nil {
			names = "yes"
		}
	}
	return [][2]string{
		{"resolve-hostnames", names}, {"announce-hostnames", names}, {"announce-ip", ""}, {"announce-port", "0"},
		{"sentinel-user", ""}, {"sentinel-pass", ""},
	}
}

func doSentinelConfig(s *session, args [][]byte) store.Reply {
	switch what := strings.ToLower(string(args[2])); {
	case what == "get" && len(args) == 4:
		r := store.MapOf()
		for _, kv := range s.sentinelConfig() {
			if redistext.Match(strings.ToLower(string(args[3])), kv[0]) {
				r.Elems = append(r.Elems, store.Str(kv[0]), store.Str(kv[1]))
			}
		}
		return r
	case what == "set" && len(args) == 5:
		for _, kv := range s.sentinelConfig() {
			if strings.EqualFold(kv[0], string(args[3])) {
				return store.Err(errFixedSentinel)
			}
		}
		return store.Err(errf("ERR Invalid argument '%s' to SENTINEL CONFIG SET", cString(args[3], len(args[3]))))
	}
	return store.Err(errSentinelConfig)
}

// sentinelTimes are the default times of redis-sentinel, in milliseconds. They do not govern this
// server: cluster.Config.DownAfter, for example, is shorter than DEFAULT-DOWN-AFTER.
var sentinelTimes = [][2]string{
	{"INFO-PERIOD", "10000"}, {"PING-PERIOD", "1000"}, {"ASK-PERIOD", "1000"}, {"PUBLISH-PERIOD", "2000"},
	{"DEFAULT-DOWN-AFTER", "30000"}, {"DEFAULT-FAILOVER-TIMEOUT", "180000"}, {"TILT-TRIGGER", "2000"}, {"TILT-PERIOD", "30000"},
	{"SLAVE-RECONF-TIMEOUT", "10000"}, {"MIN-LINK-RECONNECT-PERIOD", "15000"}, {"ELECTION-TIMEOUT", "10000"},
	{"SCRIPT-MAX-RUNTIME", "60000"}, {"SCRIPT-RETRY-DELAY", "30000"},
}

func doSentinelDebug(_ *session, args [][]byte) store.Reply {
	if len(args) == 2 {
		r := store.MapOf()
		for _, kv := range sentinelTimes {
			r.Elems = append(r.Elems, store.Str(kv[0]), store.Str(kv[1]))
		}
		return r
	}
	for i := 2; i < len(args); i += 2 {
		known := false
		for _, kv := range sentinelTimes {
			known = known || strings.EqualFold(kv[0], string(args[i]))
		}
		if !known || i+1 == len(args) {
			return store.Err(errSentinelOption("DEBUG", args[i]))
		}
		if n, ok := redistext.ParseInt(args[i+1]); !ok || n <= 0 {
			return store.Err(errf("ERR Invalid argument '%s' for SENTINEL DEBUG '%s'", cString(args[i+1], len(args[i+1])), cString(args[i], len(args[i]))))
		}
	}
	return store.Err(errFixedSentinel)
}

func doSimulateFailure(_ *session, args [][]byte) store.Reply {
	for _, arg := range args[2:] {
		switch strings.ToLower(string(arg)) {
		case "help":
			return store.Strs("crash-after-election", "crash-after-promotion")
		case "crash-after-election", "crash-after-promotion":
		default:
			return store.Err(errSimulation)
		}
	}
	return store.Err(errFixedSentinel)
}

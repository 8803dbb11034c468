package server

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/server/history"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// table returns the parameters. Those of describing and accepted have no effect, but clients and tools ask for them.
func (p *params) table(cfg *Config, backend Backend) []*paramDef {
	acting := []*paramDef{
		{name: "requirepass", value: cfg.RequirePass, check: checkPassword}, // see shareParams
		{name: store.ParamChannels, kind: enumParam, words: []string{"allchannels", "resetchannels"}, value: "resetchannels", shared: true},
		{name: "acllog-max-len", kind: intParam, max: math.MaxInt64, value: "128",
			apply: func(v string) { p.aclLogMax.Store(number(v)) }},
		{name: "maxclients", kind: intParam, min: 1, max: math.MaxUint32, value: strconv.Itoa(cfg.MaxClients),
			check: func(v string) (canonical, fault string) {
				if most := cfg.ClientCeiling; most > 0 && number(v) > int64(most) {
					return "", faultFiles(most)
				}
				return v, ""
			},
			apply: func(v string) { p.maxClients.Store(number(v)) }},
		{name: "maxmemory-clients", value: strconv.FormatInt(cfg.MaxMemoryClients, 10),
			check: checkClientLimit,
			apply: func(v string) { p.setClientLimit(v, maxMemory(backend, cfg)) }},
		{name: "timeout", kind: intParam, max: math.MaxInt32, value: strconv.Itoa(cfg.Timeout),
			apply: func(v string) { p.timeout.Store(number(v)) }},
		{name: "tcp-keepalive", kind: intParam, max: math.MaxInt32, value: strconv.Itoa(cfg.TCPKeepAlive),
			apply: func(v string) { p.keepAlive.Store(number(v)) }},
		{name: "protected-mode", kind: boolParam, value: yesNo(cfg.ProtectedMode),
			apply: func(v string) { p.protected.Store(v == "yes") }},
		{name: "proto-max-bulk-len", kind: memoryParam, min: 1 << 20, max: math.MaxInt64, value: strconv.FormatInt(cfg.ProtoMaxBulkLen, 10),
			apply: func(v string) { p.maxBulk.Store(number(v)) }},
		{name: "client-query-buffer-limit", kind: memoryParam, min: 1 << 20, max: math.MaxInt64, value: strconv.FormatInt(cfg.ClientQueryBufferLimit, 10),
			apply: func(v string) { p.maxQuery.Store(number(v)) }},
		{name: "client-output-buffer-limit", value: defaultLimits, apply: p.applyLimits},
		{name: "busy-reply-threshold", alias: "lua-time-limit", kind: intParam, max: math.MaxInt64, value: strconv.Itoa(cfg.BusyReplyThreshold),
			apply: func(v string) { backend.SetBusyThreshold(busyThreshold(number(v))) }},
		{name: store.ParamEvents, shared: true, check: checkEvents},
		{name: store.ParamMaxMemory, kind: memoryParam, max: math.MaxInt64, unsigned: true, value: strconv.FormatInt(cfg.Limits.Memory, 10), shared: true},
		{name: store.ParamMaxEntry, kind: memoryParam, min: store.MinEntry, max: store.MaxEntry, value: strconv.FormatInt(cfg.Limits.Entry, 10), shared: true},
		{name: "tracking-table-max-keys", kind: intParam, max: math.MaxInt64, value: "1000000",
			apply: func(v string) { cfg.Hub.tracker.setMaxKeys(number(v)) }},
		{name: "min-replicas-to-write", alias: "min-slaves-to-write", kind: intParam, max: math.MaxInt32, value: "0",
			apply: func(v string) { p.minReplicas.Store(number(v)) }},
		{name: "min-replicas-max-lag", alias: "min-slaves-max-lag", kind: intParam, max: math.MaxInt32, value: "10",
			apply: func(v string) { p.maxLag.Store(number(v)) }},
		{name: "enable-debug-command", fixed: true, value: cfg.EnableDebugCommand},
	}
	list := append(acting, p.watching(cfg.Hub.locks)...)
	list = append(list, secrecy(cfg)...)
	list = append(list, forms()...)
	list = append(list, describing(cfg)...)
	list = append(list, accepted(cfg)...)
	return list
}

// forms are the parameters that limit the compact forms of hashes, sets and sorted sets. They are shared, because all nodes must
// have the same limits.
func forms() []*paramDef {
	list := []*paramDef{
		num(store.ParamHashEntries, "hash-max-ziplist-entries", "512", 0, math.MaxInt64),
		mem(store.ParamHashValue, "hash-max-ziplist-value", "64", 0, math.MaxInt64),
		num(store.ParamSetEntries, "", "512", 0, math.MaxInt64),
		num(store.ParamScoreEntries, "zset-max-ziplist-entries", "128", 0, math.MaxInt64),
		mem(store.ParamScoreValue, "zset-max-ziplist-value", "64", 0, math.MaxInt64),
	}
	for _, def := range list {
		def.shared = true
	}
	return list
}

// watching returns the parameters of the slow log, of the latency statistics of commands and of the latency monitor.
func (p *params) watching(locks *history.History) []*paramDef {
	return []*paramDef{
		{name: "slowlog-log-slower-than", kind: intParam, min: -1, max: math.MaxInt64, value: "10000",
			apply: func(v string) { p.slowerThan.Store(number(v)); p.setAlarm() }},
		{name: "slowlog-max-len", kind: intParam, max: math.MaxInt64, value: "128",
			apply: func(v string) { p.slowMax.Store(number(v)) }},
		{name: "latency-tracking", kind: boolParam, value: "yes",
			apply: func(v string) { p.untracked.Store(v == "no") }},
		{name: "latency-tracking-info-percentiles", value: "50 99 99.9", check: checkPercentiles,
			apply: func(v string) { p.percentiles.Store(percentilesOf(v)) }},
		{name: "lock-audit", kind: enumParam, words: lockAudit, value: "yes",
			apply: func(v string) { locks.SetMode(history.Mode(slices.Index(lockAudit, v))) }},
		{name: "latency-monitor-threshold", kind: intParam, max: math.MaxInt64, value: "0",
			apply: func(v string) { p.spikeFrom.Store(number(v)); p.setAlarm() }},
	}
}

// describing are parameters that cannot change here. Redis can change bind and port, so CONFIG SET accepts their present values.
func describing(cfg *Config) []*paramDef {
	fixed := func(name, alias, value string) *paramDef {
		return &paramDef{name: name, alias: alias, value: value, fixed: true}
	}
	pinned := func(name, value string) *paramDef {
		return &paramDef{name: name, value: value, check: func(v string) (string, string) {
			if v != value {
				return "", faultPinned
			}
			return v, ""
		}}
	}
	return []*paramDef{
		fixed("aclfile", "", cfg.ACLFile),
		fixed("always-show-logo", "", "no"),
		fixed("aof_rewrite_cpulist", "", ""),
		fixed("appenddirname", "", "appendonlydir"),
		fixed("appendfilename", "", "appendonly.aof"),
		fixed("bgsave_cpulist", "", ""),
		pinned("bind", cfg.Bind),
		fixed("bio_cpulist", "", ""),
		fixed("cluster-config-file", "", "nodes.conf"),
		{name: "cluster-enabled", value: "no", fixed: true, faced: true},
		fixed("cluster-port", "", "0"),
		fixed("daemonize", "", "no"),
		fixed("databases", "", strconv.Itoa(store.Databases)),
		{name: "dbfilename", value: "dump.rdb", protected: true},
		{name: "dir", value: absolute(cfg.DataDir), protected: true},
		fixed("disable-thp", "", "yes"),
		fixed("enable-module-command", "", "no"),
		fixed("enable-protected-configs", "", "no"),
		fixed("io-threads", "", "1"),
		fixed("io-threads-do-reads", "", "no"),
		fixed("logfile", "", ""),
		fixed("pidfile", "", ""),
		pinned("port", strconv.Itoa(cfg.Port)),
		fixed("rdbchecksum", "", "yes"),
		fixed("replicaof", "slaveof", ""),
		fixed("server_cpulist", "", ""),
		fixed("set-proc-title", "", "yes"),
		fixed("socket-mark-id", "", "0"),
		fixed("supervised", "", "no"),
		fixed("syslog-enabled", "", "no"),
		fixed("syslog-facility", "", "local0"),
		fixed("syslog-ident", "", "redis"),
		fixed("tcp-backlog", "", "511"),
		pinned("unixsocket", cfg.UnixSocket),
		pinned("unixsocketperm", cmp.Or(cfg.UnixSocketPerm, "0")),
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// milliseconds converts a number of milliseconds to a duration. A number that would overflow becomes the longest duration.
func milliseconds(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// busyThreshold converts a value of busy-reply-threshold. 0 means never: half of the longest duration, so that sums do not overflow.
func busyThreshold(ms int64) time.Duration {
	if ms == 0 {
		return math.MaxInt64 / 2
	}
	return milliseconds(ms)
}

// checkEvents returns a value of notify-keyspace-events in the form in which CONFIG GET shows it.
func checkEvents(value string) (canonical, fault string) {
	canonical, ok := store.CanonicalEvents(value)
	if !ok {
		return "", "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
	}
	return canonical, ""
}

// checkSave accepts what follows save in a redis.conf: pairs of a number of seconds and a number of changes.
func checkSave(value string) (canonical, fault string) {
	words := strings.Fields(value)
	if len(words)%2 != 0 {
		return "", "Invalid save parameters"
	}
	for i, w := range words {
		if n, ok := redistext.ParseInt([]byte(w)); !ok || i%2 == 0 && n < 1 || n < 0 {
			return "", "Invalid save parameters"
		}
	}
	return strings.Join(words, " "), ""
}

package server

import (
	"math"
	"strconv"
	"strings"
	"time"

	"lockstep/store"
)

// table lists the parameters. The first group acts; the others are there
// because clients and tools ask for them, with the values that describe this
// server best in Redis's terms.
func (p *params) table(cfg *Config, backend Backend) []*paramDef {
	acting := []*paramDef{
		{name: "requirepass", value: cfg.RequirePass}, // see doConfigSet
		{name: store.ParamChannels, kind: enumParam, words: []string{"allchannels", "resetchannels"}, value: "resetchannels", shared: true},
		{name: "acllog-max-len", kind: intParam, max: math.MaxInt64, value: "128",
			apply: func(v string) { p.aclLogMax.Store(number(v)) }},
		{name: "maxclients", kind: intParam, min: 1, max: math.MaxUint32, value: strconv.Itoa(cfg.MaxClients),
			apply: func(v string) { p.maxClients.Store(number(v)) }},
		{name: "maxmemory-clients", value: strconv.FormatInt(cfg.MaxMemoryClients, 10),
			check: func(v string) (canonical, fault string) {
				if _, ok := parseClientLimit(v, 0); !ok {
					return "", "argument must be a memory or percent value"
				}
				if strings.HasSuffix(v, "%") {
					return v, ""
				}
				n, _ := store.ParseMemory(v)
				return strconv.FormatInt(n, 10), ""
			},
			apply: func(v string) {
				n, _ := parseClientLimit(v, cfg.Limits.Memory)
				p.clientLimit.Store(n)
			}},
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
			apply: func(v string) { backend.SetBusyThreshold(milliseconds(number(v))) }},
		{name: store.ParamEvents, shared: true, check: checkEvents},
		{name: store.ParamMaxMemory, kind: memoryParam, max: math.MaxInt64, value: strconv.FormatInt(cfg.Limits.Memory, 10), shared: true},
		{name: store.ParamMaxEntry, kind: memoryParam, min: store.MinEntry, max: store.MaxEntry, value: strconv.FormatInt(cfg.Limits.Entry, 10), shared: true},
		{name: "tracking-table-max-keys", kind: intParam, max: math.MaxInt64, value: "1000000",
			apply: func(v string) { cfg.Hub.tracker.maxKeys.Store(number(v)) }},
		{name: "enable-debug-command", fixed: true, value: cfg.EnableDebugCommand},
	}
	list := append(acting, p.watching()...)
	list = append(list, describing(cfg)...)
	return append(list, accepted(cfg)...)
}

// watching are the parameters of the slow log and of the latency monitor.
func (p *params) watching() []*paramDef {
	return []*paramDef{
		{name: "slowlog-log-slower-than", kind: intParam, min: -1, max: math.MaxInt64, value: "10000",
			apply: func(v string) { p.slowerThan.Store(number(v)); p.setAlarm() }},
		{name: "slowlog-max-len", kind: intParam, max: math.MaxInt64, value: "128",
			apply: func(v string) { p.slowMax.Store(number(v)) }},
		{name: "latency-monitor-threshold", kind: intParam, max: math.MaxInt64, value: "0",
			apply: func(v string) { p.spikeFrom.Store(number(v)); p.setAlarm() }},
	}
}

// describing are parameters that cannot be changed here.
func describing(cfg *Config) []*paramDef {
	fixed := func(name, alias, value string) *paramDef {
		return &paramDef{name: name, alias: alias, value: value, fixed: true}
	}
	return []*paramDef{
		fixed("aclfile", "", ""),
		fixed("appenddirname", "", "appendonlydir"),
		fixed("appendfilename", "", "appendonly.aof"),
		fixed("bind-source-addr", "", ""),
		{name: "cluster-enabled", value: "no", fixed: true, faced: true},
		fixed("daemonize", "", "no"),
		fixed("databases", "", strconv.Itoa(store.Databases)),
		fixed("dir", "", cfg.DataDir),
		fixed("enable-module-command", "", "no"),
		fixed("enable-protected-configs", "", "no"),
		fixed("io-threads", "", "1"),
		fixed("logfile", "", ""),
		fixed("pidfile", "", ""),
		fixed("port", "", strconv.Itoa(cfg.Port)),
		fixed("replicaof", "slaveof", ""),
		fixed("supervised", "", "no"),
		fixed("tcp-backlog", "", "511"),
		fixed("unixsocket", "", ""),
	}
}

// accepted are parameters that may be set without effect: what they control
// in Redis does not exist here.
func accepted(cfg *Config) []*paramDef {
	flag := func(name, alias, value string) *paramDef {
		return &paramDef{name: name, alias: alias, kind: boolParam, value: value}
	}
	num := func(name, alias, value string, low, high int64) *paramDef {
		return &paramDef{name: name, alias: alias, kind: intParam, min: low, max: high, value: value}
	}
	mem := func(name, value string) *paramDef {
		return &paramDef{name: name, kind: memoryParam, max: math.MaxInt64, value: value}
	}
	return []*paramDef{
		flag("activedefrag", "", "no"),
		flag("appendonly", "", yesNo(cfg.Durable)),
		{name: "appendfsync", kind: enumParam, words: []string{"everysec", "always", "no"}, value: "always"},
		flag("dynamic-hz", "", "yes"),
		num("hash-max-listpack-entries", "hash-max-ziplist-entries", "512", 0, math.MaxInt64),
		num("hash-max-listpack-value", "hash-max-ziplist-value", "64", 0, math.MaxInt64),
		num("hz", "", "10", 0, math.MaxInt32),
		flag("latency-tracking", "", "yes"),
		flag("lazyfree-lazy-eviction", "", "no"),
		flag("lazyfree-lazy-expire", "", "no"),
		flag("lazyfree-lazy-server-del", "", "no"),
		flag("lazyfree-lazy-user-del", "", "no"),
		flag("lazyfree-lazy-user-flush", "", "no"),
		{name: "loglevel", kind: enumParam, words: []string{"debug", "verbose", "notice", "warning"}, value: "notice"},
		{name: "maxmemory-policy", kind: enumParam, value: "noeviction", words: []string{"volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction"}},
		num("maxmemory-samples", "", "5", 1, math.MaxInt32),
		num("min-replicas-max-lag", "min-slaves-max-lag", "10", 0, math.MaxInt32),
		num("min-replicas-to-write", "min-slaves-to-write", "0", 0, math.MaxInt32),
		flag("rdbchecksum", "", "yes"),
		flag("rdbcompression", "", "yes"),
		mem("repl-backlog-size", "1048576"),
		num("repl-backlog-ttl", "", "3600", 0, math.MaxInt32),
		num("repl-timeout", "", "60", 1, math.MaxInt32),
		num("replica-priority", "slave-priority", "100", 0, math.MaxInt32),
		// Every node takes writes: see infoReplication.
		flag("replica-read-only", "slave-read-only", "no"),
		flag("replica-serve-stale-data", "slave-serve-stale-data", "yes"),
		{name: "save", value: "", check: checkSave},
		flag("stop-writes-on-bgsave-error", "", "yes"),
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// milliseconds converts without overflow.
func milliseconds(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// checkEvents brings notify-keyspace-events into Redis's form.
func checkEvents(value string) (canonical, fault string) {
	canonical, ok := store.CanonicalEvents(value)
	if !ok {
		return "", "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
	}
	return canonical, ""
}

// checkSave takes pairs of seconds and changes, as redis.conf does.
func checkSave(value string) (canonical, fault string) {
	words := strings.Fields(value)
	if len(words)%2 != 0 {
		return "", "Invalid save parameters"
	}
	for i, w := range words {
		if n, ok := store.ParseInt([]byte(w)); !ok || i%2 == 0 && n < 1 || n < 0 {
			return "", "Invalid save parameters"
		}
	}
	return strings.Join(words, " "), ""
}

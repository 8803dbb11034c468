package server

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// flag, num, mem and text return a parameter of one kind; alias is its older name in Redis.
func flag(name, alias, value string) *paramDef {
	return &paramDef{name: name, alias: alias, kind: boolParam, value: value}
}

func num(name, alias, value string, low, high int64) *paramDef {
	return &paramDef{name: name, alias: alias, kind: intParam, min: low, max: high, value: value}
}

func mem(name, alias, value string, low, high int64) *paramDef {
	return &paramDef{name: name, alias: alias, kind: memoryParam, min: low, max: high, value: value}
}

func text(name, alias, value string) *paramDef {
	return &paramDef{name: name, alias: alias, value: value}
}

// hidden marks a parameter that CONFIG GET shows only to a client that gives its name without wildcards.
func hidden(d *paramDef) *paramDef {
	d.hidden = true
	return d
}

// accepted are parameters that clients may set without effect: this server does not have what they
// control in Redis (docs/operations.md).
func accepted(cfg *Config) []*paramDef {
	return []*paramDef{
		num("active-defrag-cycle-max", "", "25", 1, 99),
		num("active-defrag-cycle-min", "", "1", 1, 99),
		mem("active-defrag-ignore-bytes", "", "104857600", 1, math.MaxInt64),
		num("active-defrag-max-scan-fields", "", "1000", 1, math.MaxInt64),
		num("active-defrag-threshold-lower", "", "10", 0, 1000),
		num("active-defrag-threshold-upper", "", "100", 0, 1000),
		num("active-expire-effort", "", "1", 1, 10),
		{name: "activedefrag", value: "no", check: checkOff(faultDefrag)},
		flag("activerehashing", "", "yes"),
		flag("aof-disable-auto-gc", "", "no"),
		flag("aof-load-truncated", "", "yes"),
		flag("aof-rewrite-incremental-fsync", "", "yes"),
		flag("aof-timestamp-enabled", "", "no"),
		flag("aof-use-rdb-preamble", "", "yes"),
		{name: "appendfsync", kind: enumParam, words: []string{"everysec", "always", "no"}, value: "always"},
		flag("appendonly", "", yesNo(cfg.Durable)),
		mem("auto-aof-rewrite-min-size", "", "67108864", 0, math.MaxInt64),
		num("auto-aof-rewrite-percentage", "", "100", 0, math.MaxInt32),
		flag("cluster-allow-pubsubshard-when-down", "", "yes"),
		flag("cluster-allow-reads-when-down", "", "no"),
		flag("cluster-allow-replica-migration", "", "yes"),
		num("cluster-announce-bus-port", "", "0", 0, 65535),
		{name: "cluster-announce-hostname", check: checkHostname},
		text("cluster-announce-ip", "", ""),
		num("cluster-announce-port", "", "0", 0, 65535),
		num("cluster-announce-tls-port", "", "0", 0, 65535),
		{name: "cluster-link-sendbuf-limit", kind: memoryParam, max: math.MaxInt64, unsigned: true, value: "0"},
		num("cluster-migration-barrier", "", "1", 0, math.MaxInt32),
		num("cluster-node-timeout", "", "15000", 0, math.MaxInt64),
		{name: "cluster-preferred-endpoint-type", kind: enumParam, words: []string{"ip", "hostname", "unknown-endpoint"}, value: "ip"},
		flag("cluster-replica-no-failover", "cluster-slave-no-failover", "no"),
		num("cluster-replica-validity-factor", "cluster-slave-validity-factor", "10", 0, math.MaxInt32),
		flag("cluster-require-full-coverage", "", "yes"),
		flag("crash-log-enabled", "", "yes"),
		flag("crash-memcheck-enabled", "", "yes"),
		flag("dynamic-hz", "", "yes"),
		mem("hll-sparse-max-bytes", "", "3000", 0, math.MaxInt64),
		{name: "hz", value: "10", check: checkHz},
		text("bind-source-addr", "", ""),
		text("ignore-warnings", "", ""),
		flag("jemalloc-bg-thread", "", "yes"),
		hidden(num("key-load-delay", "", "0", math.MinInt32, math.MaxInt32)),
		flag("lazyfree-lazy-eviction", "", "no"),
		flag("lazyfree-lazy-expire", "", "no"),
		flag("lazyfree-lazy-server-del", "", "no"),
		flag("lazyfree-lazy-user-del", "", "no"),
		flag("lazyfree-lazy-user-flush", "", "no"),
		num("lfu-decay-time", "", "1", 0, math.MaxInt32),
		num("lfu-log-factor", "", "10", 0, math.MaxInt32),
		num("list-compress-depth", "", "0", 0, math.MaxInt32),
		num("list-max-listpack-size", "list-max-ziplist-size", "-2", math.MinInt32, math.MaxInt32),
		hidden(num("loading-process-events-interval-bytes", "", "2097152", 1024, math.MaxInt32)),
		{name: "loglevel", kind: enumParam, words: []string{"debug", "verbose", "notice", "warning"}, value: "notice"},
		text("masterauth", "", ""),
		text("masteruser", "", ""),
		num("maxmemory-eviction-tenacity", "", "10", 0, 100),
		{name: "maxmemory-policy", kind: enumParam, value: "noeviction", words: []string{"volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction"}},
		num("maxmemory-samples", "", "5", 1, math.MaxInt32),
		flag("no-appendfsync-on-rewrite", "", "no"),
		{name: "oom-score-adj", kind: enumParam, words: []string{"no", "yes", "relative", "absolute"}, value: "no"},
		{name: "oom-score-adj-values", value: "0 200 800", check: checkScores},
		{name: "proc-title-template", value: "{title} {listen-addr} {server-mode}", check: checkTitle},
		{name: "propagation-error-behavior", kind: enumParam, words: []string{"ignore", "panic", "panic-on-replicas"}, value: "ignore"},
		flag("rdb-del-sync-files", "", "no"),
		hidden(num("rdb-key-save-delay", "", "0", math.MinInt32, math.MaxInt32)),
		flag("rdb-save-incremental-fsync", "", "yes"),
		flag("rdbcompression", "", "yes"),
		{name: "repl-backlog-size", kind: memoryParam, min: 1, max: math.MaxInt64, value: "1048576", check: checkBacklog},
		num("repl-backlog-ttl", "", "3600", 0, math.MaxInt64),
		flag("repl-disable-tcp-nodelay", "", "no"),
		{name: "repl-diskless-load", kind: enumParam, words: []string{"disabled", "on-empty-db", "swapdb"}, value: "disabled"},
		flag("repl-diskless-sync", "", "yes"),
		num("repl-diskless-sync-delay", "", "5", 0, math.MaxInt32),
		num("repl-diskless-sync-max-replicas", "", "0", 0, math.MaxInt32),
		num("repl-ping-replica-period", "repl-ping-slave-period", "10", 1, math.MaxInt32),
		num("repl-timeout", "", "60", 1, math.MaxInt32),
		text("replica-announce-ip", "slave-announce-ip", ""),
		num("replica-announce-port", "slave-announce-port", "0", 0, 65535),
		flag("replica-announced", "", "yes"),
		flag("replica-ignore-disk-write-errors", "", "no"),
		flag("replica-ignore-maxmemory", "slave-ignore-maxmemory", "yes"),
		flag("replica-lazy-flush", "slave-lazy-flush", "no"),
		num("replica-priority", "slave-priority", "100", 0, math.MaxInt32),
		// Every node accepts writes: see infoReplication.
		flag("replica-read-only", "slave-read-only", "no"),
		flag("replica-serve-stale-data", "slave-serve-stale-data", "yes"),
		{name: "sanitize-dump-payload", kind: enumParam, words: []string{"no", "yes", "clients"}, value: "no"},
		{name: "save", value: "", check: checkSave},
		{name: "shutdown-on-sigint", value: "default", check: checkShutdown},
		{name: "shutdown-on-sigterm", value: "default", check: checkShutdown},
		num("shutdown-timeout", "", "10", 0, math.MaxInt32),
		flag("stop-writes-on-bgsave-error", "", "yes"),
		mem("stream-node-max-bytes", "", "4096", 0, math.MaxInt64),
		num("stream-node-max-entries", "", "100", 0, math.MaxInt64),
		hidden(flag("use-exit-on-panic", "", "no")),
		hidden(num("watchdog-period", "", "0", 0, math.MaxInt32)),
	}
}

// checkBacklog raises a small repl-backlog-size to 16 KiB, as Redis does. The value is a valid number.
func checkBacklog(value string) (canonical, fault string) {
	return strconv.FormatInt(max(number(value), 16<<10), 10), ""
}

// checkScores accepts three integers from -2000 to 2000, for oom-score-adj-values.
func checkScores(value string) (canonical, fault string) {
	words := strings.Fields(value)
	if len(words) != 3 {
		return "", "wrong number of arguments"
	}
	for _, w := range words {
		if n, ok := redistext.ParseInt([]byte(w)); !ok || n < -2000 || n > 2000 {
			return "", "Invalid oom-score-adj-values, elements must be between -2000 and 2000."
		}
	}
	return strings.Join(words, " "), ""
}

// signalFlags are the words that shutdown-on-sigint and shutdown-on-sigterm may contain, in Redis's order.
var signalFlags = []string{"default", "save", "nosave", "now", "force"}

func checkShutdown(value string) (canonical, fault string) {
	given := strings.Fields(strings.ToLower(value))
	if len(given) == 0 || slices.ContainsFunc(given, func(w string) bool { return !slices.Contains(signalFlags, w) }) {
		return "", "argument(s) must be one of the following: " + strings.Join(signalFlags, ", ")
	}
	set := slices.DeleteFunc(slices.Clone(signalFlags), func(w string) bool { return !slices.Contains(given, w) })
	if slices.Contains(set, "save") && slices.Contains(set, "nosave") {
		return "", "shutdown options SAVE and NOSAVE can't be used simultaneously"
	}
	if len(set) > 1 && set[0] == "default" {
		set = set[1:]
	}
	return strings.Join(set, " "), ""
}

package server

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// infoSections are the sections of INFO in their order.
var infoSections = []infoSection{
	{"Server", true, infoServer},
	{"Clients", true, infoClients},
	{"Memory", true, infoMemory},
	{"Persistence", true, infoPersistence},
	{"Stats", true, infoStats},
	{"Replication", true, infoReplication},
	{"CPU", true, infoCPU},
	{"Modules", true, func(*Server, *facts) {}},
	{"Commandstats", false, infoCommandStats},
	{"Errorstats", true, infoErrorStats},
	{"Latencystats", false, infoLatencyStats},
	{"Cluster", true, infoCluster},
	{"Keyspace", true, infoKeyspace},
}

// facts writes lines such as those of INFO (name:value) into b.
type facts struct {
	b      *strings.Builder
	s      *session // the session that sent the command
	status cluster.Status
}

func (f *facts) add(name string, value any) { fmt.Fprintf(f.b, "%s:%v\r\n", name, value) }

// all writes a line for each pair of a name and its value.
func (f *facts) all(pairs ...any) {
	for i := 0; i+1 < len(pairs); i += 2 {
		f.add(pairs[i].(string), pairs[i+1])
	}
}

// zeros writes 0 for facts that do not exist here or are not counted.
func (f *facts) zeros(names ...string) {
	for _, name := range names {
		f.add(name, 0)
	}
}

func infoServer(srv *Server, f *facts) {
	now := srv.cfg.Clock()
	up := seconds(now.Sub(srv.started))
	f.all(
		"redis_version", store.RedisVersion,
		"redis_git_sha1", "00000000",
		"redis_git_dirty", 0,
		"redis_build_id", "0",
		"redis_mode", f.s.mode(),
		"os", runtime.GOOS+" "+runtime.GOARCH,
		"arch_bits", 32<<(^uint(0)>>63),
		"monotonic_clock", "Go runtime",
		"multiplexing_api", "Go runtime",
		"atomicvar_api", "sync/atomic",
		"gcc_version", "0.0.0",
		"process_id", os.Getpid(),
		"process_supervised", "no",
		"run_id", srv.cfg.RunID,
		"tcp_port", cmp.Or(srv.cfg.Port, srv.cfg.TLSPort),
		"server_time_usec", now.UnixMicro(),
		"uptime_in_seconds", up,
		"uptime_in_days", up/86400,
		"hz", srv.params.value("hz"),
		"configured_hz", srv.params.value("hz"),
		"lru_clock", now.Unix()&(1<<24-1),
		"executable", executable(),
		"config_file", srv.cfg.ConfigFile,
		"io_threads_active", 0,
	)
}

// executable returns the path of the program.
func executable() string {
	if path, err := os.Executable(); err == nil {
		return path
	}
	return os.Args[0]
}

func infoClients(srv *Server, f *facts) {
	f.all(
		"connected_clients", srv.clients(),
		"cluster_connections", 0,
		"maxclients", srv.params.maxClients.Load(),
		"client_recent_max_input_buffer", 0,
		"client_recent_max_output_buffer", 0,
		"blocked_clients", srv.stats.blocked.Load()+int64(srv.pause.count()),
		"tracking_clients", srv.hub.tracker.clients.Load(),
		"clients_in_timeout_table", 0,
	)
}

func infoMemory(srv *Server, f *facts) {
	m := srv.memory(&f.status)
	machine := machineMemory()
	limit := f.status.MemoryLimit
	two := func(r float64) string { return fmt.Sprintf("%.2f", r) }
	f.all(
		"used_memory", m.objects,
		"used_memory_human", human(m.objects),
		"used_memory_rss", m.rss,
		"used_memory_rss_human", human(m.rss),
		"used_memory_peak", m.peak,
		"used_memory_peak_human", human(m.peak),
		"used_memory_peak_perc", two(100*ratio(m.objects, m.peak))+"%",
		"used_memory_overhead", m.overhead,
		"used_memory_startup", m.first,
		"used_memory_dataset", m.data,
		"used_memory_dataset_perc", two(100*ratio(m.data, max(m.data, m.objects-min(m.first, m.objects))))+"%",
		"allocator_allocated", m.objects,
		"allocator_active", m.heap,
		"allocator_resident", m.heap+m.free,
		"total_system_memory", machine,
		"total_system_memory_human", human(machine),
	)
	kept := int64(0)
	if srv.cfg.LibraryMemory != nil {
		kept = srv.cfg.LibraryMemory()
	}
	infoScriptMemory(f, m.scripts, uint64(kept))
	f.all(
		"maxmemory", limit,
		"maxmemory_human", human(uint64(limit)),
		"maxmemory_policy", srv.params.value("maxmemory-policy"),
		"allocator_frag_ratio", two(ratio(m.heap, m.objects)),
		"allocator_frag_bytes", m.heap-m.objects,
		"allocator_rss_ratio", two(ratio(m.heap+m.free, m.heap)),
		"allocator_rss_bytes", m.free,
		"rss_overhead_ratio", two(ratio(m.rss, m.heap+m.free)),
		"rss_overhead_bytes", int64(m.rss)-int64(m.heap+m.free),
		"mem_fragmentation_ratio", two(ratio(m.rss, m.objects)),
		"mem_fragmentation_bytes", int64(m.rss)-int64(m.objects),
		"mem_not_counted_for_evict", 0,
		"mem_replication_backlog", 0,
		"mem_total_replication_buffers", 0,
		"mem_clients_slaves", 0,
		"mem_clients_normal", m.clients,
		"mem_cluster_links", 0,
		"mem_aof_buffer", 0,
		"mem_allocator", "go",
		"active_defrag_running", 0,
		"lazyfree_pending_objects", 0,
		"lazyfreed_objects", 0,
	)
}

func infoScriptMemory(f *facts, used, kept uint64) {
	f.all(
		"used_memory_lua", used,
		"used_memory_vm_eval", used,
		"used_memory_lua_human", human(used),
		"used_memory_scripts_eval", used,
		"number_of_cached_scripts", f.status.Scripts,
		"number_of_functions", f.status.Functions,
		"number_of_libraries", f.status.Libraries,
		"used_memory_vm_functions", kept,
		"used_memory_vm_total", used+kept,
		"used_memory_vm_total_human", human(used+kept),
		"used_memory_functions", 0,
		"used_memory_scripts", used,
		"used_memory_scripts_human", human(used),
	)
}

// human prints an amount of memory as Redis does.
func human(n uint64) string {
	units := "BKMGT"
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	size, i := float64(n), 0
	for size >= 1024 && i < len(units)-1 {
		size /= 1024
		i++
	}
	return fmt.Sprintf("%.2f%c", size, units[i])
}

func infoPersistence(srv *Server, f *facts) {
	aof := 0
	if srv.cfg.Durable {
		aof = 1
	}
	saving, saved := 0, "ok"
	if srv.saveFailed.Load() {
		saved = "err"
	}
	if srv.saving.Load() {
		saving = 1
	}
	f.all(
		"loading", 0,
		"async_loading", 0,
		"current_cow_peak", 0,
		"current_cow_size", 0,
		"current_cow_size_age", 0,
		"current_fork_perc", "0.00",
		"current_save_keys_processed", 0,
		"current_save_keys_total", 0,
		"rdb_changes_since_last_save", 0,
		"rdb_bgsave_in_progress", saving,
		"rdb_last_save_time", srv.lastSave.Load(),
		"rdb_last_bgsave_status", saved,
		"rdb_last_bgsave_time_sec", -1,
		"rdb_current_bgsave_time_sec", -1,
		"rdb_saves", 0,
		"rdb_last_cow_size", 0,
		"rdb_last_load_keys_expired", 0,
		"rdb_last_load_keys_loaded", 0,
		"aof_enabled", aof,
		"aof_rewrite_in_progress", 0,
		"aof_rewrite_scheduled", 0,
		"aof_last_rewrite_time_sec", -1,
		"aof_current_rewrite_time_sec", -1,
		"aof_last_bgrewrite_status", "ok",
		"aof_rewrites", 0,
		"aof_rewrites_consecutive_failures", 0,
		"aof_last_write_status", "ok",
		"aof_last_cow_size", 0,
		"module_fork_in_progress", 0,
		"module_fork_last_cow_size", 0,
	)
}

func infoStats(srv *Server, f *facts) {
	st := srv.stats
	keys, items, prefixes := srv.hub.tracker.sizes()
	f.all(
		"total_connections_received", st.connections.Load(),
		"total_commands_processed", st.commands.Load(),
		"instantaneous_ops_per_sec", srv.rates.commands.now.Load(),
		"total_net_input_bytes", st.netIn.Load(),
		"total_net_output_bytes", st.netOut.Load(),
		"total_net_repl_input_bytes", 0,
		"total_net_repl_output_bytes", 0,
		"instantaneous_input_kbps", srv.rates.in.kbps(),
		"instantaneous_output_kbps", srv.rates.out.kbps(),
		"instantaneous_input_repl_kbps", "0.00",
		"instantaneous_output_repl_kbps", "0.00",
		"rejected_connections", st.refused.Load(),
		"sync_full", 0,
		"sync_partial_ok", 0,
		"sync_partial_err", 0,
		"expired_keys", since(st.expired.Load(), f.status.Expired),
		"expired_stale_perc", "0.00",
		"expired_time_cap_reached_count", 0,
		"expire_cycle_cpu_milliseconds", 0,
		"leases_lengthened_ms", f.status.Leaderless.Milliseconds(),
		"leases_lengthened_last_ms", f.status.LastLeaderless.Milliseconds(),
		"evicted_keys", 0,
		"evicted_clients", since(st.evicted.Load(), srv.clientMemory.cut.Load()),
		"total_eviction_exceeded_time", 0,
		"current_eviction_exceeded_time", 0,
		"keyspace_hits", 0,
		"keyspace_misses", 0,
		"pubsub_channels", srv.hub.size(subChannel),
		"pubsub_patterns", srv.hub.size(subPattern),
		"pubsubshard_channels", srv.hub.size(subShard),
		"latest_fork_usec", 0,
		"total_forks", 0,
		"migrate_cached_sockets", 0,
		"slave_expires_tracked_keys", 0,
	)
	f.zeros("active_defrag_hits", "active_defrag_misses", "active_defrag_key_hits", "active_defrag_key_misses",
		"total_active_defrag_time", "current_active_defrag_time")
	f.all(
		"tracking_total_keys", keys,
		"tracking_total_items", items,
		"tracking_total_prefixes", prefixes,
		"unexpected_error_replies", 0,
		"total_error_replies", st.errorReplies.Load(),
	)
	f.zeros("dump_payload_sanitizations", "total_reads_processed", "total_writes_processed",
		"io_threaded_reads_processed", "io_threaded_writes_processed", "reply_buffer_shrinks", "reply_buffer_expands")
	f.all(
		"client_output_buffer_limit_disconnections", st.outputLimit.Load(),
		"acl_access_denied_auth", st.deniedFor[store.DeniedAuth].Load(),
		"acl_access_denied_cmd", st.deniedFor[store.DeniedCommand].Load(),
		"acl_access_denied_key", st.deniedFor[store.DeniedKey].Load(),
		"acl_access_denied_channel", st.deniedFor[store.DeniedChannel].Load(),
	)
}

func infoCPU(_ *Server, f *facts) {
	user, system := cpuTime()
	secs := func(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }
	f.all(
		"used_cpu_sys", secs(system),
		"used_cpu_user", secs(user),
		"used_cpu_sys_children", secs(0),
		"used_cpu_user_children", secs(0),
		"used_cpu_sys_main_thread", secs(system),
		"used_cpu_user_main_thread", secs(user),
	)
}

func infoCommandStats(srv *Server, f *facts) {
	add := func(cmd *store.Command) {
		c := srv.stats.calls[cmd]
		calls, usec := c.took.total()+c.untimed.Load(), (c.nsec.Load()+c.untimedNsec.Load())/1000
		rejected, failed := c.rejected.Load(), c.failed.Load()
		if calls+rejected+failed == 0 {
			return
		}
		f.add("cmdstat_"+cmd.FullName(), fmt.Sprintf("calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
			calls, usec, float64(usec)/float64(max(calls, 1)), rejected, failed))
	}
	for _, cmd := range srv.table.All() {
		add(cmd)
		for i := range cmd.Sub {
			add(&cmd.Sub[i])
		}
	}
}

// infoLatencyStats writes a line for each command that has been called: the percentiles of its durations that
// latency-tracking-info-percentiles names. It writes nothing if latency-tracking is no.
func infoLatencyStats(srv *Server, f *facts) {
	if srv.params.untracked.Load() {
		return
	}
	add := func(cmd *store.Command) {
		if d := &srv.stats.calls[cmd].took; d.total() > 0 {
			f.add("latency_percentiles_usec_"+cmd.FullName(), d.percentiles(*srv.params.percentiles.Load()))
		}
	}
	for _, cmd := range srv.table.All() {
		add(cmd)
		for i := range cmd.Sub {
			add(&cmd.Sub[i])
		}
	}
}

func infoErrorStats(srv *Server, f *facts) {
	srv.stats.mu.Lock()
	defer srv.stats.mu.Unlock()
	codes := make([]string, 0, len(srv.stats.errors))
	for code := range srv.stats.errors {
		codes = append(codes, code)
	}
	slices.Sort(codes)
	for _, code := range codes {
		f.add("errorstat_"+code, fmt.Sprintf("count=%d", srv.stats.errors[code]))
	}
}

func infoCluster(_ *Server, f *facts) {
	enabled := 0
	if f.s.face == FaceCluster {
		enabled = 1
	}
	f.add("cluster_enabled", enabled)
}

func infoKeyspace(_ *Server, f *facts) {
	st := &f.status
	for db := range st.Keys {
		if st.Keys[db] > 0 {
			f.add(fmt.Sprintf("db%d", db), fmt.Sprintf("keys=%d,expires=%d,avg_ttl=0", st.Keys[db], st.Deadlines[db]))
		}
	}
}

package server

import (
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/store"
)

// observeRows are INFO, MONITOR, SLOWLOG and LATENCY, by which operators see what the node does and what takes long.
func observeRows() []row {
	const admin = store.Admin | store.Loading | store.Stale
	sub := func(name string, arity int, flags store.Flags, since, usage, summary string, do handler, tips ...string) row {
		return row{Command: store.Command{Name: name, Arity: arity, Flags: flags, Since: since, Usage: usage, Summary: summary, Tips: tips}, do: do}
	}
	const everywhere, random = "request_policy:all_nodes", "nondeterministic_output"
	const special, succeeded = "response_policy:special", "response_policy:all_succeeded"
	return []row{
		{Command: store.Command{
			Name: "info", Arity: -1, Flags: store.Loading | store.Stale | store.Dangerous, Group: "server", Since: "1.0.0",
			Summary: "Reports facts and counters of this node.", Usage: "[section [section ...]]",
			Tips: []string{random, "request_policy:all_shards", special},
		}, do: doInfo},
		{Command: store.Command{
			Name: "monitor", Arity: 1, Flags: admin | store.NoScript, Group: "server", Since: "1.0.0",
			Summary: "Shows every command that this node's clients send.",
		}, do: doMonitor},
		{
			Command: store.Command{Name: "slowlog", Arity: -2, Group: "server", Since: "2.2.12", Summary: "Commands about the log of slow commands."},
			sub: []row{
				sub("get", -2, admin, "2.2.12", "[count]", "Returns the latest entries.", doSlowlogGet, everywhere, random),
				helpRow("slowlog", "6.2.0", 0),
				sub("len", 2, admin, "2.2.12", "", "Counts the entries.", doSlowlogLen, everywhere, "response_policy:agg_sum", random),
				sub("reset", 2, admin, "2.2.12", "", "Drops all entries.", doSlowlogReset, everywhere, succeeded),
			},
		},
		{
			Command: store.Command{Name: "latency", Arity: -2, Group: "server", Since: "2.8.13", Summary: "Commands about latency spikes."},
			sub: []row{
				sub("doctor", 2, admin|store.NoScript, "2.8.13", "", "Explains the latency of this server.", doLatencyDoctor, random, everywhere, special),
				sub("graph", 3, admin|store.NoScript, "2.8.13", "event", "Draws the latency of an event.", doLatencyGraph, random, everywhere, special),
				helpRow("latency", "2.8.13", 0),
				sub("histogram", -2, admin|store.NoScript, "7.0.0", "[command [command ...]]", "Returns how long commands took.", doLatencyHistogram, random, everywhere, special),
				sub("history", 3, admin|store.NoScript, "2.8.13", "event", "Returns the latency of an event over time.", doLatencyHistory, random, everywhere, special),
				sub("latest", 2, admin|store.NoScript, "2.8.13", "", "Returns the latest latency of all events.", doLatencyLatest, random, everywhere, special),
				sub("reset", -2, admin|store.NoScript, "2.8.13", "[event [event ...]]", "Drops what was recorded.", doLatencyReset, everywhere, succeeded),
			},
		},
	}
}

func doInfo(s *session, args [][]byte) store.Reply {
	asked := func(section string) bool {
		return slices.ContainsFunc(args[1:], func(a []byte) bool { return strings.EqualFold(string(a), section) })
	}
	every := asked("all") || asked("everything")
	usual := len(args) == 1 || asked("default")
	f := &facts{b: &strings.Builder{}, s: s, status: s.status()}
	for _, sec := range s.srv.sections() {
		if !every && !(usual && sec.usual) && !asked(sec.title) {
			continue
		}
		if f.b.Len() > 0 {
			f.b.WriteString("\r\n")
		}
		f.b.WriteString("# " + sec.title + "\r\n")
		sec.write(s.srv, f)
	}
	if s.srv.watch != nil {
		return store.Str(f.b.String()) // a Sentinel sends a bulk string, in RESP3 as well as in RESP2
	}
	return store.Text(f.b.String())
}

package server

import (
	"strings"

	"lockstep/store"
)

// observeRows are INFO, and SLOWLOG and LATENCY, which monitoring asks for:
// nothing is recorded here, so they are always empty.
func observeRows() []row {
	const admin = store.Admin | store.Loading | store.Stale
	sub := func(name string, arity int, flags store.Flags, since, usage, summary string, do handler) row {
		return row{Command: store.Command{Name: name, Arity: arity, Flags: flags, Since: since, Usage: usage, Summary: summary}, do: do}
	}
	return []row{
		{Command: store.Command{
			Name: "info", Arity: -1, Flags: store.Loading | store.Stale | store.Dangerous, Group: "server", Since: "1.0.0",
			Summary: "Reports facts and counters of this node.", Usage: "[section [section ...]]",
			Tips: []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
		}, do: doInfo},
		{
			Command: store.Command{Name: "slowlog", Arity: -2, Group: "server", Since: "2.2.12", Summary: "Commands about the log of slow commands."},
			sub: []row{
				sub("get", -2, admin, "2.2.12", "[count]", "Returns the latest entries.", doSlowlogGet),
				helpRow("slowlog", "6.2.0", 0),
				sub("len", 2, admin, "2.2.12", "", "Counts the entries.", doZero),
				sub("reset", 2, admin, "2.2.12", "", "Drops all entries.", doOK),
			},
		},
		{
			Command: store.Command{Name: "latency", Arity: -2, Group: "server", Since: "2.8.13", Summary: "Commands about latency spikes."},
			sub: []row{
				sub("doctor", 2, admin|store.NoScript, "2.8.13", "", "Explains the latency of this server.", doLatencyDoctor),
				sub("graph", 3, admin|store.NoScript, "2.8.13", "event", "Draws the latency of an event.", doLatencyGraph),
				helpRow("latency", "2.8.13", 0),
				sub("histogram", -2, admin|store.NoScript, "7.0.0", "[command [command ...]]", "Returns how long commands took.", doEmptyMap),
				sub("history", 3, admin|store.NoScript, "2.8.13", "event", "Returns the latency of an event over time.", doEmptyList),
				sub("latest", 2, admin|store.NoScript, "2.8.13", "", "Returns the latest latency of all events.", doEmptyList),
				sub("reset", -2, admin|store.NoScript, "2.8.13", "[event [event ...]]", "Drops what was recorded.", doZero),
			},
		},
	}
}

func doZero(*session, [][]byte) store.Reply      { return store.Zero }
func doEmptyList(*session, [][]byte) store.Reply { return store.List() }
func doEmptyMap(*session, [][]byte) store.Reply  { return store.MapOf() }

func doSlowlogGet(_ *session, args [][]byte) store.Reply {
	switch {
	case len(args) > 3:
		return store.Err(store.ErrWrongArgs("slowlog|get"))
	case len(args) == 3:
		if n, ok := store.ParseInt(args[2]); !ok || n < -1 {
			return store.Err(errSlowlogCount)
		}
	}
	return store.List()
}

func doLatencyDoctor(*session, [][]byte) store.Reply {
	return store.Text("Latency is not monitored on this server.\n")
}

func doLatencyGraph(_ *session, args [][]byte) store.Reply {
	return store.Err(errf("ERR No samples available for event '%s'", cString(args[2], len(args[2]))))
}

func doInfo(s *session, args [][]byte) store.Reply {
	want := map[string]bool{}
	for _, a := range args[1:] {
		want[strings.ToLower(string(a))] = true
	}
	every := want["all"] || want["everything"]
	usual := len(want) == 0 || want["default"]
	f := &facts{b: &strings.Builder{}, s: s, status: s.status()}
	for _, sec := range s.srv.sections() {
		if !every && !(usual && sec.usual) && !want[strings.ToLower(sec.title)] {
			continue
		}
		if f.b.Len() > 0 {
			f.b.WriteString("\r\n")
		}
		f.b.WriteString("# " + sec.title + "\r\n")
		sec.write(s.srv, f)
	}
	if s.srv.watch != nil {
		return store.Str(f.b.String()) // a Sentinel says it so in RESP3, too
	}
	return store.Text(f.b.String())
}

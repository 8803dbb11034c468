package server

import "strings"

const (
	noStreams = "streams are not part of a lock server"
	noGeo     = "geospatial indexes are not part of a lock server"
	noHLL     = "HyperLogLogs are not part of a lock server"
)

// absent lists commands of Redis that are not in the command table. A client that sends one gets the usual
// error for an unknown command, with the reason at its end (WhyAbsent). A pattern that ends in '*' matches
// every name with that prefix.
var absent = []struct{ pattern, why string }{
	{"geo*", noGeo}, {"pf*", noHLL},
	{"xack", noStreams}, {"xadd", noStreams}, {"xautoclaim", noStreams}, {"xclaim", noStreams}, {"xdel", noStreams},
	{"xgroup*", noStreams}, {"xinfo*", noStreams}, {"xlen", noStreams}, {"xpending", noStreams}, {"xrange", noStreams},
	{"xread*", noStreams}, {"xrevrange", noStreams}, {"xsetid", noStreams}, {"xtrim", noStreams},
	{"restore-asking", "nothing migrates slots: RESTORE does the same"},
}

// WhyAbsent looks a command name up in the list absent. It returns why the server does not have the command, or "" if no
// pattern of the list matches the name.
func WhyAbsent(name string) string {
	name = strings.ToLower(name)
	for _, a := range absent {
		prefix, open := strings.CutSuffix(a.pattern, "*")
		if name == prefix || open && strings.HasPrefix(name, prefix) {
			return a.why
		}
	}
	return ""
}

package server

import "strings"

const (
	noStreams = "streams are not part of a lock server"
	noGeo     = "geospatial indexes are not part of a lock server"
	noHLL     = "HyperLogLogs are not part of a lock server"
)

// absent lists commands of Redis that lockstep does not have, and why. A '*' matches any end of a name.
var absent = []struct{ pattern, why string }{
	{"geo*", noGeo}, {"pf*", noHLL},
	{"xack", noStreams}, {"xadd", noStreams}, {"xautoclaim", noStreams}, {"xclaim", noStreams}, {"xdel", noStreams},
	{"xgroup*", noStreams}, {"xinfo*", noStreams}, {"xlen", noStreams}, {"xpending", noStreams}, {"xrange", noStreams},
	{"xread*", noStreams}, {"xrevrange", noStreams}, {"xsetid", noStreams}, {"xtrim", noStreams},
	{"restore-asking", "nothing migrates slots: RESTORE does the same"},
}

// WhyAbsent returns why the server does not have a command of Redis, or "" if the list absent does not say.
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

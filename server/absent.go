package server

import "strings"

const (
	noStreams = "streams are not part of a lock server"
	noGeo     = "geospatial indexes are not part of a lock server"
	noHLL     = "HyperLogLogs are not part of a lock server"
)

// absent are the families of commands that are not in the table: to a client
// they do not exist, which is what it looks for, and to a reader the error says
// why. A name that ends in '*' stands for all that begin so.
var absent = []struct{ pattern, why string }{
	{"geo*", noGeo}, {"pf*", noHLL},
	{"xack", noStreams}, {"xadd", noStreams}, {"xautoclaim", noStreams}, {"xclaim", noStreams}, {"xdel", noStreams},
	{"xgroup*", noStreams}, {"xinfo*", noStreams}, {"xlen", noStreams}, {"xpending", noStreams}, {"xrange", noStreams},
	{"xread*", noStreams}, {"xrevrange", noStreams}, {"xsetid", noStreams}, {"xtrim", noStreams},
	{"restore-asking", "nothing migrates slots: RESTORE does the same"},
}

// WhyAbsent returns why a command of Redis is not here; "" if Redis does not
// have it either.
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

package scripts

import (
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// address matches the text that tostring makes of a table, function, coroutine or userdata. It contains an address, which differs
// between servers.
var address = regexp.MustCompile(`(table|function|thread|userdata): 0x[0-9a-f]+`)

// overflow matches where a script overflowed the stack: with Redis's smaller stack, that may be another function.
var overflow = regexp.MustCompile(`[a-z_]+:[0-9]+: stack overflow`)

// Same reports whether two servers replied the same to a script. Addresses do not count, nor does the place at which the stack
// overflowed.
func Same(a, b transcript.Value) bool {
	plain := func(line string) string {
		return overflow.ReplaceAllString(address.ReplaceAllString(line, "$1"), "stack overflow")
	}
	return slices.EqualFunc(a.Lines(), b.Lines(), func(x, y string) bool { return x == y || plain(x) == plain(y) })
}

// Stopped reports whether a limit of lockstep ended the script. Under load, only a second stop means something.
func Stopped(v transcript.Value) bool {
	return v.Type == '-' && (strings.Contains(v.Text, "exceeded the time limit (script-time-limit)") || strings.Contains(v.Text, "exceeded the memory limit"))
}

package scripts

import (
	"regexp"
	"slices"
	"strings"

	"lockstep/conformance/transcript"
)

// address matches what tostring returns for values without a text. The addresses of no two servers are equal.
var address = regexp.MustCompile(`(table|function|thread|userdata): 0x[0-9a-f]+`)

// Same reports whether two servers replied the same to a script. Addresses do not count.
func Same(a, b transcript.Value) bool {
	return slices.EqualFunc(a.Lines(), b.Lines(), func(x, y string) bool {
		return x == y || address.ReplaceAllString(x, "$1") == address.ReplaceAllString(y, "$1")
	})
}

// Stopped reports whether a reply says that lockstep's time limit ended the script. Under load the limit may end even a quick
// script, so only a second stop tells something about the script.
func Stopped(v transcript.Value) bool {
	return v.Type == '-' && strings.Contains(v.Text, "exceeded the time limit (script-time-limit)")
}

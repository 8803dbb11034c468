package scripts

import (
	"regexp"
	"slices"
	"strings"

	"lockstep/conformance/transcript"
)

// address is what tostring makes of what has no text: no two servers have the same.
var address = regexp.MustCompile(`(table|function|thread|userdata): 0x[0-9a-f]+`)

// Same tells whether two servers replied the same to a script, but for addresses.
func Same(a, b transcript.Value) bool {
	return slices.EqualFunc(a.Lines(), b.Lines(), func(x, y string) bool {
		return x == y || address.ReplaceAllString(x, "$1") == address.ReplaceAllString(y, "$1")
	})
}

// Stopped tells whether a reply says that lockstep's time limit ended the script. Under
// load that may happen to a quick one: only a second time says something of the script.
func Stopped(v transcript.Value) bool {
	return v.Type == '-' && strings.Contains(v.Text, "exceeded the time limit (script-time-limit)")
}

// Package environ makes the environment and the limits of a lockstep that a test or a tool starts.
package environ

import (
	"os"
	"slices"
	"strings"
)

var atStart = os.Environ()

// Environ is the environment for a lockstep that this process starts. The LOCKSTEP_
// variables that the process itself was started with are for a test or a tool, and
// lockstep refuses those that it does not know; what was set since is passed on.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "LOCKSTEP_") && slices.Contains(atStart, v)
	})
}

// Package environ makes the environment and the limits of a lockstep that a test or a tool starts.
package environ

import (
	"os"
	"slices"
	"strings"
)

var atStart = os.Environ()

// Environ is the environment for a lockstep program that this process starts. It leaves out the
// LOCKSTEP_ variables that this process was started with: they are meant for the test or the tool,
// and lockstep refuses those that it does not know. It keeps the variables that this process has
// set since.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "LOCKSTEP_") && slices.Contains(atStart, v)
	})
}

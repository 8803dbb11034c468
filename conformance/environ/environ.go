// Package environ makes the environment and the limits of a lockstep process that a test or a tool starts.
package environ

import (
	"os"
	"slices"
	"strings"
)

var atStart = os.Environ()

// Environ returns the environment for a lockstep program, without the LOCKSTEP_ variables with which this process was started.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "LOCKSTEP_") && slices.Contains(atStart, v)
	})
}

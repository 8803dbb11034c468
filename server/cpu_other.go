//go:build !unix

package server

import "time"

// cpuTime is not known on this system.
func cpuTime() (user, system time.Duration) { return 0, 0 }

//go:build !unix

package server

import "time"

// cpuTime returns zeros, because this system has no getrusage.
func cpuTime() (user, system time.Duration) { return 0, 0 }

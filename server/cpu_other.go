//go:build !unix

package server

import "time"

// cpuTime returns zeros: this system does not report processor time.
func cpuTime() (user, system time.Duration) { return 0, 0 }

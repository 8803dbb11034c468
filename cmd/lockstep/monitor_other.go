//go:build !linux

package main

// relaxMonitor does nothing: only Linux has the timer slack that it would set.
func relaxMonitor() error { return nil }

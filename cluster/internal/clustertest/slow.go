package clustertest

import "testing"

// Slow marks a test that takes seconds of real time or of processor time: `make check` skips it, and `make test` runs it.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it is slow")
	}
}

package clustertest

import "testing"

// Slow begins a test that takes seconds, in real time or of the processor: `make check` leaves it out, and `make test` runs it.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it is slow")
	}
}

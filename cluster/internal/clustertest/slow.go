package clustertest

import "testing"

// Slow skips the test under go test -short. It is called by tests that take seconds of real time or of processor time: `make check`
// skips them, and `make test` runs them.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it is slow")
	}
}

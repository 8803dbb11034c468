package clustertest

import "testing"

// Slow marks tests that take seconds: `make check` skips them, `make test` runs them.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it is slow")
	}
}

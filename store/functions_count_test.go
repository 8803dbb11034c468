package store

import (
	"fmt"
	"runtime"
	"testing"
)

// TestLibrariesAreNotCountedAnew: to count libraries and functions, the store does not walk over all of them.
func TestLibrariesAreNotCountedAnew(t *testing.T) {
	const n = 5000
	s := New()
	txn := s.Begin(Time{Lease: 1, Wall: 1}, 1, Env{})
	for i := range n {
		txn.LoadLibrary(&Library{Name: fmt.Sprint("l", i), Code: "x", Functions: []Function{{Name: fmt.Sprint("f", i)}, {Name: fmt.Sprint("g", i)}}})
	}
	count := func(libs, functions int) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		gotLibs, gotFunctions := txn.CountLibraries()
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; gotLibs != libs || gotFunctions != functions || took > 4<<10 {
			t.Errorf("%d libraries, %d functions, want %d and %d; %d bytes to count them", gotLibs, gotFunctions, libs, functions, took)
		}
	}
	count(n, 2*n)
	txn.LoadLibrary(&Library{Name: "l1", Code: "x", Functions: []Function{{Name: "other"}}})
	count(n, 2*n-1)
	txn.DeleteLibrary("l2")
	count(n-1, 2*n-3)
	txn.FlushLibraries()
	count(0, 0)
}

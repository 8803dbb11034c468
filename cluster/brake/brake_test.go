package brake

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// Near the limit, Bring waits until garbage has been collected, but not again and again if all memory is live.
func TestBring(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector runs only when this test calls it
	defer Set(0, 0)
	runtime.GC()
	const much = 64 << 20
	before := inUse()
	Set(before+much/2, 0)
	var waste []byte
	for range much / step {
		waste = make([]byte, step)
		Bring(step)
	}
	runtime.KeepAlive(waste)
	if now := inUse(); now > before+much/2+2*step {
		t.Errorf("%d MB are in use", (now-before)>>20)
	}

	Look()
	for range much / step {
		waste = make([]byte, step)
		Look()
	}
	runtime.KeepAlive(waste)
	if now := inUse(); now > before+much/2+2*step {
		t.Errorf("%d MB are in use when nobody says how much is allocated", (now-before)>>20)
	}

	kept := make([]byte, much)
	cycles := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumGC
	}
	began := cycles()
	for range 100 {
		Bring(step)
	}
	if n := cycles() - began; n == 0 || n > 2 {
		t.Errorf("with %d MB in use beyond the limit, the collector was asked %d times", much>>20, n)
	}
	runtime.KeepAlive(kept)

	// To the memory in use, Bring adds the bytes that its caller is about to take.
	Set(inUse()+much/2, 0)
	began = cycles()
	if Bring(much / 4); cycles() != began {
		t.Errorf("the collector was asked for %d MB that there is room for", much/4>>20)
	}
	if Bring(much); cycles() != began+1 {
		t.Errorf("the collector was asked %d times for %d MB that there is no room for", cycles()-began, much>>20)
	}

	// Short does not reset the count of what others have brought in.
	Set(inUse()+much, 0)
	Bring(step)
	Bring(step / 2)
	if Short(0) {
		t.Error("there is no room for nothing")
	}
	waste = make([]byte, 2*much)
	began = cycles()
	Bring(step / 2)
	if cycles() == began {
		t.Error("the collector was not asked")
	}
	runtime.KeepAlive(waste)

	Set(0, 0)
	began = cycles()
	Bring(much)
	if n := cycles() - began; n != 0 {
		t.Errorf("without a limit the collector was asked %d times", n)
	}
}

// Scarce does not wait for the collector, and starts no second cycle, however many callers ask.
func TestScarce(t *testing.T) {
	defer Set(0, 0)
	Set(1, 0)
	mu.Lock() // as if another goroutine ran the collector
	before := runtime.NumGoroutine()
	for range 100 {
		if !Scarce(step) {
			t.Fatal("memory is not scarce")
		}
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d wait for the collector", n-before)
	}
	mu.Unlock()
	Set(1<<60, 0)
	if Scarce(step) {
		t.Error("memory is scarce")
	}
}

// Crowded is true only if a cycle has left memory near the limit, and while that memory is in use.
func TestCrowded(t *testing.T) {
	defer Set(0, 0)
	live := make([]byte, 64<<20)
	runtime.GC()
	Set(inUse()-1<<20, 0)
	if Crowded() {
		t.Error("it is garbage, as far as anybody knows")
	}
	Bring(step)
	if !Crowded() {
		t.Error("a cycle has freed nothing")
	}
	runtime.KeepAlive(live)
	live = nil
	runtime.GC()
	if Crowded() {
		t.Error("it has been let go")
	}
}

// Look does not take the bytes that others have allocated for bytes that its caller will allocate.
func TestLookAtWhatOthersAllocate(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector runs only when this test calls it
	defer Set(0, 0)
	runtime.GC()
	const much = 64 << 20
	Set(inUse()+much, 0)
	Look()
	runtime.KeepAlive(make([]byte, much*3/4))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Look()
	if runtime.ReadMemStats(&after); after.NumGC != before.NumGC {
		t.Error("it waits for the collector, and a quarter of the room is free")
	}
}

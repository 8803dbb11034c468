package conformance

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// contract has the tests of what every lock library promises. leases marks the tests of locks that end by themselves.
var contract = []struct {
	name   string
	leases bool
	run    func(t *testing.T, mk func() locker, key string)
}{
	{"acquire_and_release", false, acquireAndRelease},
	{"contention", false, contention},
	{"extend", true, extend},
	{"expiry", true, expiry},
	{"release_by_non_owner_is_refused", true, releaseByNonOwner},
	{"waiter_gets_the_lock_when_it_is_released", false, waiter},
}

func TestLocks(t *testing.T) {
	a := addrsNow(t)
	for _, l := range libraries {
		for _, c := range contract {
			name := strings.ReplaceAll(l.client+"/"+l.mode+"/"+c.name, " ", "-")
			t.Run(name, func(t *testing.T) {
				reason := l.missing(a)
				if c.leases && !l.leases && reason == "" {
					reason = "the library renews every lock by itself and has no lease of the caller's"
				}
				t.Parallel()
				report(t, l, c.name, reason)
				c.run(t, func() locker { return l.make(t, a) }, newKey())
			})
		}
	}
}

// get tries to acquire a lock, and fails the test on an error.
func get(t *testing.T, l locker, key string, ttl, wait time.Duration) held {
	t.Helper()
	h, err := l.acquire(key, ttl, wait)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return h
}

func release(t *testing.T, h held) {
	t.Helper()
	if err := h.release(); err != nil {
		t.Fatalf("release: %v", err)
	}
}

func acquireAndRelease(t *testing.T, mk func() locker, key string) {
	a, b := mk(), mk()
	h := get(t, a, key, 30*time.Second, 0)
	if h == nil {
		t.Fatal("a free lock was not granted")
	}
	if get(t, b, key, 30*time.Second, 0) != nil {
		t.Fatal("granted twice")
	}
	release(t, h)
	// rueidislock deletes the lock's keys in the background.
	if !eventually(5*time.Second, func() bool { h = get(t, b, key, 30*time.Second, 0); return h != nil }) {
		t.Fatal("a released lock was not granted")
	}
	release(t, h)
}

func contention(t *testing.T, mk func() locker, key string) {
	var inside, seen atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		l := mk()
		wg.Go(func() {
			for range 4 {
				h, err := l.acquire(key, 20*time.Second, 20*time.Second)
				if err != nil || h == nil {
					t.Errorf("waited in vain: %v", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d inside", n)
				}
				time.Sleep(2 * time.Millisecond)
				inside.Add(-1)
				seen.Add(1)
				if err := h.release(); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if seen.Load() != 16 {
		t.Errorf("%d of 16 came through", seen.Load())
	}
}

func extend(t *testing.T, mk func() locker, key string) {
	a, b := mk(), mk()
	h := get(t, a, key, 5*time.Second, 0)
	if h == nil {
		t.Fatal("a free lock was not granted")
	}
	time.Sleep(3 * time.Second)
	if err := h.extend(5 * time.Second); err != nil {
		t.Fatalf("extend: %v", err)
	}
	time.Sleep(3 * time.Second)
	if get(t, b, key, 5*time.Second, 0) != nil {
		t.Fatal("the lease ended before its extension")
	}
	release(t, h)
}

func expiry(t *testing.T, mk func() locker, key string) {
	a, b := mk(), mk()
	// The lease must not be shorter, because redsync gives the server only a twentieth of it.
	const lease = 8 * time.Second
	start := time.Now()
	if get(t, a, key, lease, 0) == nil || get(t, b, key, lease, 0) != nil {
		t.Fatal("not granted once")
	}
	if !eventually(20*time.Second, func() bool { return get(t, b, key, lease, 0) != nil }) {
		t.Fatal("the lease never ended")
	}
	if waited := time.Since(start); waited < lease {
		t.Fatalf("the lease ended early, after %v", waited)
	}
}

func releaseByNonOwner(t *testing.T, mk func() locker, key string) {
	a, b := mk(), mk()
	h := get(t, a, key, 30*time.Second, 0)
	if h == nil {
		t.Fatal("a free lock was not granted")
	}
	if err := b.foreign(key).release(); err == nil {
		t.Error("a stranger's release was not refused")
	}
	if err := b.foreign(key).extend(30 * time.Second); err == nil {
		t.Error("a stranger's extension was not refused")
	}
	if get(t, b, key, 30*time.Second, 0) != nil {
		t.Fatal("a stranger released the lock")
	}
	release(t, h)
}

func waiter(t *testing.T, mk func() locker, key string) {
	a, b := mk(), mk()
	h := get(t, a, key, time.Minute, 0)
	if h == nil {
		t.Fatal("a free lock was not granted")
	}
	type grant struct {
		h   held
		err error
	}
	got := make(chan grant, 1)
	go func() {
		h, err := b.acquire(key, time.Minute, 30*time.Second)
		got <- grant{h, err}
	}()
	time.Sleep(300 * time.Millisecond)
	released := time.Now()
	release(t, h)
	g := <-got
	if g.err != nil || g.h == nil {
		t.Fatalf("the waiter did not get the lock: %v", g.err)
	}
	if waited := time.Since(released); waited > 15*time.Second {
		t.Errorf("the waiter waited for its timeout: %v", waited)
	}
	release(t, g.h)
}

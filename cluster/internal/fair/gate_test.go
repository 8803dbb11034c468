package fair

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/clock"
	"github.com/lockstep-io/lockstep/store"
)

var (
	heavyHost = netip.MustParseAddr("192.0.2.1")
	lightHost = netip.MustParseAddr("192.0.2.2")
)

func testGate(t *testing.T) (g *Gate, end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	return NewGate(ctx, clock.NewSystem(), func() int { return 1 }), cancel
}

// does has a client do light work.
func (g *Gate) does(t *testing.T, c *Client) {
	t.Helper()
	if heavy, _ := g.Heavy(c, calls("SET other lock")); heavy {
		t.Error("a client that has only set a lock does heavy work")
	}
}

// closed makes the next piece of heavy work wait for an hour.
func (g *Gate) closed(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	g.next, g.pause = g.clock.Monotonic()+time.Hour, time.Hour
	g.mu.Unlock()
	g.does(t, g.NewClient(lightHost))
}

var (
	table  = store.NewTable(store.Commands())
	script = &store.Command{Name: "eval", Flags: store.Scripting}
)

func calls(lines ...string) (list []call.Call) {
	for _, line := range lines {
		var c call.Call
		for _, word := range strings.Fields(line) {
			c.Args = append(c.Args, []byte(word))
		}
		var known bool
		if c.Cmd, known = table.Resolve(c.Args); !known {
			c.Cmd = script
		}
		list = append(list, c)
	}
	return list
}

// A client that has done heavy work takes, releases and renews locks without a wait. Its other commands wait for a bounded time.
func TestHeavyWorkWaitsNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, end := testGate(t)
		defer end()
		c := g.NewClient(heavyHost)
		g.Remember(c, HeavyTime)
		for line, most := range map[string]time.Duration{"SET lock me NX PX 100": 0, "PEXPIRE lock 200": 0, "DEL lock": 0, "EVAL release": 0, "LPUSH l x": 0,
			"GET lock": yieldSoon, "SET k " + strings.Repeat("x", 1<<20): yieldLate} {
			g.Remember(c, HeavyTime)
			c.owes.Store(0)
			g.closed(t)
			begin := time.Now()
			if heavy, patience := g.Heavy(c, calls(line)); heavy {
				g.Pass(c, calls(line), patience, func() int { return 0 })
			}
			if took := time.Since(begin); took != most {
				t.Errorf("%.30s waited for %v, want %v", line, took, most)
			}
		}
		if heavy, _ := g.Heavy(c, slices.Repeat(calls("PEXPIRE "+strings.Repeat("x", 200)+" 1000"), 1000)); heavy {
			t.Error("1,000 renewals in a pipeline are heavy")
		}
		hold := func(reply string) time.Duration {
			c.owes.Store(int64(time.Hour))
			g.does(t, g.NewClient(lightHost))
			begin := time.Now()
			g.HoldReplies(c, []store.Reply{store.Str(reply)}, 0, math.MaxInt64)
			return time.Since(begin)
		}
		if took := hold(strings.Repeat("x", yieldHeld/2)); took != yieldSoon {
			t.Errorf("a large reply was held for %v, want %v", took, yieldSoon)
		}
		c.Encoded()
		g.held.Store(yieldHeld)
		if took := hold("x"); took != 0 {
			t.Errorf("with much that is held already, a reply was held for %v", took)
		}
		g.closed(t)
		begin := time.Now()
		g.Pass(c, calls("SET k "+strings.Repeat("x", 1<<20)), yieldLate, func() int { return 0 })
		if took := time.Since(begin); took != 0 {
			t.Errorf("with much that waits already, it waited for %v", took)
		}
	})
}

// A node remembers a bounded number of addresses, and none for long.
func TestHeavyAddressesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, end := testGate(t)
		defer end()
		addr := netip.MustParseAddr("2001:db8::")
		for i := range 3 * yieldAddrs {
			if addr = addr.Next(); i == 2*yieldAddrs {
				time.Sleep(YieldMemory)
			}
			g.Remember(g.NewClient(addr), HeavyTime)
		}
		if got := len(g.lately); got != yieldAddrs {
			t.Errorf("%d addresses are remembered, want %d", got, yieldAddrs)
		}
		if !g.IsHeavy(g.NewClient(addr)) {
			t.Error("a new connection of the last of them does not count as heavy")
		}
		c := g.NewClient(addr)
		time.Sleep(YieldMemory)
		if g.IsHeavy(c) || g.IsHeavy(g.NewClient(addr)) {
			t.Error("it still does after a second")
		}
	})
}

// Heavy work that waits goes on when its node ends.
func TestHeavyWorkEndsWithTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, end := testGate(t)
		g.closed(t)
		begin := time.Now()
		ran := make(chan bool)
		go func() { ran <- g.Pass(g.NewClient(heavyHost), calls("GET k"), time.Minute, func() int { return 0 }) }()
		synctest.Wait()
		select {
		case <-ran:
			t.Error("it did not wait")
		default:
			end()
			<-ran
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("it waited for %v", took)
		}
	})
}

// A node's own work has a quarter of the time while clients do anything, and all of it after a second without requests.
func TestOwnWorkHasAQuarter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, piece = 30, 2 * time.Millisecond
		for _, tt := range []struct {
			others      time.Duration // between two requests of others; 0: there are none
			least, most int           // pieces in four seconds
		}{{500 * time.Millisecond, 450, 550}, {time.Millisecond, 450, 550}, {0, clients * 1450, clients * 2100}} {
			g, end := testGate(t)
			own := g.Beside()
			light := g.NewClient(lightHost)
			g.does(t, light)
			time.Sleep(2 * ownIdle)
			var done atomic.Int32
			over := make(chan struct{})
			var all sync.WaitGroup
			if tt.others > 0 {
				g.does(t, light)
				all.Go(func() {
					for {
						select {
						case <-over:
							return
						case <-time.After(tt.others):
							g.does(t, light)
						}
					}
				})
			}
			for range clients {
				all.Go(func() {
					c := own.NewClient(heavyHost)
					for {
						select {
						case <-over:
							return
						default:
							time.Sleep(piece)
							own.Rest(c, piece)
							done.Add(1)
						}
					}
				})
			}
			time.Sleep(4 * time.Second)
			if got := int(done.Load()); got < tt.least || got > tt.most {
				t.Errorf("others every %v: %d pieces of %v in four seconds, want %d to %d", tt.others, got, piece, tt.least, tt.most)
			}
			close(over)
			end()
			all.Wait()
		}
	})
}

// countingClock counts how often the time is asked for.
type countingClock struct {
	Clock
	calls atomic.Int64
}

func (c *countingClock) Monotonic() time.Duration {
	c.calls.Add(1)
	return c.Clock.Monotonic()
}

// TestOnlyTheFirstAsksForItsTurn: when a piece of heavy work ends, one of the requests that wait looks whether its turn has come.
func TestOnlyTheFirstAsksForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, end := testGate(t)
		defer end()
		asked := &countingClock{Clock: g.clock}
		g.clock = asked
		g.closed(t)
		over := make(chan struct{})
		go g.Pass(g.NewClient(heavyHost), calls("GET lock"), 0, func() int { <-over; return 0 })
		synctest.Wait()
		const waiting = 100
		for range waiting {
			go g.Pass(g.NewClient(heavyHost), calls("GET lock"), time.Hour, func() int { return 0 })
		}
		synctest.Wait()
		g.does(t, g.NewClient(lightHost))
		before := asked.calls.Load()
		close(over)
		synctest.Wait()
		if n := asked.calls.Load() - before; n > waiting/10 {
			t.Errorf("%d looks at the clock, while %d requests wait", n, waiting)
		}
	})
}

package peerport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// lookedUp finds the stranger that has to be cut off, by a slow search of all strangers.
func lookedUp(as *arrivals) (found *arrival) {
	calls := map[netip.Addr]int{}
	for _, a := range as.unproven {
		calls[a.from]++
	}
	for i, a := range as.unproven {
		rank := func(a *arrival, i int) []int {
			r := []int{0, 0, -calls[a.from], i}
			if a.handshook {
				r[0] = 1
			}
			if as.known.has(a.from) {
				r[1] = 1
			}
			return r
		}
		if found == nil || slices.Compare(rank(a, i), rank(found, slices.Index(as.unproven, found))) < 0 {
			found = a
		}
	}
	return found
}

// While callers come, send handshakes, prove themselves and leave, the node cuts off the right one.
func TestVictimIsTheRightOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStrangers(new(clustertest.Log).Logger())
		defer s.close()
		as := newArrivals(s, new(peerAddrs))
		defer as.close()
		r := rand.New(rand.NewPCG(1, 2))
		cut := 0
		for i := range 3000 {
			near, far := net.Pipe()
			defer far.Close()
			var want *arrival
			if len(as.unproven) == maxStrangers {
				want, cut = lookedUp(as), cut+1
			}
			a := as.admit(from{near, clustertest.Addr(fmt.Sprintf("10.0.0.%d:%d", r.IntN(1+r.IntN(200)), i))})
			if want != nil && !want.gone {
				t.Fatalf("after %d calls another one is cut off", i)
			}
			if sum := len(as.unproven); sum > maxStrangers {
				t.Fatalf("after %d calls there are %d strangers", i, sum)
			}
			switch other := as.unproven[r.IntN(len(as.unproven))]; r.IntN(40) {
			case 0, 1, 2:
				other.handshakeDone()
			case 3:
				as.known.learn(other.from)
				other.prove(other.raw)
			case 4:
				other.Close()
			case 5:
				a.Close()
			}
		}
		if cut < 1000 {
			t.Errorf("only %d were cut off", cut)
		}
	})
}

// In a flood the node chooses thousands of times a second which stranger to cut off. So the choice must make no garbage.
func TestVictimCostsNoMemory(t *testing.T) {
	s := newStrangers(new(clustertest.Log).Logger())
	defer s.close()
	as := newArrivals(s, new(peerAddrs))
	defer as.close()
	for i := range maxStrangers {
		near, far := net.Pipe()
		defer far.Close()
		as.admit(from{near, clustertest.Addr(fmt.Sprintf("10.0.%d.1:1", i))})
	}
	if n := testing.AllocsPerRun(10, func() { as.victim() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// caller waits in the kernel's queue.
type caller struct {
	from
	opened func()
}

func (c caller) open() (net.Conn, error) {
	c.opened()
	return c.from, nil
}

// Between two looks into the kernel's queue, the node starts only a few callers. Proven addresses take turns with others.
func TestQueueIsEmptiedBeforeAnyIsStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := portOf(t, TLS{Secret: clustertest.Secret})
		c.port.arrivals.known.learn(netip.MustParseAddr("10.9.9.9"))
		var started []string
		asked, sent := []int{}, 0
		call := func(addr string) net.Conn {
			near, far := net.Pipe()
			t.Cleanup(func() { far.Close() })
			return caller{from{near, clustertest.Addr(addr)}, func() { started = append(started, addr) }}
		}
		const flood = 10*takeBatch - 2
		c.port.admitWaiting(func(_ net.Listener, n int, take func(net.Conn)) bool {
			asked = append(asked, len(started))
			for ; n > 0 && sent < flood; n, sent = n-1, sent+1 {
				take(call(fmt.Sprintf("10.0.%d.%d:1", sent>>8, sent&255)))
			}
			for ; n > 0 && sent < flood+2; n, sent = n-1, sent+1 {
				take(call(fmt.Sprintf("10.9.9.9:%d", sent)))
			}
			return sent < flood+2
		})
		for i, n := range asked {
			if n > i*startBatch {
				t.Errorf("before look %d into the queue %d had been started", i, n)
			}
		}
		if n := len(started); n > len(asked)*startBatch || n < maxStrangers {
			t.Errorf("%d were started", n)
		}
		first := started[9*startBatch:][:4]
		peers := slices.DeleteFunc(slices.Clone(first), func(addr string) bool { return addr[:5] != "10.9." })
		if fmt.Sprint(peers) != fmt.Sprintf("[10.9.9.9:%d 10.9.9.9:%d]", flood, flood+1) {
			t.Errorf("when the peer had come, %q were started first", first)
		}
		if last := started[len(started)-1]; last != fmt.Sprintf("10.0.%d.%d:1", (flood-1)>>8, (flood-1)&255) {
			t.Errorf("the last one to be started was %s", last)
		}
		synctest.Wait()
	})
}

// If the kernel of a peer drops a request to connect, another one is made beside it soon.
func TestDialAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		connects int // attempt that connects first
		refused  bool
		took     time.Duration
	}{
		"at once":     {1, false, 0},
		"second":      {2, false, againAfter},
		"last":        {5, false, 4 * againAfter},
		"never":       {9, false, DialTimeout},
		"not refused": {9, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				errRefused := errors.New("refused")
				var (
					began    = time.Now()
					mu       sync.Mutex
					attempts int
					others   []net.Conn
				)
				conn, err := dialAgain(DialTimeout, func(ctx context.Context) (net.Conn, error) {
					mu.Lock()
					attempts++
					connects := attempts >= tc.connects
					mu.Unlock()
					near, far := net.Pipe()
					switch {
					case tc.refused:
						return nil, errRefused
					case connects:
						return near, nil
					}
					<-ctx.Done()
					if tc.connects > maxAttempts {
						return nil, ctx.Err()
					}
					mu.Lock()
					others = append(others, far) // it has connected nevertheless
					mu.Unlock()
					return near, nil
				})
				if took := time.Since(began); took != tc.took {
					t.Errorf("it took %v, want %v", took, tc.took)
				}
				if (conn != nil) != (tc.connects <= maxAttempts) || tc.refused != errors.Is(err, errRefused) {
					t.Errorf("connected %t, %v", conn != nil, err)
				}
				synctest.Wait()
				if len(others) != tc.connects-1 && tc.connects <= maxAttempts {
					t.Errorf("%d other attempts have connected", len(others))
				}
				for _, far := range others {
					if _, err := far.Write([]byte("x")); err == nil {
						t.Error("a connection of another attempt stays open")
					}
				}
			})
		})
	}
}

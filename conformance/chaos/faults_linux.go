package main

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/conformance/chaos/network"
)

// fault is one way to break something. A fault ends by itself. What it leaves broken is repaired at the end of the epoch.
type fault struct {
	name string
	area string // faults of the same area never happen at the same time
	run  func(x *breaker)
}

// breaker is what a fault works with.
type breaker struct {
	*epoch
	rng  *rand.Rand
	hold time.Duration // about how long the fault should last
}

// wait lets a fault last for a while. The end of the epoch cuts the wait short.
func (x *breaker) wait(d time.Duration) {
	select {
	case <-x.stop:
	case <-time.After(d):
	}
}

func (x *breaker) any() *node { return x.s.f.nodes[x.rng.IntN(len(x.s.f.nodes))] }

// leading returns the leader, or any node while there is none.
func (x *breaker) leading() *node {
	if n := x.s.f.leader(); n != nil {
		return n
	}
	return x.any()
}

// mostly returns the leader two times out of three, and otherwise any node: faults of the leader do most harm.
func (x *breaker) mostly() *node {
	if x.rng.IntN(3) > 0 {
		return x.leading()
	}
	return x.any()
}

func (x *breaker) between(low, high time.Duration) time.Duration {
	return low + time.Duration(x.rng.Int64N(int64(high-low)))
}

// disturb lets faults happen for a while, in one to four areas at once. In each area, one fault follows another.
func (e *epoch) disturb(rng *rand.Rand) {
	areas := map[string][]*fault{}
	var names []string
	for _, f := range e.s.kinds {
		if areas[f.area] == nil {
			names = append(names, f.area)
		}
		areas[f.area] = append(areas[f.area], f)
	}
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var wg sync.WaitGroup
	end := time.Now().Add(e.s.busy)
	for _, area := range names[:1+rng.IntN(min(len(names), 4))] {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		wg.Go(func() {
			for {
				x := &breaker{epoch: e, rng: own}
				x.wait(x.between(100*time.Millisecond, 1500*time.Millisecond))
				left := time.Until(end)
				if left < 500*time.Millisecond {
					return
				}
				x.hold = min(left, x.between(300*time.Millisecond, 6*time.Second))
				f := areas[area][own.IntN(len(areas[area]))]
				e.s.began(f)
				e.note("%s begins", f.name)
				f.run(x)
				e.note("%s ends", f.name)
			}
		})
	}
	wg.Wait()
}

func (s *suite) began(f *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[f.name]++
}

func allFaults() []*fault {
	return slices.Concat(processFaults(), networkFaults(), diskFaults(), clockFaults(), adminFaults(), memberFaults())
}

func processFaults() []*fault {
	return []*fault{
		{"kill one", "process", func(x *breaker) {
			n := x.any()
			x.note("kill -9 %s", n.id)
			n.kill()
			x.wait(x.hold)
			x.again(n)
		}},
		{"kill leader", "process", func(x *breaker) {
			n := x.leading()
			x.note("kill -9 %s", n.id)
			n.kill()
			x.wait(x.hold / 2)
			x.again(n)
		}},
		{"kill all", "process", func(x *breaker) {
			for _, n := range x.s.f.nodes {
				n.kill()
			}
			x.wait(x.hold / 4)
			x.again(x.s.f.nodes...)
		}},
		{"pause shortly", "process", func(x *breaker) {
			n := x.mostly()
			x.note("SIGSTOP %s", n.id)
			n.pause()
			x.wait(x.between(50*time.Millisecond, 450*time.Millisecond))
			n.resume()
		}},
		{"pause", "process", func(x *breaker) {
			// The pause is longer than an election and most leases.
			n := x.mostly()
			x.note("SIGSTOP %s", n.id)
			n.pause()
			x.wait(max(x.hold, 1500*time.Millisecond))
			n.resume()
		}},
		{"pause two", "process", pauseTwo},
		{"restart rolling", "process", func(x *breaker) {
			for _, n := range x.s.f.nodes {
				x.note("SIGTERM %s", n.id)
				// Other things are broken, too, so nobody checks whether the node ends in time and with the right exit code.
				if err := n.stop(); err != nil {
					x.note("%v", err)
				}
				x.again(n)
				x.wait(x.hold / 3)
			}
		}},
	}
}

func pauseTwo(x *breaker) {
	a, b := x.mostly(), x.any()
	x.note("SIGSTOP %s and %s", a.id, b.id)
	a.pause()
	b.pause()
	x.wait(x.hold)
	b.resume()
	x.wait(x.between(1, 300*time.Millisecond))
	a.resume()
}

// ways sets the link between each two nodes, in each direction. If clients is true, it also sets the links between the nodes and
// their clients.
func (x *breaker) ways(clients bool, l func(from, to *node) network.Link) {
	for _, a := range x.s.f.nodes {
		for _, b := range x.s.f.nodes {
			if a != b {
				x.s.f.net.Set(a.addr, b.addr, l(a, b))
			}
		}
		if clients {
			x.s.f.net.Set(a.addr, x.s.f.clients.Addr, l(a, nil))
			x.s.f.net.Set(x.s.f.clients.Addr, a.addr, l(nil, a))
		}
	}
}

// bad makes a network fault that sets all links, and heals them after a while.
func bad(name string, clients func(*breaker) bool, make func(x *breaker) func(from, to *node) network.Link) *fault {
	return &fault{name, "network", func(x *breaker) {
		x.ways(clients(x), make(x))
		x.wait(x.hold)
		x.s.f.net.Heal()
	}}
}

func never(*breaker) bool       { return false }
func always(*breaker) bool      { return true }
func sometimes(x *breaker) bool { return x.rng.IntN(2) == 0 }

func networkFaults() []*fault { return slices.Concat(partitions(), slowFaults()) }

func cut(yes bool) network.Link { return network.Link{Cut: yes} }

func partitions() []*fault {
	return []*fault{
		bad("leader alone", never, func(x *breaker) func(a, b *node) network.Link {
			n := x.leading()
			x.note("%s is cut off from the nodes, not from its clients", n.id)
			return func(a, b *node) network.Link { return cut(a == n || b == n) }
		}),
		bad("leader gone", always, func(x *breaker) func(a, b *node) network.Link {
			n := x.leading()
			x.note("%s is cut off from everybody", n.id)
			return func(a, b *node) network.Link { return cut(a == n || b == n) }
		}),
		bad("one alone", never, func(x *breaker) func(a, b *node) network.Link {
			n := x.any()
			x.note("%s is cut off", n.id)
			return func(a, b *node) network.Link { return cut(a == n || b == n) }
		}),
		{"majority gone", "network", func(x *breaker) {
			// Clients reach only the leader, which has lost its majority.
			n := x.leading()
			x.note("clients reach nobody but %s, and it reaches none of the others", n.id)
			x.ways(true, func(a, b *node) network.Link {
				if a == nil || b == nil {
					return cut(a != n && b != n)
				}
				return cut(a == n || b == n)
			})
			x.wait(x.hold)
			x.s.f.net.Heal()
		}},
		bad("all alone", never, func(*breaker) func(a, b *node) network.Link {
			return func(a, b *node) network.Link { return cut(true) }
		}),
		bad("leader deaf", sometimes, func(x *breaker) func(a, b *node) network.Link {
			n := x.leading()
			x.note("nothing reaches %s", n.id)
			return func(a, b *node) network.Link { return cut(b == n) }
		}),
		bad("leader mute", sometimes, func(x *breaker) func(a, b *node) network.Link {
			n := x.leading()
			x.note("nothing leaves %s", n.id)
			return func(a, b *node) network.Link { return cut(a == n) }
		}),
		bad("one link", never, func(x *breaker) func(a, b *node) network.Link {
			// Every node but n and m still reaches both of them.
			n, m, both := x.leading(), x.any(), x.rng.IntN(2) == 0
			x.note("%s cannot reach %s, and the other way round: %v", n.id, m.id, both)
			return func(a, b *node) network.Link { return cut(a == n && b == m || both && a == m && b == n) }
		}),
	}
}

func slowFaults() []*fault {
	return []*fault{
		bad("loss", sometimes, func(x *breaker) func(a, b *node) network.Link {
			rate := 0.02 + 0.2*x.rng.Float64()
			return func(a, b *node) network.Link { return network.Link{Loss: rate} }
		}),
		bad("delay", sometimes, func(x *breaker) func(a, b *node) network.Link {
			d, j := x.between(1, 100*time.Millisecond), x.between(1, 60*time.Millisecond)
			return func(a, b *node) network.Link { return network.Link{Delay: d, Jitter: j, Duplicate: 0.05} }
		}),
		bad("everything slow from the leader", never, func(x *breaker) func(a, b *node) network.Link {
			n, d := x.leading(), x.between(200*time.Millisecond, 900*time.Millisecond)
			return func(a, b *node) network.Link {
				if a == n {
					return network.Link{Delay: d}
				}
				return network.Link{Loss: 0.01}
			}
		}),
	}
}

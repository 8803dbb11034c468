package cluster

import (
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// takeSlowly takes a lock and is heavy work: TAKE key owner lease-in-ms. With MANY it takes more locks, whose names have
// maxRecorded bytes together.
var takeSlowly = store.Command{Name: "take", Arity: -4, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
	if c.LookupWrite(0, c.Args[1]) != nil {
		return store.Nil
	}
	time.Sleep(200 * ms)
	lease, _ := redistext.ParseInt(c.Args[3])
	c.SetString(0, c.Args[1], c.Arg(2), c.DeadlineIn(lease))
	for i := range 8 * (len(c.Args) - 4) {
		c.SetString(0, []byte(strconv.Itoa(i)+strings.Repeat("k", maxRecorded/8)), c.Arg(2), c.DeadlineIn(lease))
	}
	return store.OK
}}

// On a heldPair other clients always have light work, so replies to heavy work are held for a second.
type heldPair struct{ *pair }

func newHeldPair(t *testing.T, commands ...store.Command) heldPair {
	p := heldPair{newPair(t, append(commands, takeSlowly, scriptCommand)...)}
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	for _, node := range []*Node{p.Node, p.b} {
		light := node.NewClient(netip.MustParseAddr("192.0.2.1"))
		go func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(5 * ms):
					node.SubmitPart(light, p.call("SET light work"), nil)
				}
			}
		}()
	}
	time.Sleep(50 * ms)
	return p
}

// take runs a pipeline of heavy work, and returns the replies and how long they took.
func (p heldPair) take(node *Node, lines ...string) (string, time.Duration) {
	start := time.Now()
	got := text(node.SubmitPart(node.NewClient(netip.MustParseAddr("192.0.2.2")), p.call(lines...), nil))
	return got, time.Since(start)
}

// heldReplies has a function for each way by which heavy work gets to the leader.
var heldReplies = map[string]func(p heldPair, lines ...string) (string, time.Duration){
	"on the leader":   func(p heldPair, lines ...string) (string, time.Duration) { return p.take(p.Node, lines...) },
	"on another node": func(p heldPair, lines ...string) (string, time.Duration) { return p.take(p.b, lines...) },
	"on the leader, after a wait": func(p heldPair, lines ...string) (string, time.Duration) {
		before := p.queue.Join(p.queue.Number())
		time.AfterFunc(20*ms, func() { p.queue.Leave(before) })
		return p.take(p.Node, lines...)
	},
}

// A reply to heavy work is held. Its lease has the whole time, counted from when the reply leaves.
func TestHeldReplyGivesTheWholeLease(t *testing.T) {
	for name, take := range heldReplies {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newHeldPair(t)
				if got, took := take(p, "TAKE lock me 1500"); got != "OK" || took < time.Second {
					t.Fatalf("told %q after %v, want a reply that is held", got, took)
				}
				time.Sleep(1499 * ms)
				p.expect("me nil", "GET lock", "SET lock you NX")
				time.Sleep(2 * latenessKept * ms)
				p.expect("nil", "GET lock")
			})
		})
	}
}

// When a held reply leaves, the lease in it keeps the time that a later renewal has given it.
func TestHeldReplyKeepsTheGraceOfARenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newHeldPair(t)
		renewed := make(chan time.Time, 1)
		time.AfterFunc(500*ms, func() {
			p.log.decides(48*ms, func(e raftfsm.Entry) verdict {
				if !strings.Contains(string(e.Writes), "lock") {
					return commit
				}
				p.log.mu.Lock()
				defer p.log.mu.Unlock()
				p.log.decide = nil
				return commitSlowly
			})
			if got := p.do("PEXPIRE lock 10000"); got != "1" {
				t.Errorf("the renewal was told %s", got)
			}
			renewed <- time.Now()
		})
		if got, took := p.take(p.Node, "TAKE lock me 1500"); got != "OK" || took < time.Second {
			t.Fatalf("told %q after %v, want a reply that is held", got, took)
		}
		time.Sleep(time.Until((<-renewed).Add(9999 * ms)))
		p.expect("me", "GET lock")
	})
}

// A held reply waits for a long script to end, and its lease has the whole time from then on.
func TestHeldReplyWaitsForAScript(t *testing.T) {
	for name, take := range heldReplies {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newHeldPair(t)
				p.SetBusyThreshold(100 * ms)
				time.AfterFunc(600*ms, func() { p.start("SCRIPT 2") })
				if got, took := take(p, "TAKE lock me 20000"); got != "OK" || took < 2*time.Second {
					t.Errorf("told %q after %v", got, took)
				}
				time.Sleep(19_999 * ms)
				p.expect("me", "GET lock")
			})
		})
	}
}

// A reply is held for at most three quarters of its lease, and not at all below shortLease, because confirm needs the rest.
func TestReplyIsNotHeldBeyondItsLease(t *testing.T) {
	for name, take := range heldReplies {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newHeldPair(t)
				if got, took := take(p, "TAKE lock me 400"); got != "OK" || took < 450*ms || took > 600*ms {
					t.Fatalf("told %q after %v", got, took)
				}
				time.Sleep(399 * ms)
				p.expect("me nil", "GET lock", "SET lock you NX")
			})
		})
		t.Run(name+", a short one", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newHeldPair(t)
				if got, took := take(p, "TAKE lock me 399"); got != "OK" || took > 225*ms {
					t.Errorf("told %q after %v", got, took)
				}
			})
		})
	}
}

// A held reply is sent even if another client's command has ended its lease: the owner could have had it before.
func TestHeldReplyOfALeaseThatWasEnded(t *testing.T) {
	for name, take := range heldReplies {
		for _, next := range [][]string{{"DEL lock"}, {"DEL lock", "SET lock you NX PX 60000"}} {
			t.Run(name+"/"+strings.Join(next, ","), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := newHeldPair(t)
					time.AfterFunc(500*ms, func() { p.do(next...) })
					if got, took := take(p, "TAKE lock me 1500"); got != "OK" || took < time.Second {
						t.Errorf("told %q after %v", got, took)
					}
				})
			})
		}
	}
}

// If a request has released its own lock, its reply has no lease. The reply is held like any other without a lease.
func TestHeldReplyWithoutALease(t *testing.T) {
	for name, take := range heldReplies {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newHeldPair(t)
				if got, took := take(p, "TAKE lock me 400", "DEL lock"); got != "OK 1" || took < time.Second {
					t.Errorf("told %q after %v", got, took)
				}
			})
		})
	}
}

// The leases of a reply are kept up to a limit. A reply with more leases is not held.
func TestReplyWithManyLeasesIsNotHeld(t *testing.T) {
	for _, name := range []string{"on the leader", "on another node"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newHeldPair(t)
				if got, took := heldReplies[name](p, "TAKE lock me 400 MANY"); got != "OK" || took > 250*ms {
					t.Errorf("told %q after %v", got, took)
				}
			})
		})
	}
}

// A leader of an earlier version does not tell its followers which leases it has given. So they hold no reply that may have a
// lease.
func TestLeaderTellsNoLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newHeldPair(t)
		p.cut()
		p.cfg.speaks = forward.Version{Major: forward.Major, Minor: forward.MinorLeases - 1}
		p.connect()
		if got, took := p.take(p.b, "TAKE lock me 400"); got != "OK" || took > 250*ms {
			t.Fatalf("told %q after %v", got, took)
		}
		time.Sleep(399 * ms)
		p.expect("me", "GET lock")
	})
}

// TestShortLeaseThatWaitedForRoom: a large reply waits until its node has room for it, and the short lease in it runs out. The
// owner is told so.
func TestShortLeaseThatWaitedForRoom(t *testing.T) {
	takeLarge := store.Command{Name: "takelarge", Arity: 4, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
		time.Sleep(200 * ms)
		lease, _ := redistext.ParseInt(c.Args[3])
		if c.LookupWrite(0, c.Args[1]) != nil {
			return store.Nil
		}
		c.SetString(0, c.Args[1], c.Arg(2), c.DeadlineIn(lease))
		return store.Str(strings.Repeat("x", 16<<10))
	}}
	bubble(t, func(t *testing.T) {
		p := newPair(t, takeLarge)
		big := p.NewClient(netip.MustParseAddr("192.0.2.9"))
		big.Holds(9 << 20)
		defer big.Holds(0)
		me := p.NewClient(netip.MustParseAddr("192.0.2.2"))
		start := time.Now()
		told := make(chan string, 1)
		go func() { told <- text(p.Node.SubmitPart(me, p.call("TAKELARGE lock me 300"), nil)) }()
		time.Sleep(700 * ms)
		other := p.do("SET lock you NX PX 60000")
		if got := <-told; other == "OK" && got != "-INDETERMINATE" {
			t.Errorf("the lock was another's, and its owner was told %.30q after %v", got, time.Since(start))
		}
	})
}

// TestConfirmOfACallThatIsNotThere: a peer sends a short Confirm for a call with a very high index. It cannot make the leader
// allocate much memory with that.
func TestConfirmOfACallThatIsNotThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		n.lead()
		l := n.carried(b.Node)
		g := grants{seq: 1, at: 1, list: []grant{{1 << 20, store.LeasedKey{Key: "k", Deadline: 5}}}}
		calls := []Call{{Cmd: call.Confirm, Args: [][]byte{[]byte(call.ConfirmName), appendGrants(nil, g)}, RESP: 2, User: store.SystemUser}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		done := make(chan int, 1)
		l.Call(forward.Submit, func(buf []byte) []byte {
			return forward.AppendSubmit(buf, forward.Ticket{ID: 1, Low: 1}, l.Token, calls, forward.Minor)
		}, func(body []byte, err error) { done <- len(body) })
		size := <-done
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 10<<20 {
			t.Errorf("%d MB allocated, a result of %d bytes, for call 1<<20 in a frame of 40 bytes; 1<<30 is let through", got>>20, size)
		}
	})
}

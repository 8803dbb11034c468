package cluster

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// renewCommand renews a lock of its owner: key, owner, milliseconds.
var renewCommand = store.Command{Name: "renew", Arity: 4, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
	e := c.Lookup(0, c.Args[1])
	if e == nil || e.Str() != c.Arg(2) {
		return store.Int(0)
	}
	ms, _ := redistext.ParseInt(c.Args[3])
	c.SetDeadline(0, c.Args[1], c.DeadlineIn(ms))
	return store.Int(1)
}}

// enterCommand takes a lock that is free or the caller's own: key, owner, milliseconds.
var enterCommand = store.Command{Name: "enter", Arity: 4, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
	ms, _ := redistext.ParseInt(c.Args[3])
	e := c.LookupWrite(0, c.Args[1])
	switch {
	case e == nil:
		c.SetString(0, c.Args[1], c.Arg(2), c.DeadlineIn(ms))
		return store.Str("free")
	case e.Str() == c.Arg(2):
		c.SetDeadline(0, c.Args[1], c.DeadlineIn(ms))
		return store.Str("own")
	}
	return store.Str("held")
}}

// J14: a leader that woke from a disk stall ended leases that their owners had renewed with the next leader.
func TestJ14StalledLeaderEndsNoLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK OK", "SET lock me PX 1000", "SET other me PX 1000")
		n.log.decides(0, func(e raftfsm.Entry) verdict {
			if len(e.Writes) == 0 {
				return commit // the entry only tells the time
			}
			n.log.decides(0, nil)
			time.Sleep(10 * time.Second) // the stall; this entry deletes both locks
			n.log.set(func(l *fakeLog) {
				l.otherLeader(func(txn *store.Txn) { txn.SetDeadline(0, []byte("lock"), 1<<40) })
			})
			return commit // behind the entry of the next leader
		})
		time.Sleep(20 * time.Second)
		n.expect("me nil", "GET lock", "GET other")
	})
}

// J15: a client renewed a lease that had ended, and was told OK.
func TestJ15RenewalOfWhatIsOver(t *testing.T) {
	renewals := map[string]string{"RENEW lock me 5000": "0", "PEXPIRE lock 5000": "0", "SET lock me XX PX 5000": "nil", "GETEX lock PX 5000": "nil"}
	for renewal, over := range renewals {
		check := func(name string, fn func(t *testing.T, n *testNode) string) {
			t.Run(name+", "+renewal, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					n := newTestNode(t, renewCommand, scriptCommand)
					n.lead()
					n.expect("OK", "SET lock me PX 1000")
					if got := fn(t, n); got != over {
						t.Errorf("told %q, want %q", got, over)
					}
					n.expect("OK", "SET lock you NX PX 1000")
				})
			})
		}
		check("it waited behind a slow log", func(t *testing.T, n *testNode) string {
			time.Sleep(500 * ms)
			n.log.decides(time.Second, once(commitSlowly))
			n.start("SET blocker x")
			synctest.Wait()
			return <-n.start(renewal)
		})
		check("it waited behind a slow script", func(t *testing.T, n *testNode) string {
			return n.together("SCRIPT 2", renewal)[1]
		})
		check("another leader has ended the lease meanwhile", func(t *testing.T, n *testNode) string {
			n.log.decides(0, once(supersedeLater))
			n.log.set(func(l *fakeLog) { l.barrier = unreachable })
			reply := n.start(renewal)
			synctest.Wait()
			n.log.set(func(l *fakeLog) {
				l.otherLeader(func(txn *store.Txn) { txn.Delete(0, []byte("lock")) })
				l.barrier = nil
			})
			return <-reply
		})
	}
}

// J17: a lock was granted whose lease had run out before the reply. Here the owner has it for the whole time from the reply.
func TestJ17GrantedForItsWholeTime(t *testing.T) {
	for name, grant := range map[string]func(p *pair) string{
		"a slow log": func(p *pair) string {
			p.log.decides(2*time.Second, once(commitSlowly))
			return p.doOn(p.b, "SET lock me NX PX 1000")
		},
		"a log that is slow to say so": func(p *pair) string {
			p.log.decides(900*ms, once(returnSlowly))
			return p.do("SET lock me NX PX 1000")
		},
		"the link broke, and the log was slow": func(p *pair) string {
			return p.keepLinked().brokenLink(commitSlowly, "SET lock me NX PX 1000")
		},
		"the link broke with the reply on its way": func(p *pair) string {
			return p.keepLinked().brokenLink(returnSlowly, "SET lock me NX PX 1000")
		},
		"no link for a while": func(p *pair) string { return p.noLink(900*ms, "SET lock me NX PX 1000") },
		"no link, and other writes meanwhile": func(p *pair) string {
			reply := p.startNoLink(900*ms, "SET lock me NX PX 1000")
			for range 8 {
				p.expect("OK", "SET other v")
				time.Sleep(100 * ms)
			}
			return <-reply
		},
		"the leader was lost": func(p *pair) string { return p.keepLinked().lostLeader(applyLater, "SET lock me NX PX 1000") },
		"the leader was lost with a lock and its renewal in one pipeline": func(p *pair) string {
			return p.keepLinked().lostLeader(applyLater, "SET lock me NX PX 1000", "PEXPIRE lock 1000")
		},
		"a leader's own client, answered when it leads no more": func(p *pair) string {
			p.leaderIsLost()
			reply := p.startMany(p.Node, "SET lock me NX PX 1000")
			return p.answeredByTheNext(reply)
		},
		"the same by an event loop": func(p *pair) string {
			p.leaderIsLost()
			reply := make(chan string, 1)
			s := &Submission{Calls: p.call("SET lock me NX PX 1000")}
			s.Done = func() { reply <- text(s.Replies) }
			p.SubmitAsync(s)
			p.Flush()
			return p.answeredByTheNext(reply)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				if got := grant(p); got != "OK" && got != "OK 1" {
					t.Fatalf("told %q", got)
				}
				time.Sleep(999 * ms)
				p.expect("me nil", "GET lock", "SET lock you NX")
				time.Sleep(2 * time.Second)
				p.expect("nil", "GET lock")
			})
		})
	}
}

// J17 again: a lease that is over before its owner can be told of it is not granted, whoever has the lock by then.
func TestJ17NotGrantedWhenOver(t *testing.T) {
	for _, next := range []string{"GET other", "SET lock you NX PX 60000"} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			reply := p.startNoLink(1900*ms, "SET lock me NX PX 1000")
			time.Sleep(1500 * ms)
			p.do(next)
			if got := <-reply; got != "-INDETERMINATE" {
				t.Errorf("%s: told %q", next, got)
			}
		})
	}
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.leaderIsLost()
		reply := p.startMany(p.Node, "SET lock me NX PX 1000")
		synctest.Wait()
		p.depose()
		p.log.set(func(l *fakeLog) {
			l.settle()
			l.otherLeader(func(txn *store.Txn) { txn.Delete(0, []byte("lock")) })
			l.barrier = nil
		})
		p.lead()
		if got := <-reply; got != "-INDETERMINATE" {
			t.Errorf("told %q", got)
		}
	})
}

// noLink submits commands on the second node, whose link breaks before the reply, and is gone for as long as away says.
func (p *pair) noLink(away time.Duration, lines ...string) string {
	return <-p.startNoLink(away, lines...)
}

func (p *pair) startNoLink(away time.Duration, lines ...string) <-chan string {
	p.t.Helper()
	p.log.decides(20*ms, once(commitSlowly))
	reply := p.startMany(p.b, lines...)
	time.Sleep(10 * ms)
	p.cut()
	time.Sleep(20 * ms)
	p.log.decides(0, nil)
	time.AfterFunc(away, func() { p.attach(net.Pipe()) })
	return reply
}

// leaderIsLost makes the leader lose its leadership while the next write is in flight.
func (p *pair) leaderIsLost() {
	p.log.decides(0, once(applyLater))
	p.log.set(func(l *fakeLog) { l.barrier = unreachable })
}

// answeredByTheNext deposes the leader while a committed batch is unanswered.
func (p *pair) answeredByTheNext(reply <-chan string) string {
	p.t.Helper()
	synctest.Wait()
	p.depose()
	time.Sleep(700 * ms)
	p.log.set(func(l *fakeLog) {
		l.stamp = p.clock.Now().Lease
		l.settle()
		l.otherLeader()
		l.barrier = nil
	})
	p.lead()
	return <-reply
}

// J19: a client took its own earlier lock for acquired just before that lock was deleted. Here the client has it for the new time.
func TestJ19OwnOldLock(t *testing.T) {
	for _, slow := range []time.Duration{0, 30 * ms, 400 * ms} {
		for at := 997 * ms; at <= 1004*ms; at += ms / 2 {
			for _, failover := range []bool{false, true} {
				t.Run(fmt.Sprintf("slow=%v/at=%v/failover=%v", slow, at, failover), func(t *testing.T) {
					bubble(t, func(t *testing.T) { enterAgain(t, slow, at, failover) })
				})
			}
		}
	}
}

func enterAgain(t *testing.T, slow, at time.Duration, failover bool) {
	n := newTestNode(t, enterCommand)
	n.lead()
	n.expect("free", "ENTER lock me 1000")
	time.Sleep(at)
	n.log.decides(slow, once(commitSlowly))
	if got := n.do("ENTER lock me 5000"); got != "own" && got != "free" {
		t.Fatalf("told %q", got)
	}
	entered := time.Now()
	if failover {
		n.depose()
		time.Sleep(10 * ms)
		n.lead()
	}
	for time.Since(entered) < 4900*ms {
		n.expect("held", "ENTER lock you 1000")
		time.Sleep(97 * ms)
	}
	time.Sleep(5 * time.Second)
	n.expect("free", "ENTER lock you 1000")
}

// The leases of a batch that is evaluated again count from the last evaluation.
func TestLeaseOfASpoiledBatch(t *testing.T) {
	large := store.Command{Name: "large", Arity: 1, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
		time.Sleep(time.Second)
		for i := range 9 {
			c.SetString(0, []byte{byte('a' + i)}, strings.Repeat("x", 1<<20), 0)
		}
		return store.OK
	}}
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, large)
		n.lead()
		got := text(n.SubmitPart(nil, n.call("SET lock me PX 1000", "LARGE"), nil))
		if !strings.HasPrefix(got, "OK -") {
			t.Fatalf("told %q, want OK and an error", got)
		}
		time.Sleep(999 * ms)
		n.expect("me", "GET lock")
		time.Sleep((1 + 2*latenessKept) * ms)
		n.expect("nil", "GET lock")
	})
}

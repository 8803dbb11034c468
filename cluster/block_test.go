package cluster

import (
	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"

	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// pair is a node that leads, and a second one that forwards to the first and
// applies its entries.
type pair struct {
	*testNode
	b *Node
}

func newPair(t *testing.T, commands ...store.Command) *pair {
	p := &pair{testNode: newTestNode(t, commands...)}
	cfg := Default()
	cfg.ID, cfg.Time, cfg.Logger, cfg.Table = "n2", clustertest.NewClock(), slog.New(slog.DiscardHandler), p.table
	p.b = nodeOf(cfg)
	p.log.set(func(l *fakeLog) { l.copies = []*Node{p.b} })
	t.Cleanup(func() {
		p.cut()
		p.b.cancel()
		p.b.work.Wait()
	})
	p.lead()
	p.connect()
	return p
}

// connect gives the second node a link to the first.
func (p *pair) connect() { p.connectBy(net.Pipe()) }

func (p *pair) connectBy(near, far net.Conn) {
	p.t.Helper()
	p.attach(near, far)
	synctest.Wait()
}

// attach is connectBy without waiting until the link is in use.
func (p *pair) attach(near, far net.Conn) {
	p.t.Helper()
	go p.serveForward(far)
	l, r, err := p.b.connectOver(near)
	if err != nil {
		p.t.Error(err)
		return
	}
	go func() {
		<-p.b.use(p.b.ctx, l, r)
		p.b.routes.drop(nil, l)
	}()
}

// cut breaks the link.
func (p *pair) cut() {
	if l := p.b.routes.get().link; l != nil {
		l.Fail()
	}
}

// block begins a blocking command on a node.
func (p *pair) block(node *Node, line string) (*Blocked, <-chan string) {
	p.t.Helper()
	done := make(chan string, 2)
	b := &Blocked{Call: p.call(line)[0], Done: func(r store.Reply) { done <- text([]store.Reply{r}) }}
	node.Block(b)
	node.Flush()
	return b, done
}

// wait begins a blocking command, and returns when the command waits.
func (p *pair) wait(node *Node, line string) (*Blocked, <-chan string) {
	p.t.Helper()
	b, done := p.block(node, line)
	synctest.Wait()
	return b, done
}

// got expects a reply that is there already.
func (p *pair) got(done <-chan string, want string) {
	p.t.Helper()
	synctest.Wait()
	select {
	case got := <-done:
		if got != want {
			p.t.Errorf("got %q, want %q", got, want)
		}
	default:
		p.t.Errorf("nothing yet, want %q", want)
	}
}

// silent expects that there is no reply yet.
func (p *pair) silent(done <-chan string) {
	p.t.Helper()
	synctest.Wait()
	select {
	case got := <-done:
		p.t.Errorf("got %q, want nothing yet", got)
	default:
	}
}

// The clients of all nodes are served in the order in which they came, and in the batch of the push.
func TestBlockedInOrderAcrossNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		var done []<-chan string
		for i := range 8 {
			node := p.Node
			if i%3 == 0 {
				node = p.b
			}
			_, reply := p.wait(node, "BLPOP l 0")
			done = append(done, reply)
		}
		before, _ := p.log.count()
		p.expect("10", "RPUSH l 0 1 2 3 4 5 6 7 8 9")
		if after, _ := p.log.count(); after != before+1 {
			t.Errorf("%d entries, want one", after-before)
		}
		for i, reply := range done {
			p.got(reply, fmt.Sprintf("[l %d]", i))
		}
		p.expect("[8 9]", "LRANGE l 0 -1")
	})
}

// After a push, the client that waits for the element is served before any other command runs, even one of the same pipeline.
func TestBlockedIsServedBetweenCommands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		_, a := p.wait(p.b, "BLMOVE l m LEFT LEFT 0")
		_, b := p.wait(p.Node, "BLPOP m 0")
		p.expect("1 nil nil", "RPUSH l x", "LPOP l", "LPOP m")
		p.got(a, "x")
		p.got(b, "[m x]")
	})
}

// deleteUser is ACL DELUSER without its checks.
var deleteUser = store.Command{Name: "deleteuser", Arity: 2, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
	c.DeleteUser(string(c.Args[1]))
	return store.OK
}}

// A deleted user's blocked clients get no element any more, even at a node that has not heard of the deletion.
func TestBlockedOfDeletedUser(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, makeUser, deleteUser)
		p.expect("OK OK", "MAKEUSER old", "MAKEUSER other")
		as := func(node *Node, user, line string) <-chan string {
			done := make(chan string, 2)
			b := &Blocked{Call: p.call(line)[0], Done: func(r store.Reply) { done <- text([]store.Reply{r}) }}
			b.Call.User = user
			node.Block(b)
			node.Flush()
			synctest.Wait()
			return done
		}
		p.log.set(func(l *fakeLog) { l.copies = nil }) // the second node stands still
		first := as(p.b, "old", "BLPOP l 0")
		second := as(p.b, "other", "BLPOP l 0")
		here := as(p.Node, "old", "BLPOP m 0")
		p.expect("OK 1", "DELETEUSER old", "RPUSH l a")
		p.got(first, "-NOPERM")
		p.got(second, "[l a]")
		p.got(here, "-NOPERM")
		p.expect("1 1", "RPUSH l b", "RPUSH m c")
		p.expect("[b] [c]", "LRANGE l 0 -1", "LRANGE m 0 -1")
		p.expect("OK", "MAKEUSER old")
		p.got(as(p.b, "old", "BLPOP l 0"), "[l b]")
		again := as(p.b, "old", "BLPOP l 0")
		p.silent(again)
		p.expect("OK OK 1", "DELETEUSER other", "MAKEUSER other", "RPUSH l d")
		p.got(again, "[l d]")
	})
}

// TestBlockedWhileTheNamelessUserGoes: the user whose name is empty is deleted. A client of the default user waits on. A client of
// the deleted user does not.
func TestBlockedWhileTheNamelessUserGoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, makeUser, deleteUser)
		nameless := func(line string) {
			c := p.call(line + " name")
			c[0].Args[1] = nil
			p.Submit(c, nil)
		}
		nameless("MAKEUSER")
		_, stays := p.wait(p.b, "BLPOP l 0")
		goes := make(chan string, 1)
		b := &Blocked{Call: p.call("BLPOP l 0")[0], Done: func(r store.Reply) { goes <- text([]store.Reply{r}) }}
		b.Call.User = store.CallName("")
		p.Node.Block(b)
		p.Node.Flush()
		synctest.Wait()
		nameless("DELETEUSER")
		p.expect("1", "RPUSH l a")
		p.got(goes, "-NOPERM")
		p.got(stays, "[l a]")
	})
}

// CLIENT UNBLOCK, a change of users or a shutdown may end a command before Block has registered it. The command then ends once.
func TestUnblockedBeforeItBegins(t *testing.T) {
	for _, heavy := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			line := "BLPOP queue 0"
			if heavy {
				line = "BLPOP " + strings.Repeat("k", 2*HeavyBytes) + " 0"
			}
			for _, others := range []int{0, 2} {
				var waiting []<-chan string
				for i := range others {
					_, done := p.wait(p.Node, fmt.Sprint("BLPOP other ", i+1))
					waiting = append(waiting, done)
				}
				replies, ended := make(chan string, 4), make(chan bool, 4)
				b := &Blocked{Call: p.call(line)[0], Done: func(r store.Reply) { replies <- text([]store.Reply{r}) }}
				for range 2 {
					p.Node.Unblock(b, store.Err("UNBLOCKED x"), func(did bool) { ended <- did })
				}
				p.Node.Block(b)
				p.Node.Flush()
				synctest.Wait()
				if len(replies) != 1 || len(ended) != 2 {
					t.Fatalf("%d replies, %d ends", len(replies), len(ended))
				}
				p.got(replies, "-UNBLOCKED")
				if first, second := <-ended, <-ended; first == second {
					t.Errorf("both CLIENT UNBLOCK are told %v", first)
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
				for _, done := range waiting {
					p.got(done, "")
				}
			}
		})
	}
}

func TestBlockedServedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.do("RPUSH l a b")
		_, a := p.wait(p.b, "BLPOP l 0")
		_, b := p.wait(p.Node, "BRPOP l 0.001")
		p.got(a, "[l a]")
		p.got(b, "[l b]")
		_, bad := p.wait(p.b, "BLPOP l -1")
		p.got(bad, "-ERR")
	})
}

// A blocking command ends at its timeout, on each node, and then takes no element.
func TestBlockedTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		for _, node := range []*Node{p.Node, p.b} {
			start := time.Now()
			_, done := p.wait(node, "BLPOP l 0.3")
			if got := <-done; got != "[]" && got != "" {
				t.Errorf("got %q", got)
			}
			if took := time.Since(start); took != 300*ms {
				t.Errorf("took %v", took)
			}
		}
		p.expect("1 a", "RPUSH l a", "LPOP l")
		if n := len(p.b.blockRegistry.timers) + len(p.blockRegistry.timers) + len(p.b.blockRegistry.all); n != 0 {
			t.Errorf("%d left behind", n)
		}
	})
}

// A client that has left, or was unblocked, takes no element.
func TestBlockedThatEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		for _, node := range []*Node{p.Node, p.b} {
			gone, none := p.wait(node, "BLPOP l 0")
			other, unblocked := p.wait(node, "BLPOP l 0")
			_, last := p.wait(node, "BLPOP l 0")
			node.Abandon(gone)
			ended := make(chan bool, 1)
			node.Unblock(other, store.Err("UNBLOCKED by a test"), func(ok bool) { ended <- ok })
			p.got(unblocked, "-UNBLOCKED")
			if !<-ended {
				t.Error("not ended")
			}
			p.expect("1", "RPUSH l x")
			p.got(last, "[l x]")
			p.silent(none)
			node.Unblock(other, store.Nil, func(ok bool) { ended <- ok })
			if <-ended {
				t.Error("ended twice")
			}
		}
		p.expect("0", "EXISTS l")
		if seq := p.routes.get().seq; seq.blockedClients.any() || len(seq.blockedClients.queues) > 0 {
			t.Error("somebody is still in the queues")
		}
	})
}

// A cancel that comes while the element is on its way to the log is too late: the client gets the element, and no second reply.
func TestBlockedServedOrCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		b, done := p.wait(p.b, "BLPOP l 1")
		p.log.decides(200*ms, always(commitSlowly))
		push := p.start("RPUSH l x")
		synctest.Wait()
		ended := make(chan bool, 1)
		p.b.Unblock(b, store.WaitTimedOut, func(ok bool) { ended <- ok })
		p.silent(done)
		time.Sleep(300 * ms)
		p.got(done, "[l x]")
		if <-ended {
			t.Error("told to have ended what was served")
		}
		if got := <-push; got != "1" {
			t.Errorf("push: %q", got)
		}
		time.Sleep(2 * time.Second)
		p.silent(done)
	})
}

// A command fails inside the server, so its batch is evaluated again. The blocked clients are then as before the batch.
func TestBlockedWhenBatchIsEvaluatedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, badCommands...)
		_, a := p.wait(p.Node, "BLPOP l 0")
		_, b := p.wait(p.b, "BLPOP l k 0")
		p.log.decides(100*ms, always(commitSlowly))
		first := p.start("SET s 1") // the next ones gather behind it
		synctest.Wait()
		push := p.start("RPUSH l x")
		_, c := p.wait(p.Node, "BLPOP l 0")
		bad := p.start("RPUSH k never", "PANIC")
		synctest.Wait()
		pop := p.start("LPOP k")
		for i, reply := range []<-chan string{first, push, bad, pop} {
			if got, want := <-reply, []string{"OK", "1", "-ERR -ERR", "nil"}[i]; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		p.got(a, "[l x]")
		p.silent(b)
		p.silent(c)
		p.expect("2", "RPUSH l y z")
		p.got(b, "[l y]")
		p.got(c, "[l z]")
	})
}

// A client is told that there was no element only when the batch in flight is committed, because a refused batch gives its
// element back.
func TestBlockedFindsNothingInABatchInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.expect("1", "RPUSH l x")
		proposals := 0
		p.log.decides(100*ms, func(raftfsm.Entry) verdict {
			switch proposals++; proposals {
			case 1:
				return commitSlowly // the next ones gather behind it
			case 2:
				time.Sleep(500 * ms)
				return overtake
			}
			return commit
		})
		first := p.start("SET s 1")
		synctest.Wait()
		pop := p.start("LPOP l")
		_, here := p.wait(p.Node, "BLPOP l 0.05")
		_, there := p.wait(p.b, "BLPOP l 0.05")
		if got := <-first; got != "OK" {
			t.Errorf("got %q", got)
		}
		time.Sleep(400 * ms)
		p.silent(here)
		p.silent(there)
		if got := <-pop; got != "x" {
			t.Errorf("got %q", got)
		}
		time.Sleep(200 * ms)
		p.got(here, "")
		p.got(there, "")
		if proposals < 3 {
			t.Errorf("%d proposals: nothing was evaluated again", proposals)
		}
	})
}

// A node that stops accepts no blocking command. It answers each such command once, even if the command is unblocked afterwards.
func TestBlockedWhileTheNodeStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		k := p.Node.blockRegistry
		k.mu.Lock()
		k.closed = true
		k.mu.Unlock()
		b, done := p.wait(p.Node, "BLPOP l 0")
		p.got(done, "-CLUSTERDOWN")
		p.Unblock(b, store.Nil, func(ok bool) {
			if ok {
				t.Error("ended twice")
			}
		})
		p.silent(done)
	})
}

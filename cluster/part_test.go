package cluster

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// A pipeline with large replies or writes runs in parts. A part that is sent again gets the replies of the first time.
func TestPartOfAPipeline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		n.lead()
		value := strings.Repeat("x", 700_000)
		n.expect("OK", "SET big "+value)
		reads := []string{"GET big", "GET big", "GET big", "INCR c"}
		if got := n.SubmitPart(nil, n.call(reads...), nil); len(got) != 2 {
			t.Errorf("%d of 4 calls were run, want those up to a megabyte of replies", len(got))
		}
		n.expect(value+" "+value+" "+value+" 1", reads...)
		writes := []string{"SET a " + value, "INCR d", "SET b " + value, "INCR d", "SET c " + value}
		if got := n.SubmitPart(nil, n.call(writes...), nil); len(got) != 3 {
			t.Errorf("%d of 5 calls were run, want those up to a megabyte of writes", len(got))
		}
		l := n.carried(b.Node)
		for _, again := range []bool{false, true} {
			if got := n.carry(l, forward.Ticket{ID: 1, Low: 1, Again: again}, writes...); got != "OK 2 OK" {
				t.Errorf("by a link: %q", got)
			}
		}
		n.expect("2", "GET d")
		b.cfg.speaks.Minor = 0 // version 0.1.0, which would send the whole pipeline again
		if got := n.carry(n.carried(b.Node), forward.Ticket{ID: 2, Low: 1}, writes...); got != "OK 3 OK 4 OK" {
			t.Errorf("by a link of an older member: %q", got)
		}
	})
}

// At the memory limit the leader refuses commands that would add data. Releases and renewals
// go on, alone, in pipelines and in transactions.
func TestOutOfMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, badCommands...)
		n.cfg.Limits = store.Limits{Memory: 4 << 20}
		n.fsm.Limit(n.cfg.Limits)
		n.lead()
		n.expect("OK", "SET lock me PX 100000")
		n.expect("OK OK OK -OOM 1 -OOM", "SET a "+strings.Repeat("x", 1<<20), "SET b "+strings.Repeat("x", 1<<20),
			"SET c "+strings.Repeat("x", 1<<20), "SET d 1", "PEXPIRE lock 200000", "SET lock2 me NX PX 100")
		n.expectTxn("-EXECABORT", nil, "DEL lock", "SET lock you")
		n.expectTxn("[me 1]", nil, "GET lock", "DEL lock")
		if !n.OutOfMemory() {
			t.Error("the node does not know")
		}
		n.expect("1 OK", "DEL a", "SET lock you")
	})
}

// A reply that is too large is not built, and its command or transaction has no effect.
func TestReplyTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.cfg.Limits = store.Limits{Reply: 1 << 20}
		n.lead()
		n.expect("OK OK", "SET a "+strings.Repeat("x", 600_000), "SET b "+strings.Repeat("x", 600_000))
		n.expect("-ERR 600000", "MGET a a", "STRLEN a")
		n.expectTxn("-EXECABORT", nil, "GET a", "GETDEL b", "GET a")
		n.expect("600000", "STRLEN b")
	})
}

// While much output waits for a peer, the leader puts off large replies to reads of that peer, and does not store them.
func TestLargeRepliesWaitForThePeer(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	p := &peerConn{n: newTestNode(t).Node, out: forward.NewOutbox(near)}
	large := strings.Repeat("x", 1<<20)
	get, set := store.Command{Name: "get", Flags: store.ReadOnly}, store.Command{Name: "getset", Flags: store.Write}
	answer := func(cmd *store.Command, reply string) (grown int) {
		before := p.out.Size()
		p.answer(1)(&request{calls: []Call{{Cmd: cmd}}, replies: []store.Reply{store.Str(reply)}, extent: len(reply), wrote: cmd == &set})
		return p.out.Size() - before
	}
	for p.out.Size() <= forward.MaxPeerOutput {
		if answer(&get, large) < len(large) {
			t.Fatal("a reply is put off although little waits")
		}
	}
	read := &request{replies: []store.Reply{store.Str(large)}, extent: len(large)}
	if b := read.appendResult(nil); cap(b) > len(b)+len(b)/4 {
		t.Errorf("%d bytes wait in %d", len(b), cap(b))
	}
	if n := answer(&get, large); n > 100 {
		t.Errorf("a large reply to a read was stored: %d bytes", n)
	}
	if n := answer(&get, "small"); n < 10 {
		t.Errorf("a small one was put off")
	}
	if n := answer(&set, large); n < len(large) {
		t.Errorf("the reply to a write was put off: it has been executed")
	}
}

// The leader refuses a pipeline of version 0.1.0 that writes too much for one entry: it may not answer in parts.
func TestPipelineOfAnOlderMemberWritesTooMuch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t, badCommands...), newTestNode(t, badCommands...)
		n.lead()
		b.cfg.speaks.Minor = 0 // version 0.1.0
		if got := n.carry(n.carried(b.Node), forward.Ticket{ID: 1, Low: 1}, "SET a 1", "FILL b 9", "FILL c 9", "SET d 1"); got != "-ERR -ERR -ERR -ERR" {
			t.Errorf("%q", got)
		}
		n.expect("nil nil", "GET a", "GET d")
	})
}

// TestPipelineWhileAMemberIsDown: the leader runs pipelines of other nodes in parts, even while a member is down that it has
// never heard from.
func TestPipelineWhileAMemberIsDown(t *testing.T) {
	for _, down := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			p := newPair(t, scriptCommand, makeUser)
			if down {
				p.peers.Update() // finds n2 in the configuration, but has never heard from n2
			}
			p.expect("OK", "MAKEUSER hog")
			lines := make([]string, 60)
			for i := range lines {
				lines[i] = "SCRIPT 100ms"
			}
			calls := p.call(lines...)
			for i := range calls {
				calls[i].User = "hog"
			}
			done := make(chan struct{})
			go func() {
				p.b.Submit(calls, nil)
				close(done)
			}()
			time.Sleep(10 * ms)
			begin := time.Now()
			p.expect("OK", "SET lock me NX PX 1000")
			took := time.Since(begin)
			t.Logf("a member is down: %v: a lock takes %v", down, took)
			if took > 250*ms {
				t.Errorf("a member is down: %v: a lock takes %v beside one pipeline", down, took)
			}
			<-done
		})
	}
}

package cluster

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// carried returns a link from the peer b to n. n has accepted the link.
func (n *testNode) carried(b *Node) *forward.Link {
	n.t.Helper()
	near, far := net.Pipe()
	go n.serveForward(far)
	l, r, err := b.connectOver(near)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(l.Fail)
	go b.use(b.ctx, l, r)
	synctest.Wait()
	if l.Token == 0 {
		n.t.Fatal("the link was not accepted")
	}
	return l
}

// carry sends a numbered write by a link and returns the outcome.
func (n *testNode) carry(l *forward.Link, from forward.Ticket, lines ...string) string {
	n.t.Helper()
	done := make(chan string, 1)
	l.Call(forward.Submit, func(buf []byte) []byte {
		return forward.AppendSubmit(buf, from, l.Token, n.call(lines...), forward.Minor)
	},
		func(body []byte, err error) {
			var replies []store.Reply
			if err == nil {
				replies, err = forward.ReadResult(body, nil)
			}
			if err != nil {
				done <- err.Error()
				return
			}
			done <- text(replies)
		})
	return <-done
}

// A write that is sent again gets its first reply. A write by an earlier link is not executed.
func TestOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		n.lead()
		expect := func(l *forward.Link, from forward.Ticket, want string, lines ...string) {
			t.Helper()
			if got := n.carry(l, from, lines...); got != want {
				t.Errorf("%v %v: got %q, want %q", from, lines, got, want)
			}
		}
		old := n.carried(b.Node)
		expect(old, forward.Ticket{ID: 1, Low: 1}, "1 OK", "INCR c", "SET k v")
		expect(old, forward.Ticket{ID: 1, Low: 1, Again: true}, "1 OK", "INCR c", "SET k v")
		expect(old, forward.Ticket{ID: 2, Low: 2}, "2", "INCR c")
		now := n.carried(b.Node)
		expect(old, forward.Ticket{ID: 3, Low: 3}, forward.ErrStale.Error(), "INCR c")
		expect(old, forward.Ticket{ID: 2, Low: 2, Again: true}, forward.ErrStale.Error(), "INCR c")
		expect(now, forward.Ticket{ID: 2, Low: 2, Again: true}, "2", "INCR c")
		expect(now, forward.Ticket{ID: 3, Low: 3, Again: true}, "3", "INCR c")
		// A command that wrote nothing may run again.
		expect(now, forward.Ticket{ID: 4, Low: 4}, "nil", "SET k w NX")
		n.expect("1", "DEL k")
		expect(now, forward.Ticket{ID: 4, Low: 4, Again: true}, "OK", "SET k w NX")
		// Large replies are not kept.
		big := strings.Repeat("x", maxRecorded)
		expect(now, forward.Ticket{ID: 5, Low: 5}, "OK", "SET big "+big)
		expect(now, forward.Ticket{ID: 6, Low: 6}, big, "GETDEL big")
		expect(now, forward.Ticket{ID: 6, Low: 6, Again: true}, "-INDETERMINATE", "GETDEL big")
		// Another term: the link has to be accepted anew, and the answers stay.
		n.depose()
		synctest.Wait()
		n.lead()
		expect(now, forward.Ticket{ID: 7, Low: 5}, forward.ErrStale.Error(), "INCR c")
		expect(n.carried(b.Node), forward.Ticket{ID: 7, Low: 5, Again: true}, "4", "INCR c")
		expect(n.carried(b.Node), forward.Ticket{ID: 7, Low: 5, Again: true}, "4", "INCR c")
		n.expect("4", "GET c")
	})
}

// Large kept replies take bounded memory. Small ones, such as those to locks, are kept beyond that bound.
func TestKeptRepliesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		n.lead()
		l := n.carried(b.Node)
		big := strings.Repeat("x", 200<<10)
		n.expect("OK", "SET big "+big)
		for id := range uint64(60) { // by Low, the sender still waits for all replies
			if got := n.carry(l, forward.Ticket{ID: id + 1, Low: 1}, "SET big "+big+" GET"); got != big {
				t.Fatalf("%d: got %.30q", id, got)
			}
		}
		if got := n.Status().KeptReplies; got > maxKept+maxRecorded || got < maxKept {
			t.Errorf("%d bytes of replies are kept", got)
		}
		for _, c := range []struct {
			from       forward.Ticket
			want, line string
		}{
			{forward.Ticket{ID: 1, Low: 1, Again: true}, big, "SET big x GET"},
			{forward.Ticket{ID: 60, Low: 1, Again: true}, "-INDETERMINATE", "SET big x GET"},
			{forward.Ticket{ID: 61, Low: 1}, "OK", "SET lock me NX"},
			{forward.Ticket{ID: 61, Low: 1, Again: true}, "OK", "SET lock me NX"},
			{forward.Ticket{ID: 62, Low: 62}, "1", "DEL lock"}, // by Low, nobody waits for the replies to the earlier writes any more
			{forward.Ticket{ID: 63, Low: 62}, big, "GETDEL big"},
			{forward.Ticket{ID: 63, Low: 62, Again: true}, big, "GETDEL big"},
		} {
			if got := n.carry(l, c.from, c.line); got != c.want {
				t.Errorf("%v %s: got %.30q, want %.30q", c.from, c.line, got, c.want)
			}
		}
	})
}

// TestRequestThatWaitsKeepsNoOthers: while one request of a link waits for long, the kept replies to later ones are bounded.
func TestRequestThatWaitsKeepsNoOthers(t *testing.T) {
	clustertest.Slow(t)
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		n.lead()
		l := n.carried(b.Node)
		value := strings.Repeat("x", smallRecord-50)
		n.expect("OK", "SET k "+value)
		last := uint64(1)
		for range raftfsm.MaxOrigin / smallRecord * 5 / 4 {
			last++
			if got := n.carry(l, forward.Ticket{ID: last, Low: 1}, "SET k "+value+" GET"); got != value {
				t.Fatalf("%d: got %.30q", last, got)
			}
		}
		if got := n.Status().KeptReplies; got > raftfsm.MaxOrigin {
			t.Errorf("%d bytes of replies are kept", got)
		}
		for _, c := range []struct {
			from       forward.Ticket
			want, line string
		}{
			{forward.Ticket{ID: last, Low: 1, Again: true}, value, "SET k x GET"},
			{forward.Ticket{ID: 1, Low: 1, Again: true}, "-INDETERMINATE", "SET lock me NX"},
			{forward.Ticket{ID: 1, Low: 1}, "OK", "SET lock me NX"}, // its turn has come
			{forward.Ticket{ID: 1, Low: 1, Again: true}, "-INDETERMINATE", "SET lock me NX"},
		} {
			if got := n.carry(l, c.from, c.line); got != c.want {
				t.Errorf("%v %s: got %.30q, want %.30q", c.from, c.line, got, c.want)
			}
		}
	})
}

package cluster

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"lockstep/raftfsm"
	"lockstep/store"
)

// carried is a link of a peer to n, which has accepted it.
func (n *testNode) carried(b *Node) *link {
	n.t.Helper()
	near, far := net.Pipe()
	go n.serveForward(far)
	l, r, err := b.greet(near)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(l.fail)
	go b.use(b.ctx, l, r)
	synctest.Wait()
	if l.token == 0 {
		n.t.Fatal("the link was not accepted")
	}
	return l
}

// carry sends a numbered write by a link and returns the outcome.
func (n *testNode) carry(l *link, from ticket, lines ...string) string {
	n.t.Helper()
	done := make(chan string, 1)
	l.call(frameSubmit, func(buf []byte) []byte { return appendSubmit(buf, from, l.token, n.call(lines...), wireMinor) },
		func(body []byte, err error) {
			var replies []store.Reply
			if err == nil {
				replies, err = readResult(body, nil)
			}
			if err != nil {
				done <- err.Error()
				return
			}
			done <- text(replies)
		})
	return <-done
}

// A write that was sent again is answered as the first time; one of an earlier
// link, or an earlier term, is not executed.
func TestOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		n.lead()
		expect := func(l *link, from ticket, want string, lines ...string) {
			t.Helper()
			if got := n.carry(l, from, lines...); got != want {
				t.Errorf("%v %v: got %q, want %q", from, lines, got, want)
			}
		}
		old := n.carried(b.Node)
		expect(old, ticket{id: 1, low: 1}, "1 OK", "INCR c", "SET k v")
		expect(old, ticket{id: 1, low: 1, again: true}, "1 OK", "INCR c", "SET k v")
		expect(old, ticket{id: 2, low: 2}, "2", "INCR c")
		now := n.carried(b.Node)
		expect(old, ticket{id: 3, low: 3}, errStale.Error(), "INCR c")
		expect(old, ticket{id: 2, low: 2, again: true}, errStale.Error(), "INCR c")
		expect(now, ticket{id: 2, low: 2, again: true}, "2", "INCR c")
		expect(now, ticket{id: 3, low: 3, again: true}, "3", "INCR c")
		// What wrote nothing may be run again.
		expect(now, ticket{id: 4, low: 4}, "nil", "SET k w NX")
		n.expect("1", "DEL k")
		expect(now, ticket{id: 4, low: 4, again: true}, "OK", "SET k w NX")
		// Large replies are not kept.
		big := strings.Repeat("x", maxRecorded)
		expect(now, ticket{id: 5, low: 5}, "OK", "SET big "+big)
		expect(now, ticket{id: 6, low: 6}, big, "GETDEL big")
		expect(now, ticket{id: 6, low: 6, again: true}, "-INDETERMINATE", "GETDEL big")
		// Another term: the link has to be accepted anew, and the answers stay.
		n.depose()
		synctest.Wait()
		n.lead()
		expect(now, ticket{id: 7, low: 5}, errStale.Error(), "INCR c")
		expect(n.carried(b.Node), ticket{id: 7, low: 5, again: true}, "4", "INCR c")
		expect(n.carried(b.Node), ticket{id: 7, low: 5, again: true}, "4", "INCR c")
		n.expect("4", "GET c")
	})
}

func TestTickets(t *testing.T) {
	var k tickets
	for want := uint64(1); want < 6; want++ {
		if id := k.begin(); id != want {
			t.Fatalf("ticket %d, want %d", id, want)
		}
	}
	for _, step := range []struct{ end, low uint64 }{{2, 1}, {3, 1}, {1, 4}, {5, 4}, {4, 6}} {
		if k.end(step.end); k.lowest() != step.low {
			t.Errorf("after %d: lowest %d, want %d", step.end, k.lowest(), step.low)
		}
	}
	if len(k.over) > 0 {
		t.Errorf("kept %v", k.over)
	}
}

// Every node keeps the replies to what may be sent again. However many large ones are on
// their way at once, they are bounded; small ones, such as those to locks, are always kept.
func TestKeptRepliesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		n.lead()
		l := n.carried(b.Node)
		size := func() (bytes int) {
			n.fsm.ViewAnswers(func(_ *store.Store, _ uint64, done *raftfsm.Answers) { bytes = done.Size() })
			return bytes
		}
		big := strings.Repeat("x", 200<<10)
		n.expect("OK", "SET big "+big)
		for id := range uint64(60) { // all are sent before the first is answered
			if got := n.carry(l, ticket{id: id + 1, low: 1}, "SET big "+big+" GET"); got != big {
				t.Fatalf("%d: got %.30q", id, got)
			}
		}
		if got := size(); got > maxKept+maxRecorded || got < maxKept {
			t.Errorf("%d bytes of replies are kept", got)
		}
		for _, c := range []struct {
			from       ticket
			want, line string
		}{
			{ticket{id: 1, low: 1, again: true}, big, "SET big x GET"},
			{ticket{id: 60, low: 1, again: true}, "-INDETERMINATE", "SET big x GET"},
			{ticket{id: 61, low: 1}, "OK", "SET lock me NX"},
			{ticket{id: 61, low: 1, again: true}, "OK", "SET lock me NX"},
			{ticket{id: 62, low: 62}, "1", "DEL lock"}, // from here on nobody waits for the others
			{ticket{id: 63, low: 62}, big, "GETDEL big"},
			{ticket{id: 63, low: 62, again: true}, big, "GETDEL big"},
		} {
			if got := n.carry(l, c.from, c.line); got != c.want {
				t.Errorf("%v %s: got %.30q, want %.30q", c.from, c.line, got, c.want)
			}
		}
	})
}

package cluster

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
)

// A request whose script has run for long when the link to its leader ends does not reach the next leader. Others are sent again.
func TestRequestThatEndsItsLeader(t *testing.T) {
	const died, lost, told = 'd', 'l', 'w'
	for _, c := range []struct{ leaders, want string }{
		{"d", "1"}, {"l", "1"}, {"ldld", "1"},
		{"wd", "-INDETERMINATE"}, {"wl", "-INDETERMINATE"}, {"dwd", "-INDETERMINATE"},
	} {
		t.Run(c.leaders, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				var reply <-chan string
				for i := 0; i < len(c.leaders); i++ {
					near, far := net.Pipe()
					l := forward.NewLink(near, forward.Handshake{ID: "peer"})
					go l.Out.Run()
					go func() {
						l.Read(bufio.NewReader(near))
						n.routes.drop(nil, l)
					}()
					n.routes.set(n.ctx, nil, l)
					if reply == nil {
						reply = n.start("INCR counter")
					}
					r := bufio.NewReader(far)
					f, err := readCall(r)
					if err != nil {
						t.Fatal(err)
					}
					go func() { _, _ = io.Copy(io.Discard, r) }()
					if c.leaders[i] == told {
						if _, err := far.Write(oneFrame(forward.Waits, f.ID, nil)); err != nil {
							t.Fatal(err)
						}
						synctest.Wait()
						i++
					}
					if c.leaders[i] == died {
						_ = far.Close()
					} else {
						l.Fail()
					}
					synctest.Wait()
				}
				n.lead()
				if got := <-reply; got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				n.expect(strings.Trim(strings.Replace(c.want, "-INDETERMINATE", "0", 1), " "), "EXISTS counter")
			})
		})
	}
}

// When a script has run for long, the leader tells the node of the script's request, and not the nodes of other requests.
func TestNodeIsToldOfALongScript(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t, scriptCommand), newTestNode(t)
		n.lead()
		l := n.carried(b.Node)
		var pending []<-chan string
		start := time.Now()
		send := func(name string, calls []Call) {
			told, done := time.Duration(0), make(chan string, 1)
			pending = append(pending, done)
			l.Start(forward.Submit, func(buf []byte) []byte {
				return forward.AppendSubmit(buf, forward.Ticket{ID: uint64(len(pending)), Low: 1}, l.Token, calls, forward.Minor)
			}, &forward.Forwarded{
				Waits: func(uint64) { told = time.Since(start) },
				Done: func([]byte, error) {
					if told == 0 {
						done <- name
						return
					}
					done <- name + " " + told.String()
				},
			})
		}
		send("before", n.call("INCR counter"))
		send("short", n.call("SCRIPT 90ms"))
		synctest.Wait()
		send("behind", n.call("INCR counter"))
		send("long", n.call("SCRIPT 1"))
		send("transaction", n.txn(nil, "SCRIPT 60ms", "INCR counter", "SCRIPT 60ms"))
		var got []string
		for _, p := range pending {
			got = append(got, <-p)
		}
		// The leader stopped the long script after 100 ms, because requests before it waited.
		want := "before, short, behind, long 310ms, transaction 290ms"
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("got  %s\nwant %s", s, want)
		}
	})
}

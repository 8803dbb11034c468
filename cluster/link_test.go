package cluster

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/store"
)

// A result that cannot be read, or has no reply or too many, proves nothing, so its request must not be sent again.
func TestMalformedResultIsUnknown(t *testing.T) {
	for name, result := range map[string][]byte{
		"empty":           {},
		"garbage":         {forward.Done, 200},
		"no reply":        forward.AppendReplies(nil, nil),
		"one too many":    forward.AppendReplies(nil, []store.Reply{store.OK, store.OK, store.OK}),
		"a strange state": {77},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				l, far := testLink()
				defer l.Fail()
				n.routes.set(n.ctx, nil, l)
				reply := n.start("INCR counter", "INCR counter")
				r := bufio.NewReader(far)
				f, err := readCall(r)
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					if f, err := readCall(r); err == nil {
						t.Errorf("sent again: %q", f.Body)
					}
				}()
				if _, err := far.Write(oneFrame(forward.Result, f.ID, result)); err != nil {
					t.Fatal(err)
				}
				if got := <-reply; got != "-INDETERMINATE -INDETERMINATE" {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}

// When the leader that has a request falls silent and is replaced, the next one
// is asked at once.
func TestSilentLeaderIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		l, far := testLink()
		defer l.Fail()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		n.routes.set(n.ctx, nil, l)
		start := time.Now()
		read, write := n.start("EXISTS other"), n.start("INCR counter")
		time.Sleep(time.Second)
		n.lead()
		if got := <-read; got != "0" || time.Since(start) > time.Second {
			t.Errorf("read: %q after %v", got, time.Since(start))
		}
		if got := <-write; got != "1" || time.Since(start) > time.Second {
			t.Errorf("write: %q after %v", got, time.Since(start))
		}
	})
}

// A node waits for the leader's result for as long as the link to the leader lasts, also for longer than FailoverWait.
func TestSlowLeaderIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		l, far := testLink()
		defer l.Fail()
		n.routes.set(n.ctx, nil, l)
		reply := n.start("INCR counter")
		f, err := readCall(bufio.NewReader(far))
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, far) }() // the link says once a while that its node lives
		time.Sleep(10 * n.cfg.FailoverWait)
		if _, err := far.Write(oneFrame(forward.Result, f.ID, forward.AppendReplies(nil, []store.Reply{store.Int(7)}))); err != nil {
			t.Fatal(err)
		}
		if got := <-reply; got != "7" {
			t.Errorf("got %q", got)
		}
	})
}

// A link to a leader that has been replaced must not become the route.
func TestStaleRouteIsNotSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		l, far := testLink()
		defer far.Close()
		defer l.Fail()
		ended, cancel := context.WithCancel(n.ctx)
		cancel()
		n.routes.set(ended, nil, l)
		n.routes.drop(nil, l)
		n.expect("1", "INCR counter")
	})
}

// testLink returns a link and the far end of its connection.
func testLink() (*forward.Link, net.Conn) {
	near, far := net.Pipe()
	l := forward.NewLink(near, forward.Handshake{ID: "peer"})
	go l.Out.Run()
	go l.Read(bufio.NewReader(near))
	return l, far
}

// readCall reads the next frame but those that only say that the other node lives.
func readCall(r *bufio.Reader) (frame.Frame, error) {
	for {
		f, err := frame.Read(r)
		if err != nil || f.Kind != forward.Alive {
			return f, err
		}
	}
}

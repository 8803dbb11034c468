package cluster

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/cluster/internal/frame"
	"lockstep/store"
)

// testLink returns a link and the far end of its connection.
func testLink() (*link, net.Conn) {
	near, far := net.Pipe()
	l := newLink(near, greeting{id: "peer"})
	go l.out.run()
	go l.read(bufio.NewReader(near))
	return l, far
}

// answers collects what calls come to.
type answers struct {
	mu   sync.Mutex
	list []string
}

func (a *answers) done(name string) func([]byte, error) {
	return func(body []byte, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		switch err {
		case nil:
			name += "=" + string(body)
		case errNotExecuted:
			name += " not executed"
		case errUnknown:
			name += " unknown"
		default:
			name += " " + err.Error()
		}
		a.list = append(a.list, name)
	}
}

func (a *answers) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.list, ", ")
}

func body(s string) func([]byte) []byte {
	return func(b []byte) []byte { return append(b, s...) }
}

func expectAnswers(t *testing.T, a *answers, want string) {
	t.Helper()
	synctest.Wait()
	if got := a.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Results may come in any order; each goes to its own call, once.
func TestLinkMatchesResultsToCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, far := testLink()
		defer l.fail()
		var a answers
		for _, name := range []string{"a", "b", "c"} {
			l.call(frameSubmit, body(name), a.done(name))
		}
		r := bufio.NewReader(far)
		var got []frame.Frame
		for range 3 {
			f, err := frame.Read(r)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, f)
		}
		for _, i := range []int{2, 0, 0, 1} { // one of them twice
			if _, err := far.Write(oneFrame(frameResult, got[i].ID, append([]byte("for "), got[i].Body...))); err != nil {
				t.Fatal(err)
			}
		}
		expectAnswers(t, &a, "c=for c, a=for a, b=for b")
	})
}

func TestLinkFailureAnswersEveryCall(t *testing.T) {
	for name, fail := range map[string]func(l *link, far net.Conn){
		"the peer closes":          func(_ *link, far net.Conn) { far.Close() },
		"this side closes":         func(l *link, _ net.Conn) { l.fail() },
		"the peer sends a request": func(_ *link, far net.Conn) { far.Write(oneFrame(frameSubmit, 1, nil)) },
		"the peer sends nonsense":  func(_ *link, far net.Conn) { far.Write([]byte{0, 0, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l, far := testLink()
				go func() { _, _ = io.Copy(io.Discard, far) }()
				defer far.Close()
				var a answers
				l.call(frameSubmit, body("x"), a.done("first"))
				synctest.Wait()
				fail(l, far)
				expectAnswers(t, &a, "first unknown")
				giveUp := l.call(frameSubmit, body("x"), a.done("second"))
				giveUp()
				expectAnswers(t, &a, "first unknown, second not executed")
			})
		})
	}
}

// A call whose frame could not even be queued was certainly not executed.
func TestCallThatWasNotSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, far := testLink()
		defer far.Close()
		var a answers
		l.call(frameSubmit, body("x"), a.done("first"))
		l.out.close() // writing failed; the reader has not noticed yet
		l.call(frameSubmit, body("x"), a.done("second"))
		synctest.Wait()
		if got := a.String(); got != "second not executed, first unknown" && got != "first unknown, second not executed" {
			t.Error(got)
		}
	})
}

func TestGiveUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, far := testLink()
		defer l.fail()
		var a answers
		giveUp := l.call(frameSubmit, body("x"), a.done("x"))
		f, err := frame.Read(bufio.NewReader(far))
		if err != nil {
			t.Fatal(err)
		}
		giveUp()
		giveUp()
		expectAnswers(t, &a, "x unknown")
		if _, err := far.Write(oneFrame(frameResult, f.ID, nil)); err != nil {
			t.Fatal(err)
		}
		expectAnswers(t, &a, "x unknown")
	})
}

// A retired link takes nothing new and ends with the last result, so that the
// peer sees that nobody waits for it any more.
func TestRetiredLinkEndsWithTheLastResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, far := testLink()
		var a answers
		l.call(frameSubmit, body("x"), a.done("old"))
		r := bufio.NewReader(far)
		f, err := frame.Read(r)
		if err != nil {
			t.Fatal(err)
		}
		l.retire()
		l.call(frameSubmit, body("x"), a.done("new"))
		expectAnswers(t, &a, "new not executed")
		if _, err := far.Write(oneFrame(frameResult, f.ID, []byte("done"))); err != nil {
			t.Fatal(err)
		}
		expectAnswers(t, &a, "new not executed, old=done")
		if _, err := frame.Read(r); err != io.EOF {
			t.Errorf("the link is still open: %v", err)
		}
		idle, far := testLink()
		idle.retire()
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a link without calls is still open: %v", err)
		}
	})
}

// Sending never waits for the peer. One that does not read for a while loses
// the link, and so does one that has too much waiting.
func TestSlowPeer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, far := testLink()
		defer far.Close()
		var a answers
		start := time.Now()
		for range 1000 {
			l.call(frameSubmit, body(strings.Repeat("x", 1000)), func([]byte, error) {})
		}
		l.call(frameSubmit, body("x"), a.done("last"))
		if took := time.Since(start); took > 0 {
			t.Errorf("sending took %v", took)
		}
		time.Sleep(peerWriteTimeout - ms)
		expectAnswers(t, &a, "")
		time.Sleep(2 * ms)
		expectAnswers(t, &a, "last unknown")
	})
	bubble(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		o := newOutbox(near)
		o.buf = make([]byte, maxOutbox+1)
		if err := o.send(frameResult, 1, body("x")); !errors.Is(err, errSlowPeer) {
			t.Errorf("send: %v", err)
		}
		if _, err := near.Write([]byte("x")); err == nil {
			t.Error("the connection is still open")
		}
	})
}

// Frames arrive whole and in order, however many goroutines send.
func TestOutboxKeepsFramesWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, far := testLink()
		defer l.fail()
		const senders, each = 8, 200
		for i := range senders {
			go func() {
				for j := range each {
					_ = l.out.send(frameResult, uint64(i*each+j), body(strings.Repeat("y", i*300+j)))
				}
			}()
		}
		r, next := bufio.NewReader(far), map[int]int{}
		for range senders * each {
			f, err := frame.Read(r)
			if err != nil {
				t.Fatal(err)
			}
			i, j := int(f.ID)/each, int(f.ID)%each
			if next[i] != j || len(f.Body) != i*300+j {
				t.Fatalf("sender %d: frame %d of %d bytes, want %d", i, j, len(f.Body), next[i])
			}
			next[i]++
		}
	})
}

// A result that cannot be read, or that has no reply or more replies than the
// request has commands, says nothing about what happened: the request must not
// be sent again. (Fewer replies answer the first commands: SubmitPart.)
func TestMalformedResultIsUnknown(t *testing.T) {
	for name, result := range map[string][]byte{
		"empty":           {},
		"garbage":         {statusDone, 200},
		"no reply":        appendReplies(nil, nil),
		"one too many":    appendReplies(nil, []store.Reply{store.OK, store.OK, store.OK}),
		"a strange state": {77},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				l, far := testLink()
				defer l.fail()
				n.routes.set(n.ctx, nil, l)
				reply := n.start("INCR counter", "INCR counter")
				r := bufio.NewReader(far)
				f, err := frame.Read(r)
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					if f, err := frame.Read(r); err == nil {
						t.Errorf("sent again: %q", f.Body)
					}
				}()
				if _, err := far.Write(oneFrame(frameResult, f.ID, result)); err != nil {
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
		defer l.fail()
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

// A leader that lives may take its time.
func TestSlowLeaderIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		l, far := testLink()
		defer l.fail()
		n.routes.set(n.ctx, nil, l)
		reply := n.start("INCR counter")
		f, err := frame.Read(bufio.NewReader(far))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * n.cfg.FailoverWait)
		if _, err := far.Write(oneFrame(frameResult, f.ID, appendReplies(nil, []store.Reply{store.Int(7)}))); err != nil {
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
		defer l.fail()
		ended, cancel := context.WithCancel(n.ctx)
		cancel()
		n.routes.set(ended, nil, l)
		n.routes.drop(nil, l)
		n.expect("1", "INCR counter")
	})
}

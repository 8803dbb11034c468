package forward

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// testLink returns a Link and the far end of its connection.
func testLink() (*Link, net.Conn) {
	near, far := net.Pipe()
	l := NewLink(near, Handshake{ID: "peer"})
	go l.Out.Run()
	go l.Read(bufio.NewReader(near))
	return l, far
}

// answers collects the results of calls.
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
		case raftnode.ErrNotExecuted:
			name += " not executed"
		case raftnode.ErrUnknown:
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
		defer l.Fail()
		var a answers
		for _, name := range []string{"a", "b", "c"} {
			l.Call(Submit, body(name), a.done(name))
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
			if _, err := far.Write(oneFrame(Result, got[i].ID, append([]byte("for "), got[i].Body...))); err != nil {
				t.Fatal(err)
			}
		}
		expectAnswers(t, &a, "c=for c, a=for a, b=for b")
	})
}

func TestLinkFailureAnswersEveryCall(t *testing.T) {
	for name, fail := range map[string]func(l *Link, far net.Conn){
		"the peer closes":          func(_ *Link, far net.Conn) { far.Close() },
		"this side closes":         func(l *Link, _ net.Conn) { l.Fail() },
		"the peer sends a request": func(_ *Link, far net.Conn) { far.Write(oneFrame(Submit, 1, nil)) },
		"the peer sends nonsense":  func(_ *Link, far net.Conn) { far.Write([]byte{0, 0, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l, far := testLink()
				go func() { _, _ = io.Copy(io.Discard, far) }()
				defer far.Close()
				var a answers
				l.Call(Submit, body("x"), a.done("first"))
				synctest.Wait()
				fail(l, far)
				expectAnswers(t, &a, "first unknown")
				giveUp := l.Call(Submit, body("x"), a.done("second"))
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
		l.Call(Submit, body("x"), a.done("first"))
		l.Out.Close() // as if writing had failed, and the reader had not noticed yet
		l.Call(Submit, body("x"), a.done("second"))
		synctest.Wait()
		if got := a.String(); got != "second not executed, first unknown" && got != "first unknown, second not executed" {
			t.Error(got)
		}
	})
}

func TestGiveUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, far := testLink()
		defer l.Fail()
		var a answers
		giveUp := l.Call(Submit, body("x"), a.done("x"))
		f, err := frame.Read(bufio.NewReader(far))
		if err != nil {
			t.Fatal(err)
		}
		giveUp()
		giveUp()
		expectAnswers(t, &a, "x unknown")
		if _, err := far.Write(oneFrame(Result, f.ID, nil)); err != nil {
			t.Fatal(err)
		}
		expectAnswers(t, &a, "x unknown")
	})
}

// A retired Link accepts no new calls, and ends with the last result, so that the peer knows that nothing more is awaited.
func TestRetiredLinkEndsWithTheLastResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, far := testLink()
		var a answers
		l.Call(Submit, body("x"), a.done("old"))
		r := bufio.NewReader(far)
		f, err := frame.Read(r)
		if err != nil {
			t.Fatal(err)
		}
		l.Retire()
		l.Call(Submit, body("x"), a.done("new"))
		expectAnswers(t, &a, "new not executed")
		if _, err := far.Write(oneFrame(Result, f.ID, []byte("done"))); err != nil {
			t.Fatal(err)
		}
		expectAnswers(t, &a, "new not executed, old=done")
		if _, err := frame.Read(r); err != io.EOF {
			t.Errorf("the Link is still open: %v", err)
		}
		idle, far := testLink()
		idle.Retire()
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a Link without calls is still open: %v", err)
		}
	})
}

// Sending never waits for the peer. A peer that does not read, or has too much output waiting, loses its Link.
func TestSlowPeer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, far := testLink()
		defer far.Close()
		var a answers
		start := time.Now()
		for range 1000 {
			l.Call(Submit, body(strings.Repeat("x", 1000)), func([]byte, error) {})
		}
		l.Call(Submit, body("x"), a.done("last"))
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
		o := NewOutbox(near)
		o.buf = make([]byte, maxOutbox+1)
		if err := o.Send(Result, 1, body("x")); !errors.Is(err, errSlowPeer) {
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
		defer l.Fail()
		const senders, each = 8, 200
		for i := range senders {
			go func() {
				for j := range each {
					_ = l.Out.Send(Result, uint64(i*each+j), body(strings.Repeat("y", i*300+j)))
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

const ms = time.Millisecond

func oneFrame(kind byte, id uint64, body []byte) []byte {
	return frame.End(append(frame.Begin(nil, kind, id), body...), 0)
}

func bubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }

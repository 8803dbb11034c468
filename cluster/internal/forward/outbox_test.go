package forward

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/frame"
)

// TestFrameThatIsTooLong: a frame that no peer would read is not sent. Its call gets an error, and nothing of the frame stays
// in the outbox.
func TestFrameThatIsTooLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		near, far := net.Pipe()
		l := NewLink(near, Handshake{ID: "peer"})
		defer l.Fail()
		l.Out.Longest = 1000
		var a answers
		long := strings.Repeat("x", 1000)
		l.Call(Submit, body(long), a.done("alone"))
		l.Call(Submit, body("first"), a.done("first"))
		size := l.Out.Size()
		l.Call(Submit, body(long), a.done("behind"))
		if got := l.Out.Size(); got != size {
			t.Errorf("%d bytes wait, %d before the call that was refused", got, size)
		}
		l.Call(Submit, body("last"), a.done("last"))
		go l.Out.Run()
		go l.Read(bufio.NewReader(near))
		r := bufio.NewReader(far)
		for _, want := range []string{"first", "last"} {
			f, err := frame.Read(r)
			if err != nil || string(f.Body) != want {
				t.Fatalf("%.20q, %v, want %s", f.Body, err, want)
			}
			if _, err := far.Write(oneFrame(Result, f.ID, []byte("done"))); err != nil {
				t.Fatal(err)
			}
		}
		expectAnswers(t, &a, "alone "+ErrTooLong.Error()+", behind "+ErrTooLong.Error()+", first=done, last=done")
	})
}

// TestSlowLink: a peer that reads slowly gets a long frame, however long that takes. A peer that stops reading is cut off.
func TestSlowLink(t *testing.T) {
	const size = 64 * writeSize
	bubble(t, func(t *testing.T) {
		near, far := net.Pipe()
		o := NewOutbox(near)
		go o.Run()
		if err := o.Send(Result, 1, body(strings.Repeat("x", size))); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range 32 {
			if _, err := io.ReadFull(far, make([]byte, writeSize)); err != nil {
				t.Fatalf("after %v: %v", time.Since(start), err)
			}
			time.Sleep(peerWriteTimeout / 2)
		}
		time.Sleep(peerWriteTimeout/2 - ms)
		if _, err := io.ReadFull(far, make([]byte, writeSize)); err != nil {
			t.Fatal("cut off too early: ", err)
		}
		time.Sleep(peerWriteTimeout + ms)
		synctest.Wait()
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a peer that does not read is still connected: %v", err)
		}
	})
}

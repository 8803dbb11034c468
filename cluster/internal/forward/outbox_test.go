package forward

import (
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowLink: a peer that reads slowly gets a long frame whole, however long it takes; one that stops reads no more.
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

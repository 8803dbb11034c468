package server

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/lockstep-io/lockstep/store"
)

// partConn is a connection that takes all output of Write, but only a random part of the output of tryWrite.
type partConn struct {
	net.Conn
	got  []byte
	rand *rand.Rand
}

func (c *partConn) Write(p []byte) (int, error) {
	c.got = append(c.got, p...)
	return len(p), nil
}

func (c *partConn) tryWrite(p []byte) (int, error) {
	n := c.rand.IntN(len(p) + 1)
	c.got = append(c.got, p[:n]...)
	return n, nil
}

func (c *partConn) Close() error { return nil }

// TestMessagesAreShared: a large message is in memory once for all clients. Each client gets its output in order, and nobody changes
// shared memory.
func TestMessagesAreShared(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 0))
		var sent, cutOff atomic.Int64
		const clients = 3
		var conns [clients]*partConn
		var outs [clients]*outbox
		var want [clients][]byte
		for i := range outs {
			conns[i] = &partConn{rand: random}
			outs[i] = newOutbox(conns[i], &sent, &cutOff)
			outs[i].setOnPush(func() {}) // does nothing: the test takes the loop's turns below
		}
		var originals, messages [][]byte
		for step := range 60 {
			switch random.IntN(4) {
			case 0:
				m := bytes.Repeat([]byte{byte(step)}, keepOutput+1+random.IntN(1000))
				originals, messages = append(originals, bytes.Clone(m)), append(messages, m)
				for i, o := range outs {
					o.push(message{frame: m}, limit{}, time.Time{})
					want[i] = append(want[i], m...)
				}
			case 1:
				m := fmt.Appendf(nil, "message %d,", step)
				for i, o := range outs {
					o.push(message{frame: m}, limit{}, time.Time{})
					want[i] = append(want[i], m...)
				}
			default:
				i := random.IntN(clients)
				switch random.IntN(7) {
				case 0:
					outs[i].add(0, func(b []byte) []byte { return fmt.Appendf(b, "reply %d,", step) })
					want[i] = fmt.Appendf(want[i], "reply %d,", step)
				case 1:
					outs[i].flush()
				case 4:
					outs[i].flushNow(time.Time{}) // as a loop does; a goroutine that begins later writes the rest
				case 2:
					outs[i].hold()
					m := bytes.Repeat([]byte("held"), 1+random.IntN(keepOutput))
					outs[i].push(message{frame: m}, limit{}, time.Time{})
					outs[i].add(0, func(b []byte) []byte { return append(b, "before"...) })
					outs[i].release(func(m *message) []byte { return m.frame })
					want[i] = append(append(want[i], "before"...), m...)
				case 3:
					if out := outs[i].lend(time.Time{}); out != nil {
						n, _ := conns[i].tryWrite(out)
						outs[i].push(message{frame: []byte("meanwhile,")}, limit{}, time.Time{})
						outs[i].push(message{frame: bytes.Repeat([]byte("m"), 2*keepOutput)}, limit{}, time.Time{})
						outs[i].settle(out, n)
						want[i] = append(append(want[i], "meanwhile,"...), bytes.Repeat([]byte("m"), 2*keepOutput)...)
					}
				default:
					outs[i].sendPushed()
					outs[i].mu.Lock()
					for outs[i].busy {
						outs[i].moved.Wait()
					}
					outs[i].mu.Unlock()
				}
			}
		}
		for i, o := range outs {
			o.flush()
			if !bytes.Equal(conns[i].got, want[i]) || o.size() != 0 {
				t.Fatalf("seed %d: client %d has %d bytes, want %d, and %d wait", seed, i, len(conns[i].got), len(want[i]), o.size())
			}
		}
		for i, m := range messages {
			if !bytes.Equal(m, originals[i]) {
				t.Fatalf("seed %d: somebody has written into message %d", seed, i)
			}
		}
	}
	var many [20]outbox
	m := make([]byte, 1<<20)
	for i := range many {
		o := &many[i]
		o.setOnPush(func() {})
		o.cutOff = new(atomic.Int64)
		o.push(message{frame: []byte("before")}, limit{}, time.Time{})
		o.push(message{frame: m}, limit{}, time.Time{})
		if o.pending.drop(6); unsafe.SliceData(o.pending.head()) != unsafe.SliceData(m) || o.size() != len(m) {
			t.Fatal("it is copied")
		}
	}
}

// TestLostConnectionsAreNotCutOff: the server runs what a client has sent, even after the connection was lost, unless the server itself
// cut the client off.
func TestLostConnectionsAreNotCutOff(t *testing.T) {
	for name, end := range map[string]func(o *outbox, far net.Conn){
		"closed": func(o *outbox, _ net.Conn) { o.abort() },
		"lost": func(o *outbox, far net.Conn) {
			far.Close()
			o.push(message{frame: []byte("message")}, limit{}, time.Time{})
			o.flush()
		},
		"cut off":   func(o *outbox, _ net.Conn) { o.cut() },
		"its limit": func(o *outbox, _ net.Conn) { o.push(message{frame: []byte("message")}, limit{hard: 1}, time.Time{}) },
		"its limit, of replies": func(o *outbox, _ net.Conn) {
			o.add(7, func(b []byte) []byte { return append(b, "a reply"...) })
			o.checkLimit(limit{hard: 1}, time.Time{})
		},
	} {
		near, far := net.Pipe()
		o, gone := newOutbox(near, new(atomic.Int64), new(atomic.Int64)), 0
		o.gone = func() { gone++ }
		end(o, far)
		o.abort()
		o.cut()
		want := 0
		if name != "closed" && name != "lost" {
			want = 1
		}
		if gone != want || !o.isOver() {
			t.Errorf("%s: told %d times that the client was cut off, want %d", name, gone, want)
		}
		far.Close()
	}
}

// TestLargeOutputIsNotCopied: each large reply that waits is in memory once, and counts as memory of the clients (clientMemory).
func TestLargeOutputIsNotCopied(t *testing.T) {
	const many, size = 16, 60_000
	var sent, cut atomic.Int64
	o := newOutbox(nil, &sent, &cut)
	o.memory = &clientMemory{limit: new(atomic.Int64)}
	reply := store.Str(strings.Repeat("x", size))
	length := encodedSize(&reply)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range many {
		o.add(length, func(b []byte) []byte { return appendReply(b, &reply, 2) })
		if n := o.memory.large.Load(); n < int64((i+1)*size) || n > int64((i+2)*size*3/2) {
			t.Fatalf("%d bytes are counted after %d replies", n, i+1)
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > many*size*3/2 {
		t.Errorf("%d bytes were allocated for %d replies of %d", n, many, size)
	}
}

// TestSentOutputIsNotCounted: after all output has been lent and sent, none counts as memory of the client.
func TestSentOutputIsNotCounted(t *testing.T) {
	var sent, cut atomic.Int64
	for size := 1000; size < keepOutput; size += 500 {
		o := newOutbox(nil, &sent, &cut)
		o.memory = &clientMemory{limit: new(atomic.Int64)}
		o.setOnPush(func() {})
		for _, n := range []int{8000, size} {
			o.push(message{frame: make([]byte, n)}, limit{}, time.Time{})
			out := o.lend(time.Time{})
			if len(out) != n {
				t.Fatalf("%d of %d bytes are lent", len(out), n)
			}
			o.settle(out, n)
			o.sendPushed()
		}
		if n := o.memory.large.Load(); n != 0 {
			t.Errorf("%d bytes count after a message of %d bytes was sent", n, size)
		}
	}
}

// TestMemoryOfOutput: the outbox counts the whole memory of a buffer, even if only a part still holds output.
func TestMemoryOfOutput(t *testing.T) {
	var sent, cut atomic.Int64
	o := newOutbox(nil, &sent, &cut)
	add := func(size int) { o.add(size, func(b []byte) []byte { return append(b, make([]byte, size)...) }) }
	add(40_000)
	o.pending.drop(39_000)
	if n := o.takes(); n < 4*keepOutput {
		t.Errorf("%d bytes are counted of a buffer of %d", n, 4*keepOutput)
	}
	for range 1000 { // a client that is always behind
		add(40_000)
		o.pending.push(make([]byte, keepOutput+1, 2*keepOutput))
		add(100)
		for len(o.pending.first) > 3 {
			o.pending.drop(len(o.pending.head()))
		}
	}
	if n, waits := o.takes(), o.size(); n > waits+8*keepOutput {
		t.Errorf("%d bytes are counted, and %d wait", n, waits)
	}
	for o.pending.len() > 0 {
		o.pending.drop(len(o.pending.head()))
	}
	if n := o.takes(); n != 0 {
		t.Errorf("%d bytes are counted when nothing waits", n)
	}
}

package cluster

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The inbox of a leader whose disk hangs keeps no blocking command of a client that has gone, whichever node the client used.
func TestAbandonedCommandsLeaveTheInbox(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.log.decides(time.Second, once(commitSlowly))
		blocker := p.start("SET blocker x")
		synctest.Wait()
		_, stays := p.block(p.Node, "BLPOP stays 0")
		for i := range 100 {
			for _, node := range []*Node{p.Node, p.b} {
				b, _ := p.block(node, fmt.Sprintf("BLPOP %s%d 0", strings.Repeat("k", 1000), i))
				synctest.Wait()
				node.Abandon(b)
			}
		}
		synctest.Wait()
		if n := p.routes.get().seq.in.Waiting(); n != 1 {
			t.Errorf("%d requests wait, want 1", n)
		}
		if got := <-blocker; got != "OK" {
			t.Errorf("the blocker was told %q", got)
		}
		p.expect("1", "RPUSH stays a")
		p.got(stays, "[stays a]")
	})
}

// No goroutine waits at a node's gate for a client that has gone.
func TestAbandonedCommandsLeaveTheGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.log.decides(time.Minute, once(commitSlowly))
		blocker := p.start("SET blocker x")
		synctest.Wait()
		for _, node := range []*Node{p.Node, p.b} {
			var stay []*Blocked
			for range 10 {
				b, _ := blockAs(&testNode{t: t, Node: node, table: p.table}, node.NewClient(heavyHost), large("0"))
				stay = append(stay, b)
			}
			time.Sleep(10 * time.Second)
			before := runtime.NumGoroutine()
			for range 50 {
				b, _ := blockAs(&testNode{t: t, Node: node, table: p.table}, node.NewClient(heavyHost), large("0"))
				synctest.Wait()
				node.Abandon(b)
			}
			synctest.Wait()
			if n := runtime.NumGoroutine() - before; n > 0 {
				t.Errorf("%d goroutines wait for clients that have gone", n)
			}
			for _, b := range stay {
				node.Abandon(b)
			}
		}
		<-blocker
	})
}

// slowReader is a connection. Once c.stops is set, c.Read returns only after the channel c.again has been closed.
type slowReader struct {
	net.Conn
	stops atomic.Bool
	again chan struct{}
}

func (c *slowReader) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.stops.Load() {
		<-c.again
	}
	return n, err
}

// While the leader reads nothing, a follower keeps few abandoned commands, and does not lose the others.
func TestAbandonedCommandsBesideASilentLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.cut()
		synctest.Wait()
		near, far := net.Pipe()
		leader := &slowReader{Conn: far, again: make(chan struct{})}
		p.connectBy(near, leader)
		leader.stops.Store(true)
		for i := range 1000 {
			b, _ := p.block(p.b, fmt.Sprintf("BLPOP %s%d 0", strings.Repeat("k", 10_000), i))
			synctest.Wait()
			p.b.Abandon(b)
		}
		_, stays := p.block(p.b, "BLPOP stays 0")
		time.Sleep(time.Second)
		if size := p.b.routes.get().link.Out.Size(); size > maxAbandoned {
			t.Errorf("%d bytes wait to be sent", size)
		}
		close(leader.again)
		time.Sleep(time.Second)
		k := p.b.blockRegistry
		k.mu.Lock()
		if len(k.all) != 1 || len(k.unsent) > 0 || k.abandoned.bytes != 0 {
			t.Errorf("%d commands are left, %d unsent, %d bytes are abandoned", len(k.all), len(k.unsent), k.abandoned.bytes)
		}
		k.mu.Unlock()
		p.expect("1", "RPUSH stays a")
		p.got(stays, "[stays a]")
	})
}

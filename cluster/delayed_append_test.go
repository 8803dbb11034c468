package cluster

import (
	"net"
	"testing"
	"time"
)

// lastIndex returns the index of the last entry in a node's log.
func (c *bubbled) lastIndex(i int) uint64 { return raftOf(c.nodes[i]).Raft.LastIndex() }

// appendDelay is for how long raftnode puts off the entries for a follower that is not needed for the majority.
const appendDelay = 10 * ms

// The leader sends an entry a moment later to a follower that the majority does not need, until the other follower is gone.
func TestRealRaftFollowerThatIsNotNeeded(t *testing.T) {
	const leader, needed, spare = 0, 1, 2
	const soon = 8 * bubbleDelay // there and back, perhaps behind another request
	inBubble(t, func(c *bubbled) {
		c.transfer(c.nodes[leader], leader)
		time.Sleep(100 * ms)
		const writes = 300
		var at [writes]time.Time // at[i] is when the leader's log had i+1 entries more
		first, lacked, behind := c.lastIndex(leader), 0, 0
		for i := range at {
			c.write(leader)
			at[i] = time.Now()
			if c.lastIndex(needed) < c.lastIndex(leader) {
				behind++
			}
			has := int(c.lastIndex(spare) - first)
			if has <= i {
				lacked++
				if late := time.Since(at[has]); late > appendDelay+soon {
					t.Errorf("the other one has not got an entry after %v", late)
				}
			}
		}
		if lacked < writes*3/4 || behind > writes/10 {
			t.Errorf("of %d times the follower that is not needed lacked the last entry %d times, and the one that is %d times", writes, lacked, behind)
		}
		time.Sleep(appendDelay + soon)
		if got, want := c.lastIndex(spare), c.lastIndex(leader); got != want {
			t.Errorf("the other one has %d of %d entries after it was left alone", got, want)
		}
		c.alone(needed)
		c.write(leader)
		for range 20 {
			if took := c.write(leader); took > soon {
				t.Errorf("a write without the follower that was needed took %v", took)
			}
		}
		c.wires.heal()
		c.leader()
		c.same()
	}, func(cfg *Config) {
		dial := cfg.dial
		cfg.dial = func(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
			conn, err := dial(addr, proto, timeout)
			if addr == cfg.Peers[spare].Addr && err == nil {
				conn = laterConn{conn}
			}
			return conn, err
		}
	})
}

// laterConn is a connection that delays what is written to it.
type laterConn struct{ net.Conn }

func (c laterConn) Write(p []byte) (int, error) {
	time.Sleep(bubbleDelay / 3)
	return c.Conn.Write(p)
}

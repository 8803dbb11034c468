package cluster

import (
	"strings"
	"testing"
	"time"
)

// keepers are commands that write a string. They must keep its deadline, and how late the reply was that promised the deadline.
var keepers = []string{"SET lock 7 XX KEEPTTL", "INCR lock", "DECR lock", "INCRBY lock 94", "DECRBY lock 4", "INCRBYFLOAT lock 0.5",
	"APPEND lock 0", "SETRANGE lock 0 9", "SETBIT lock 5 1", "GETEX lock"}

// A later write without a deadline does not shorten the life that a late reply has given a key, in a transaction or not.
func TestWriteKeepsTheGraceInATransaction(t *testing.T) {
	for _, write := range keepers {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t)
			n.lead()
			n.log.decides(40*ms, once(commitSlowly))
			n.expect("OK", "SET lock 5 PX 100")
			time.Sleep(80 * ms) // counted from its evaluation, the lease is over
			replies := n.Submit(n.txn(nil, "EXISTS lock", write, "EXISTS lock", "SET lock thief NX", "PTTL lock"), nil)[0].Elems
			if text(replies[:1]) != "1" || text(replies[2:4]) != "1 nil" || replies[4].Int < 0 {
				t.Errorf("%s: told %q", write, text(replies))
			}
			time.Sleep(19 * ms)
			n.expect("1", "EXISTS lock")
			time.Sleep(4 * ms)
			n.expect("0", "EXISTS lock")
		})
	}
}

// A write that keeps the deadline of a lock gives nobody else the lock early, even if the followers got the lock late.
func TestRealRaftWriteKeepsTheLease(t *testing.T) {
	const script = `if redis.call('EXISTS', KEYS[1]) == 0 then return 'gone' end
		redis.call(unpack(ARGV)) return redis.call('EXISTS', KEYS[1])`
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		for i, write := range append(keepers, keepers...) {
			c.alone(leader)
			taken := c.ask(leader, "SET lock 5 NX PX 200")
			time.Sleep(40 * ms)
			c.wires.heal()
			got := <-taken
			if got.reply != "OK" {
				t.Fatalf("told %q", got.reply)
			}
			if i < len(keepers) {
				c.do(leader, write)
			} else {
				time.Sleep(time.Until(got.at.Add(190 * ms))) // counted from its evaluation, the lease is over
				if got := eval(t, c.nodes[leader], script, append([]string{"lock"}, strings.Fields(write)...)...); got != "1" {
					t.Errorf("%s in a script: told %q", write, got)
				}
			}
			for c.do(leader, "SET lock thief NX") != "OK" {
				time.Sleep(ms)
			}
			if held := time.Since(got.at); held < 200*ms || held > 200*ms+unknownLate {
				t.Errorf("%s: another owner got the lock after %v", write, held)
			}
			c.expect(leader, "1", "DEL lock")
		}
	}, withLua)
}

package kills

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// waiter is a client that waits for the lock.
type waiter struct {
	name  string
	conn  *respclient.Conn
	reply chan any
}

// TestLockQueueThroughKills: clients wait in the queue of one lock, and the leader is killed again and again. Each client gets the lock
// once, in the order in which they came, and with a larger token than the one before.
//
// The clients are connected to two nodes that are not killed. If one of these leads, it hands its leadership over before the next kill.
func TestLockQueueThroughKills(t *testing.T) {
	clients, kills := repeat(t, "LOCKSTEP_WAITERS", 60), repeat(t, "LOCKSTEP_QUEUE_KILLS", 3)
	list := nodes.Start(t, 5)
	first := nodes.Leader(list)
	var keep, die []*nodes.Node
	for _, n := range list {
		if n != first && len(keep) < 2 {
			keep = append(keep, n)
		} else {
			die = append(die, n)
		}
	}
	held := token(t, do(t, keep[0], "LOCK.ACQUIRE", "queue", "holder", "PX", "3600000"))
	const block = 20
	queue := make([]*waiter, clients)
	for i := range queue {
		w := &waiter{name: fmt.Sprint("w", i), conn: keep[i/block%2].Dial(), reply: make(chan any, 1)}
		defer w.conn.Close()
		go func() {
			r, err := w.conn.Do("LOCK.ACQUIRE", "queue", w.name, "PX", "3600000", "WAIT", "3600000")
			if err != nil {
				r = err
			}
			w.reply <- r
		}()
		queue[i] = w
		time.Sleep(3 * time.Millisecond) // so that they come to their node one after the other
		if i%block == block-1 {
			time.Sleep(500 * time.Millisecond) // so that they come to the leader before those of the other node
		}
	}
	owner, each := "holder", max(clients/max(kills, 1), 1)
	for i, w := range queue {
		if kills > 0 && i%each == each/2 {
			kills--
			killALeader(t, list, die)
		}
		// The node may be electing a leader: until it answers, the lock is held.
		if r := do(t, keep[i%2], "LOCK.RELEASE", "queue", owner); r != int64(0) {
			t.Fatalf("%s releases: %v", owner, r)
		}
		select {
		case r := <-w.reply:
			next := token(t, r)
			if next <= held {
				t.Fatalf("%s: token %d after %d", w.name, next, held)
			}
			held, owner = next, w.name
		case <-time.After(30 * time.Second):
			t.Fatalf("%s waits, and %v has the lock", w.name, do(t, keep[0], "GET", "queue"))
		}
		if i+1 < len(queue) {
			select {
			case r := <-queue[i+1].reply:
				t.Fatalf("%s, which is not the next, gets %v", queue[i+1].name, r)
			default:
			}
		}
	}
	if r := do(t, keep[0], "LOCK.RELEASE", "queue", owner); r != int64(0) {
		t.Errorf("the last release: %v", r)
	}
	if r := do(t, keep[1], "EXISTS", "queue"); r != int64(0) {
		t.Errorf("after the last release: EXISTS %v", r)
	}
}

// killALeader kills the leader, which must be one of die, and starts it again.
func killALeader(t *testing.T, list, die []*nodes.Node) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		leader := nodes.Leader(list)
		for _, n := range die {
			if n == leader {
				n.Kill()
				n.Run()
				n.WaitReady()
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the leadership was not handed over")
		}
		if code, out := leader.Admin("transfer", die[0].ID); code != 0 {
			t.Logf("transfer: %s", out)
		}
	}
}

// do sends a command to a living node, and sends it again while there is no leader.
func do(t *testing.T, n *nodes.Node, args ...string) any {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		r, err := n.Do(args...)
		if err == nil {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v: %v", args, err)
		}
		t.Logf("%v: %v", args, err)
	}
}

// token returns the token of a reply that grants the lock.
func token(t *testing.T, r any) int64 {
	t.Helper()
	if list, ok := r.([]any); ok && len(list) == 3 {
		if n, ok := list[0].(int64); ok {
			return n
		}
	}
	t.Fatalf("not granted: %v", r)
	return 0
}

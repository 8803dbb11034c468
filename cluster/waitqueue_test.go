package cluster

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// Requests that wait for a leader go on in order of arrival, whether the node then leads or follows.
func TestWaitingInOrder(t *testing.T) {
	for _, leads := range []bool{true, false} {
		t.Run(fmt.Sprint("leads=", leads), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n, b := newTestNode(t), newTestNode(t)
				node := n.Node
				if !leads {
					node = b.Node
				}
				var want []string
				var told []<-chan string
				for i := range 200 {
					line := fmt.Sprintf("RPUSH list %d", i)
					told = append(told, startOn(n, node, line, i%2 == 0))
					want = append(want, fmt.Sprint(i))
					synctest.Wait()
				}
				n.lead()
				if !leads {
					n.carried(b.Node)
				}
				for i, reply := range told {
					if got := <-reply; got != fmt.Sprint(i+1) {
						t.Fatalf("push %d: %q", i, got)
					}
				}
				n.expect("["+strings.Join(want, " ")+"]", "LRANGE list 0 -1")
				if !node.queue.Empty() {
					t.Error("somebody still waits")
				}
			})
		})
	}
}

// startOn submits a command to a node, by SubmitAsync if async is true and by Submit otherwise.
func startOn(n *testNode, node *Node, line string, async bool) <-chan string {
	done := make(chan string, 1)
	if !async {
		go func() { done <- n.doOn(node, line) }()
		return done
	}
	p := &Submission{Calls: n.call(line)}
	p.Done = func() { done <- text(p.Replies) }
	node.SubmitAsync(p)
	node.Flush()
	return done
}

// A request that had been sent to a lost leader keeps its place before later ones.
func TestLostRequestGoesFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, b := newTestNode(t), newTestNode(t)
		l, far := testLink() // a link to a leader that never answers
		defer l.Fail()
		go func() {
			buf := make([]byte, 1<<16)
			for {
				if _, err := far.Read(buf); err != nil {
					return
				}
			}
		}()
		b.routes.set(b.ctx, nil, l)
		first := startOn(n, b.Node, "RPUSH list first", false)
		synctest.Wait()
		b.routes.drop(nil, l)
		second := startOn(n, b.Node, "RPUSH list second", true)
		third := startOn(n, b.Node, "LLEN list", true)
		time.Sleep(100 * ms)
		n.lead()
		n.carried(b.Node)
		if a, b, c := <-first, <-second, <-third; a != "1" || b != "2" || c != "2" {
			t.Errorf("told %s, %s and %s", a, b, c)
		}
	})
}

// A request that gives up lets the next one go on.
func TestGivingUpInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		first := n.start("INCR c")
		time.Sleep(n.cfg.FailoverWait - 10*ms)
		second := n.start("INCR c")
		if got := <-first; got != text([]store.Reply{store.Err(ErrClusterDown)}) {
			t.Errorf("first: %q", got)
		}
		n.lead()
		if got := <-second; got != "1" {
			t.Errorf("second: %q", got)
		}
	})
}

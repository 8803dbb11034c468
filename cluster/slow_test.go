package cluster

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowTold records slow requests.
type slowTold struct {
	mu   sync.Mutex
	list []string
}

func (s *slowTold) told(r SlowRequest) {
	text := fmt.Sprintf("%s*%d leads %v from %q number %v:", r.Command, r.Calls, r.Leads, r.Node, r.Number != 0)
	for i, stage := range r.Stages {
		text += fmt.Sprintf(" %s %v", stage.Name, stage.To.Sub(stage.From).Round(ms))
		if i > 0 && !stage.From.Equal(r.Stages[i-1].To) {
			text += " (a gap)"
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, text)
}

// TestSlowRequests: a request that takes long is told of with its stages, and no other one.
func TestSlowRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t, scriptCommand)
		told := &slowTold{}
		n.cfg.Slow, n.cfg.SlowFrom = told.told, 100*ms
		n.lead()
		time.Sleep(time.Second) // the clocks of the test begin at 0
		n.log.decides(150*ms, once(commitSlowly))
		first := n.start("SET k w")
		synctest.Wait()
		time.Sleep(50 * ms)
		second := n.start("INCR counter", "SCRIPT 30ms")
		synctest.Wait()
		<-first
		<-second
		n.expect("w", "GET k")
		synctest.Wait()
		want := `set*1 leads true from "" number false: queue 0s evaluate 0s commit 150ms
incr*2 leads true from "" number false: queue 100ms evaluate 30ms commit 0s`
		if got := strings.Join(told.list, "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// TestSlowForwardedRequest: both nodes tell of a forwarded write, under the same number.
func TestSlowForwardedRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		leader, follower := &slowTold{}, &slowTold{}
		p.cfg.Slow, p.cfg.SlowFrom = leader.told, 100*ms
		p.b.cfg.Slow, p.b.cfg.SlowFrom = follower.told, 100*ms
		time.Sleep(time.Second)
		p.log.decides(150*ms, once(commitSlowly))
		p.b.Submit(p.call("INCR counter"), nil)
		synctest.Wait()
		if got := strings.Join(leader.list, "\n"); !strings.HasPrefix(got, `incr*1 leads true from "`) || strings.Contains(got, `from ""`) || !strings.Contains(got, "number true: ") || !strings.HasSuffix(got, "commit 150ms") {
			t.Errorf("the leader told %s", got)
		}
		if got := strings.Join(follower.list, "\n"); got != `incr*1 leads false from "" number true: forward 150ms` {
			t.Errorf("the follower told %s", got)
		}
	})
}

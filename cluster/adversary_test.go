package cluster

import (
	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"

	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
)

// adversary runs clients against a log and a link that misbehave, and checks
// what every client was told against what happened.
type adversary struct {
	t testing.TB
	n *testNode // leads now and then
	b *Node     // forwards to it

	mu       sync.Mutex
	r        *rand.Rand
	verdicts []verdict
	cut      bool // the link may break

	results map[int]string // reply by request id
}

func (a *adversary) intN(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.r.IntN(n)
}

func (a *adversary) decide(raftfsm.Entry) verdict {
	if a.intN(3) > 0 {
		return commit
	}
	return a.verdicts[a.intN(len(a.verdicts))]
}

// connect gives the second node a link to the first node over a pipe, and a new one whenever that link has ended.
func (a *adversary) connect() {
	for a.b.ctx.Err() == nil {
		near, far := net.Pipe()
		go a.n.serveForward(far)
		l, r, err := a.b.connectOver(near)
		if err != nil {
			a.t.Error(err)
			return
		}
		ended := a.b.use(a.b.ctx, l, r)
		select {
		case <-ended:
		case <-a.b.ctx.Done():
			l.Fail()
			<-ended
		}
		a.b.routes.drop(nil, l)
		time.Sleep(time.Duration(a.intN(50)) * ms)
	}
}

// disturb changes leadership and breaks links until the channel stop is closed.
func (a *adversary) disturb(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(a.intN(400)) * ms):
		}
		switch a.intN(3) {
		case 0:
			if l := a.b.routes.get().link; a.cut && l != nil {
				l.Fail()
			}
		default:
			a.n.depose()
			time.Sleep(time.Duration(a.intN(300)) * ms)
			entries := a.intN(3)
			a.n.log.set(func(l *fakeLog) {
				l.settle() // the entries in flight are decided now
				for range entries {
					l.otherLeader()
				}
			})
			time.Sleep(time.Duration(a.intN(300)) * ms)
			a.n.elect()
		}
	}
}

// client sends requests one after the other. Each adds its number to a key of its own, and 1 to a key of all requests.
func (a *adversary) client(node *Node, first, count int) {
	for id := first; id < first+count; id++ {
		var got string
		if a.intN(4) == 0 {
			got = a.n.doOn(node, fmt.Sprintf("GET k%d", id), "GET total")
			if got != "-CLUSTERDOWN -CLUSTERDOWN" && !strings.HasPrefix(got, "nil ") {
				a.t.Errorf("a read of request %d's key: %q", id, got)
			}
			continue
		}
		got = a.n.doOn(node, fmt.Sprintf("INCRBY k%d %d", id, id), "INCR total")
		a.mu.Lock()
		a.results[id] = got
		a.mu.Unlock()
		time.Sleep(time.Duration(a.intN(20)) * ms)
	}
}

const adversaryRequests = 40

func (a *adversary) run(seed uint64) {
	a.r, a.results = rand.New(rand.NewPCG(seed, 7)), map[int]string{}
	a.n = newTestNode(a.t)
	cfg := Default()
	cfg.ID, cfg.Time, cfg.Logger = "n2", clustertest.NewClock(), slog.New(slog.DiscardHandler)
	a.b = nodeOf(cfg)
	var links sync.WaitGroup
	defer links.Wait()
	defer a.b.cancel()
	a.n.lead()
	links.Go(a.connect)
	a.n.log.decides(40*ms, a.decide)
	a.n.log.set(func(l *fakeLog) {
		l.verify = func() error {
			if a.intN(5) == 0 {
				return errDeposed
			}
			return nil
		}
	})
	stop := make(chan struct{})
	var clients, disturber sync.WaitGroup
	disturber.Go(func() { a.disturb(stop) })
	for i := range 10 {
		node := a.n.Node
		if i%2 == 0 {
			node = a.b
		}
		clients.Go(func() { a.client(node, 1+i*adversaryRequests, adversaryRequests) })
	}
	clients.Wait()
	close(stop)
	disturber.Wait()
	a.n.log.decides(0, nil)
	a.n.log.set(func(l *fakeLog) { l.verify = nil })
	synctest.Wait()
	a.check()
}

// check compares the replies that the clients got with the keys that their requests have left.
func (a *adversary) check() {
	executed, unknown, totals := 0, 0, map[string]int{}
	for id, got := range a.results {
		value := a.n.do(fmt.Sprintf("GET k%d", id))
		if value != "nil" {
			executed++
		}
		var total string
		switch _, err := fmt.Sscanf(got, fmt.Sprintf("%d %%s", id), &total); {
		case err == nil:
			if value != fmt.Sprint(id) {
				a.t.Errorf("request %d was acknowledged, its key is %s", id, value)
			}
			if other := totals[total]; other != 0 {
				a.t.Errorf("requests %d and %d were both told %s", id, other, total)
			}
			totals[total] = id
		case got == "-CLUSTERDOWN -CLUSTERDOWN":
			if value != "nil" {
				a.t.Errorf("request %d was refused, its key is %s", id, value)
			}
		case got == "-INDETERMINATE -INDETERMINATE":
			unknown++
			if value != "nil" && value != fmt.Sprint(id) {
				a.t.Errorf("request %d was executed more than once: its key is %s", id, value)
			}
		default:
			a.t.Errorf("request %d got %q", id, got)
		}
	}
	if total := a.n.do("GET total"); total != fmt.Sprint(executed) {
		a.t.Errorf("%d requests were executed, the total is %s", executed, total)
	}
	if len(totals) < len(a.results)/2 {
		a.t.Errorf("only %d of %d requests were acknowledged", len(totals), len(a.results))
	}
	if knowable := !a.cut && !slices.Contains(a.verdicts, commitSlowly); knowable && unknown > 0 {
		a.t.Errorf("%d requests were told INDETERMINATE although their fate could be known", unknown)
	}
	if left := a.n.pending.len(); left > 0 {
		a.t.Errorf("%d batches are still pending", left)
	}
}

// A request is executed at most once and answered once, and its answer is true, even while leadership changes and links break.
func TestAdversary(t *testing.T) {
	for _, test := range []struct {
		name     string
		verdicts []verdict
		cut      bool
	}{
		{"a log whose outcome can be known", []verdict{refuse, applyLater, supersedeLater, overtake, forget}, false},
		{"and links that break", []verdict{refuse, applyLater, supersedeLater, overtake}, true},
		{"and a disk that stalls", []verdict{commitSlowly, applyLater, refuse}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			for seed := range uint64(6) {
				bubble(t, func(t *testing.T) {
					a := adversary{t: t, verdicts: test.verdicts, cut: test.cut}
					a.run(seed)
				})
			}
		})
	}
}

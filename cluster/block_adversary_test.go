package cluster

import (
	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"

	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// produce pushes elements one after the other, and notes the replies.
func (a *adversary) produce(node *Node, first, count int) {
	for id := first; id < first+count; id++ {
		got := a.n.doOn(node, fmt.Sprintf("RPUSH q%d %d", id%3, id))
		a.mu.Lock()
		a.results[id] = got
		a.mu.Unlock()
		time.Sleep(time.Duration(a.intN(60)) * ms)
	}
}

// consume takes elements until stop has been closed and a further command finds none.
func (a *adversary) consume(node *Node, stop <-chan struct{}, taken map[string]int) {
	for last := false; ; {
		select {
		case <-stop:
			last = true
		default:
		}
		line := []string{"BLPOP q0 q1 q2 0.05", "BRPOP q2 q1 q0 3", "BLMPOP 0.5 3 q0 q1 q2 LEFT"}[a.intN(3)]
		done := make(chan store.Reply, 2)
		node.Block(&Blocked{Call: a.n.call(line)[0], Done: func(r store.Reply) { done <- r }})
		node.Flush()
		r := <-done
		a.mu.Lock()
		switch {
		case len(r.Elems) == 2 && r.Elems[1].Kind == store.Array:
			taken[r.Elems[1].Elems[0].Str]++
		case len(r.Elems) == 2:
			taken[r.Elems[1].Str]++
		case r.Kind != store.NullArray && text([]store.Reply{r}) != "-CLUSTERDOWN":
			a.t.Errorf("%s: %q", line, text([]store.Reply{r}))
		}
		a.mu.Unlock()
		if len(done) > 0 {
			a.t.Error("answered twice")
		}
		if last && r.Kind == store.NullArray {
			return
		}
	}
}

func (a *adversary) runBlocking(seed uint64) {
	a.r, a.results = rand.New(rand.NewPCG(seed, 11)), map[int]string{}
	a.n = newTestNode(a.t)
	cfg := Default()
	cfg.ID, cfg.Time, cfg.Logger, cfg.Table = "n2", clustertest.NewClock(), slog.New(slog.DiscardHandler), a.n.table
	a.b = nodeOf(cfg)
	defer a.b.work.Wait()
	var links sync.WaitGroup
	defer links.Wait()
	defer a.b.cancel()
	a.n.log.set(func(l *fakeLog) { l.copies = []*Node{a.b} })
	a.n.lead()
	links.Go(a.connect)
	a.n.log.decides(40*ms, a.decide)
	stop, calm := make(chan struct{}), make(chan struct{})
	taken := map[string]int{}
	var producers, consumers, disturber sync.WaitGroup
	disturber.Go(func() { a.disturb(stop) })
	for i := range 4 {
		node := []*Node{a.n.Node, a.b}[i%2]
		producers.Go(func() { a.produce(node, 1+i*adversaryRequests, adversaryRequests) })
		consumers.Go(func() { a.consume(node, calm, taken) })
	}
	producers.Wait()
	close(stop)
	disturber.Wait()
	a.n.log.decides(0, nil)
	close(calm)
	consumers.Wait()
	synctest.Wait()
	a.checkTaken(taken)
}

func (a *adversary) checkTaken(taken map[string]int) {
	a.n.expect("0", "EXISTS q0 q1 q2")
	acknowledged := 0
	for id, got := range a.results {
		n := taken[fmt.Sprint(id)]
		switch {
		case got == "-CLUSTERDOWN" && n == 0:
		case got == "-INDETERMINATE" && n <= 1:
		case got[0] != '-' && n == 1:
			acknowledged++
		default:
			a.t.Errorf("element %d was taken %d times; its push was told %q", id, n, got)
		}
	}
	if acknowledged < len(a.results)/2 {
		a.t.Errorf("only %d of %d pushes were acknowledged", acknowledged, len(a.results))
	}
}

// Each element goes to exactly one client, even while leadership changes and links break.
func TestBlockedAdversary(t *testing.T) {
	for _, test := range []struct {
		name     string
		verdicts []verdict
	}{
		{"a log whose outcome comes late", []verdict{refuse, applyLater, supersedeLater, overtake}},
		{"a disk that stalls", []verdict{commitSlowly, returnSlowly, applyLater, refuse}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for seed := range uint64(8) {
				bubble(t, func(t *testing.T) {
					a := adversary{t: t, verdicts: test.verdicts, cut: true}
					a.runBlocking(seed)
				})
			}
		})
	}
}

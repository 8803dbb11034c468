package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// changeLeader deposes the first node and elects it again. The writes are those of another leader in between.
func (p *pair) changeLeader(writes ...func(*store.Txn)) {
	p.t.Helper()
	p.depose()
	p.cut()
	time.Sleep(50 * ms)
	if len(writes) > 0 {
		p.log.set(func(l *fakeLog) { l.otherLeader(writes...) })
	}
	p.lead()
	time.Sleep(100 * ms)
	p.connect()
	time.Sleep(100 * ms)
}

// At the next leader, a blocked client waits on even if its key has another type by then. Only a new command is told WRONGTYPE.
func TestBlockedWaitsOnBesideAnotherType(t *testing.T) {
	for line, serve := range map[string][]string{
		"BLPOP k other 0":         {"RPUSH k x", "[k x]"},
		"BRPOP other k 0":         {"RPUSH k x", "[k x]"},
		"BLMOVE k to LEFT LEFT 0": {"RPUSH k x", "x"},
		"BLMPOP 0 1 k LEFT":       {"RPUSH k x", "[k [x]]"},
		"BZPOPMIN k 0":            {"ZADD k 1 x", "[k x ]"},
		"BZMPOP 0 1 k MIN":        {"ZADD k 1 x", "[k [[x ]]]"},
	} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			_, here := p.wait(p.Node, line)
			_, there := p.wait(p.b, line)
			time.Sleep(time.Second)
			p.changeLeader(func(txn *store.Txn) { txn.SetString(0, []byte("k"), "v", 0) })
			p.silent(here)
			p.silent(there)
			_, begins := p.wait(p.b, line)
			p.got(begins, "-WRONGTYPE")
			p.expect("1 1", "DEL k", serve[0])
			p.got(here, serve[1])
			p.expect("1", serve[0])
			p.got(there, serve[1])
		})
	}
}

// The next leader serves a client from one of its keys, though another one has another type by then.
func TestBlockedIsServedBesideAnotherType(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		_, there := p.wait(p.b, "BLPOP k l 0")
		p.changeLeader(func(txn *store.Txn) {
			txn.SetString(0, []byte("k"), "v", 0)
			txn.PushTail(0, []byte("l"), "x")
		})
		p.got(there, "[l x]")
	})
}

// As in Redis, a client that already waits is not refused for lack of memory.
func TestBlockedWaitsOnWithoutMemory(t *testing.T) {
	const line = "BLMOVE l m LEFT LEFT 0"
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.cfg.Limits = store.Limits{Memory: 4 << 20}
		p.fsm.Limit(p.cfg.Limits)
		p.changeLeader() // a new leader begins to use the changed limits
		_, here := p.wait(p.Node, line)
		_, there := p.wait(p.b, line)
		big := strings.Repeat("x", 1<<20)
		p.expect("OK OK OK OK -OOM", "SET small v", "SET a "+big, "SET b "+big, "SET c "+big, "SET d v")
		p.changeLeader()
		p.silent(here)
		p.silent(there)
		_, begins := p.wait(p.b, line)
		p.got(begins, "-OOM")
		p.expect("1 1", "DEL a", "RPUSH l x")
		p.got(here, "x")
	})
}

// A long script runs while a node sends the command of a waiting client again. The client is not told BUSY.
func TestBlockedWaitsOnBehindALongScript(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := newLimited(t)
		n.SetBusyThreshold(500 * ms)
		var mu sync.Mutex
		var served, told []string
		comes := func(waited forward.Waited) {
			w := &blockedClient{waited: waited}
			w.req = &request{calls: n.call("BLPOP l 0"), blockedClient: w, finish: func(r *request) {
				mu.Lock()
				defer mu.Unlock()
				if got := text(r.replies); got == "-BUSY" {
					told = append(told, got)
				} else {
					served = append(served, got)
				}
			}}
			n.routes.get().seq.submit(w.req)
		}
		script := n.start("RUN 2s")
		for _, after := range []time.Duration{100 * ms, 600 * ms} { // one command comes before the busy threshold, one after it
			time.Sleep(after)
			comes(forward.Waited{Age: time.Second, Joined: true})
			comes(forward.Waited{Age: time.Second}) // a new command
		}
		if got := <-script; got != "OK" {
			t.Fatalf("the script: %q", got)
		}
		n.expect("2", "RPUSH l x y")
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if fmt.Sprint(told, served) != "[-BUSY -BUSY] [[l x] [l y]]" {
			t.Errorf("told %q, served %q", told, served)
		}
	})
}

// Clients of all nodes keep their order of arrival after a change of leader or a broken link.
func TestBlockedKeepTheirOrderAcrossNodes(t *testing.T) {
	const clients = 9
	for name, disturb := range map[string]func(p *pair){
		"another leader": func(p *pair) { p.changeLeader() },
		"another link": func(p *pair) {
			p.cut()
			synctest.Wait()
			p.connect()
			time.Sleep(100 * ms)
		},
		"twice": func(p *pair) {
			p.changeLeader()
			p.changeLeader()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				var done []<-chan string
				for i := range clients {
					node := p.Node
					if i%3 == 0 {
						node = p.b
					}
					_, reply := p.wait(node, "BLPOP l l2 0")
					done = append(done, reply)
					time.Sleep(ms)
				}
				disturb(p)
				for _, node := range []*Node{p.b, p.Node} {
					_, reply := p.wait(node, "BLPOP l2 l 0")
					done = append(done, reply)
				}
				for i, reply := range done {
					key := []string{"l", "l2"}[i%2]
					p.expect("1", fmt.Sprintf("RPUSH %s %d", key, i))
					p.got(reply, fmt.Sprintf("[%s %d]", key, i))
				}
			})
		})
	}
}

// Clients of one node that came at one moment keep their order, too.
func TestBlockedOfOneNodeKeepTheirOrder(t *testing.T) {
	for _, forwarded := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			node := p.Node
			if forwarded {
				node = p.b
			}
			var done []<-chan string
			for range 50 {
				_, reply := p.wait(node, "BLPOP l 0")
				done = append(done, reply)
			}
			p.changeLeader()
			for i, reply := range done {
				p.expect("1", fmt.Sprintf("RPUSH l %d", i))
				p.got(reply, fmt.Sprintf("[l %d]", i))
			}
		})
	}
}

// Nodes of two versions serve blocked clients to each other. When a command is sent again, its client queues as if it had just
// come.
func TestBlockedBetweenVersions(t *testing.T) {
	for _, old := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			p.cut()
			speaks := forward.Version{Major: forward.Major, Minor: forward.MinorWaited - 1}
			if old {
				p.cfg.speaks = speaks
			} else {
				p.b.cfg.speaks = speaks
			}
			p.connect()
			_, there := p.wait(p.b, "BLPOP l 0")
			_, here := p.wait(p.Node, "BLPOP l 0")
			time.Sleep(time.Second)
			p.changeLeader()
			p.expect("2", "RPUSH l x y")
			got := []string{<-here, <-there}
			if slices.Sort(got); fmt.Sprint(got) != "[[l x] [l y]]" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// All clients of a queue are sorted in one walk over the queue, not in one walk for each client.
func TestManyBlockedAreSorted(t *testing.T) {
	const clients = 100_000
	ws := newBlockedClients()
	wait := &store.Wait{Keys: [][]byte{[]byte("k")}, Type: store.TypeList}
	for i := range clients {
		w := &blockedClient{waited: forward.Waited{Age: 1, Joined: true}, since: time.Duration(clients - i/2*2 + i%2)}
		ws.join(w, wait, clients)
	}
	q := ws.queue(waitKey{key: "k"})
	q.sort()
	n := 0
	for p := q.head; p != nil; p = p.next {
		if n++; p.next != nil && p.order.compare(p.next.order) >= 0 {
			t.Fatalf("client %d stands before an earlier one", n)
		}
	}
	if n != clients {
		t.Errorf("%d of %d clients stand in the queue", n, clients)
	}
}

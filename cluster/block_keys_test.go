package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// A client of very many keys is in no queue until one of them is ready, but is served in the order of arrival.
func TestWaitingForManyKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		ws := p.routes.get().seq.blockedClients
		_, first := p.wait(p.Node, "BLPOP k:7 0")
		_, large := p.wait(p.Node, waitLine("k", 5000))
		_, there := p.wait(p.b, waitLine("k", 6000))
		_, last := p.wait(p.b, "BLPOP k:7 0")
		_, set := p.wait(p.b, strings.Replace(waitLine("k", 4500), "BLPOP", "BZPOPMIN", 1))
		if len(ws.queues) != 1 || len(ws.many) != 3 {
			t.Errorf("%d queues, and %d clients of many keys, want 1 and 3", len(ws.queues), len(ws.many))
		}
		p.expect("5", "RPUSH k:7 a b c d e")
		p.got(first, "[k:7 a]")
		p.got(large, "[k:7 b]")
		p.got(there, "[k:7 c]")
		p.got(last, "[k:7 d]")
		p.silent(set)
		p.expect("1", "ZADD k:9 1 m")
		p.got(set, "[k:9 m ]")
		p.expect("e", "LPOP k:7")

		var here *Blocked
		here, large = p.wait(p.Node, waitLine("k", 5000))
		p.Node.Abandon(here)
		p.expect("1 x", "RPUSH k:8 x", "LPOP k:8")
		p.silent(large)
		if ws.any() || len(ws.queues)+len(ws.many) > 0 {
			t.Errorf("%d clients, %d of many keys, and %d queues are left", len(ws.all), len(ws.many), len(ws.queues))
		}
	})
}

// An element goes to the client that has waited longest, whatever its node and the number of its keys, even if it was sent again.
func TestOrderOfManyKeys(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, r := newPair(t), rand.New(rand.NewPCG(seed, 1))
				type waiter struct {
					b    *Blocked
					node *Node
					keys map[string]bool
					done <-chan string
				}
				var waiting []waiter
				for step := range 200 {
					switch n := r.IntN(20); {
					case n < 9:
						w := waiter{node: p.Node, keys: map[string]bool{}}
						if r.IntN(2) == 0 {
							w.node = p.b
						}
						count := 1 + r.IntN(3)
						if r.IntN(2) == 0 {
							count = manyKeys - 1 + r.IntN(100)
						}
						line := "BLPOP"
						for _, i := range r.Perm(manyKeys + 200)[:count] {
							key := fmt.Sprintf("k%d", i)
							w.keys[key] = true
							line += " " + key
						}
						w.b, w.done = p.wait(w.node, line+" 0")
						waiting = append(waiting, w)
					case n == 9 && len(waiting) > 0:
						i := r.IntN(len(waiting))
						waiting[i].node.Abandon(waiting[i].b)
						waiting = slices.Delete(waiting, i, i+1)
						synctest.Wait()
					case n == 10 && step%3 == 0:
						p.cut()
						synctest.Wait()
						p.connect()
						time.Sleep(time.Second)
						synctest.Wait()
					default:
						key := fmt.Sprintf("k%d", r.IntN(manyKeys+200))
						if len(waiting) > 0 && r.IntN(2) == 0 {
							for key = range waiting[r.IntN(len(waiting))].keys {
								break
							}
						}
						i := slices.IndexFunc(waiting, func(w waiter) bool { return w.keys[key] })
						p.expect("1", fmt.Sprintf("RPUSH %s %d", key, step))
						if i < 0 {
							p.expect(fmt.Sprint(step), "LPOP "+key)
							continue
						}
						p.got(waiting[i].done, fmt.Sprintf("[%s %d]", key, step))
						waiting = slices.Delete(waiting, i, i+1)
					}
					time.Sleep(ms)
				}
				for _, w := range waiting {
					p.silent(w.done)
				}
			})
		})
	}
}

// After SWAPDB the leader looks at all keys of clients that wait for many, in as many batches as that needs.
func TestSwappedDatabasesOfManyKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		_, other := p.wait(p.b, waitLine("other", 3*serveKeys))
		_, large := p.wait(p.b, waitLine("k", 3*serveKeys))
		p.expect("1 1", "RPUSH m x", fmt.Sprintf("COPY m k:%d DB 1", 3*serveKeys-1))
		before := p.batches.Load()
		p.expect("OK", "SWAPDB 0 1")
		p.got(large, fmt.Sprintf("[k:%d x]", 3*serveKeys-1))
		p.silent(other)
		if got := p.batches.Load() - before; got < 6 {
			t.Errorf("%d keys were looked at in %d batches", 6*serveKeys, got)
		}
		if ws := p.routes.get().seq.blockedClients; ws.pending() || len(ws.queues) > 0 || len(ws.many) != 1 {
			t.Errorf("pending: %v; %d queues, %d clients of many keys", ws.pending(), len(ws.queues), len(ws.many))
		}
	})
}

// When a batch is evaluated again, the clients with many keys are in the same order as before.
func TestManyKeysSurviveARollback(t *testing.T) {
	ws := newBlockedClients()
	var keys [][]byte
	for i := range manyKeys {
		keys = append(keys, fmt.Append(nil, i))
	}
	k := waitKey{key: "7"}
	join := func(keys ...[]byte) *blockedClient {
		w := &blockedClient{req: &request{}}
		ws.join(w, &store.Wait{Keys: keys}, 0)
		w.fresh = false
		w.state.Store(blockedWaiting)
		return w
	}
	all := []*blockedClient{join([]byte("7")), join(keys...), join([]byte("7")), join(keys...)}
	ws.settle()
	for range 3 {
		ws.place(k)
		q := ws.queues[k]
		q.sort()
		for _, w := range all[:3] {
			if q.head == nil || q.head.w != w || !ws.take(w) {
				t.Fatal("the order is another one")
			}
			ws.answer(w, store.OK)
		}
		ws.rollback()
		if q := ws.queues[k]; len(ws.many) != 2 || ws.many[0] != all[1] || q.n != 4 {
			t.Fatalf("%d clients of many keys, %d at the key", len(ws.many), q.n)
		}
	}
}

// Cancelled clients of a few keys each are removed in parts, and a client that stands behind them is served meanwhile.
func TestCancelledClientsAreSweptInParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		ws := p.routes.get().seq.blockedClients
		const clients, keys = 30, manyKeys - 1
		for range clients {
			p.block(p.b, waitLine("k", keys))
		}
		synctest.Wait()
		_, last := p.wait(p.Node, "BLPOP k:7 0")
		if got := len(ws.all); got != clients+1 {
			t.Fatalf("%d clients wait", got)
		}
		p.cut()
		synctest.Wait()
		p.expect("1", "RPUSH k:7 x")
		p.got(last, "[k:7 x]")
		if got := len(ws.all); got < clients-12 {
			t.Errorf("%d clients were removed at once, want 12 at most", clients-got)
		}
		for range clients {
			p.expect("1 x", "RPUSH k:7 x", "LPOP k:7")
		}
		if ws.any() || len(ws.queues) > 0 {
			t.Errorf("%d clients and %d queues are left", len(ws.all), len(ws.queues))
		}
	})
}

// blockAs begins a blocking command of a client.
func blockAs(n *testNode, c *Client, line string) (*Blocked, <-chan string) {
	done := make(chan string, 1)
	b := &Blocked{Call: n.call(line)[0], Client: c, Done: func(r store.Reply) { done <- text([]store.Reply{r}) }}
	n.Block(b)
	n.Flush()
	return b, done
}

// large returns a blocking command with a megabyte of arguments.
func large(timeout string) string {
	return "BLPOP" + strings.Repeat(" "+strings.Repeat("x", 1000), 1000) + " " + timeout
}

// A blocking command with many keys is heavy work. It gives way to clients that take locks, as a command that reads many keys
// does.
func TestLargeBlockingCommandsGiveWay(t *testing.T) {
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprint("remote ", remote), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, by := leaderAnd(t, remote)
				stop := make(chan struct{})
				var others sync.WaitGroup
				others.Go(func() { by.locks(lightHost, 5*ms, stop) })
				time.Sleep(50 * ms)
				begin := time.Now()
				for range 10 {
					time.Sleep(10 * ms) // the leader reads it
					_, done := blockAs(by, by.NewClient(heavyHost), large("0.001"))
					if got := <-done; got != "" {
						t.Errorf("told %q", got)
					}
				}
				if took := time.Since(begin); took < 750*ms || took > 1200*ms {
					t.Errorf("10 MB took %v, want 0.95 s", took)
				}
				close(stop)
				others.Wait()
			})
		})
	}
}

// While a large blocking command waits for its turn, its timeout has not begun. Its client may leave or be unblocked meanwhile.
func TestLargeBlockingCommandBeforeItsTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		stop := make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() { n.locks(lightHost, 5*ms, stop) })
		time.Sleep(50 * ms)
		block := func(timeout string) (*Blocked, <-chan string) {
			return blockAs(n, n.NewClient(heavyHost), large(timeout))
		}
		_, first := block("0.001")
		time.Sleep(10 * ms)
		gone, silent := block("0")
		freed, told := block("0")
		_, late := block("0.001")
		n.blockRegistry.mu.Lock()
		if gone.state != blockTurn || freed.state != blockTurn {
			t.Error("they are on their way")
		}
		n.blockRegistry.mu.Unlock()
		n.Abandon(gone)
		ended := make(chan bool, 1)
		n.Unblock(freed, store.Err("UNBLOCKED"), func(ok bool) { ended <- ok })
		if got := <-first; got != "" {
			t.Errorf("the first was told %q", got)
		}
		if got := <-told; got != "-UNBLOCKED" || !<-ended {
			t.Errorf("who was freed was told %q", got)
		}
		if got := <-late; got != "" {
			t.Errorf("the last was told %q", got)
		}
		select {
		case got := <-silent:
			t.Errorf("who had gone was told %q", got)
		default:
		}
		close(stop)
		others.Wait()
		n.expect("OK", "SET a b")
		if n.routes.get().seq.blockedClients.any() {
			t.Error("the leader has somebody who waits")
		}
		if k := n.blockRegistry; len(k.all)+len(k.timers)+len(k.unsent) > 0 {
			t.Errorf("%d commands are left, %d timers", len(k.all), len(k.timers))
		}
	})
}

// A node that closes answers the blocking commands that wait for their turns.
func TestLargeBlockingCommandOfANodeThatCloses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.run(n.NewClient(lightHost), false, "SET a b")
		blockAs(n, n.NewClient(heavyHost), large("0"))
		_, done := blockAs(n, n.NewClient(heavyHost), large("0"))
		synctest.Wait()
		n.run(n.NewClient(lightHost), false, "SET a b")
		n.cancel()
		if got := <-done; got != "-CLUSTERDOWN" && got != "-INDETERMINATE" {
			t.Errorf("told %q", got)
		}
	})
}

// The index of a command is made once, before the first sending, after which its arguments may become the client's again.
func TestIndexIsMadeBeforeItIsSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		b, done := blockAs(n, n.NewClient(heavyHost), waitLine("k", 2*manyKeys))
		synctest.Wait()
		keys := b.keys
		if keys == nil {
			t.Fatal("it has no index")
		}
		n.depose()
		n.lead()
		synctest.Wait()
		if got := b.blockedClient; got == nil || got.keys != keys {
			t.Error("it was sent again with another index")
		}
		n.Abandon(b)
		select {
		case got := <-done:
			t.Errorf("told %q", got)
		default:
		}
	})
}

// BenchmarkBlock measures a blocking command that finds an element, and one that waits and is cancelled.
func BenchmarkBlock(b *testing.B) {
	for _, keys := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			n := newEphemeralNode(b)
			c, set := n.call(waitLine("k", keys))[0], n.call("SET a b")
			var dst []store.Reply
			for b.Loop() {
				w := &Blocked{Call: c, Done: func(store.Reply) {}}
				n.Block(w)
				n.Flush()
				n.Abandon(w)
				dst = n.Submit(set, dst[:0])
			}
		})
	}
}

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// writes makes the log note how large its entries are. It returns a function that returns the size of the largest one.
func (p *pair) writes() func() (largest int) {
	var mu sync.Mutex
	largest := 0
	p.log.decides(0, func(e raftfsm.Entry) verdict {
		mu.Lock()
		defer mu.Unlock()
		largest = max(largest, len(e.Writes))
		return commit
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return largest
	}
}

// One entry serves as many clients of large elements as it has room for. All are served, in order, before any other command.
func TestServingLargeElements(t *testing.T) {
	const clients, size = 30, 900 << 10
	for name, tt := range map[string]struct {
		waits func(i int) string
		push  []string // in one pipeline, or one transaction
		left  string   // LLEN of the keys afterwards
	}{
		"rotated":   {func(int) string { return "BLMOVE k k LEFT RIGHT 0" }, []string{"RPUSH k " + strings.Repeat("x", size)}, "1"},
		"handed on": {func(i int) string { return fmt.Sprintf("BLMOVE k%d k%d LEFT RIGHT 0", i, i+1) }, []string{"RPUSH k0 " + strings.Repeat("x", size)}, "0"},
		"taken":     {func(int) string { return "BLPOP k 0" }, slices.Repeat([]string{"RPUSH k " + strings.Repeat("x", size)}, 8), "0"},
	} {
		for _, remote := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				largest := p.writes()
				node := p.Node
				if remote {
					node = p.b
				}
				var served []<-chan string
				for i := range clients {
					_, done := p.wait(node, tt.waits(i))
					served = append(served, done)
				}
				newcomer := make(chan string, 1)
				go func() {
					p.Submit(p.call(tt.push[0]), nil)
					for _, line := range tt.push[1:] {
						p.Submit(p.call(line), nil)
					}
				}()
				go func() { newcomer <- p.do("LLEN k") }()
				synctest.Wait()
				all := clients
				if name == "taken" {
					all = len(tt.push)
				}
				for i, done := range served {
					select {
					case got := <-done:
						if i >= all || len(got) < size {
							t.Errorf("%s: client %d got %.20q of %d bytes", name, i, got, len(got))
						}
					default:
						if i < all {
							t.Errorf("%s: client %d is not served", name, i)
						}
					}
				}
				if got := <-newcomer; got != tt.left && got != "0" {
					t.Errorf("%s: who came behind found %s elements", name, got)
				}
				if got := largest(); got > serveBytes+4*size {
					t.Errorf("%s: an entry has %d bytes of writes", name, got)
				}
			})
		}
	}
}

// If one batch cannot serve all blocked clients, the next ones serve the others before any command that was sent after the push.
func TestNobodyComesBetweenServing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.log.decides(10*ms, always(commitSlowly))
		const clients = 12
		var served []<-chan string
		for range clients {
			_, done := p.wait(p.b, "BLPOP l 0")
			served = append(served, done)
		}
		large := strings.Repeat("x", 300<<10)
		push := "RPUSH l" + strings.Repeat(" "+large, clients)
		pushed, took := p.start(push), p.start("LPOP l")
		time.Sleep(time.Second)
		if got := <-took; got != "nil" {
			t.Errorf("who came behind the push got an element of %d bytes", len(got))
		}
		if got := <-pushed; got != fmt.Sprint(clients) {
			t.Errorf("the push was told %q", got)
		}
		for i, done := range served {
			select {
			case got := <-done:
				if len(got) < len(large) {
					t.Errorf("client %d got %q", i, got)
				}
			default:
				t.Errorf("client %d is not served", i)
			}
		}
		if proposals, _ := p.log.count(); proposals < 3 {
			t.Errorf("%d entries: all was served at once", proposals)
		}
		p.expect("0", "LLEN l")
	})
}

// If serving takes long, other commands run in between. In the end all clients are served.
func TestLongServingGivesWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.log.decides(50*ms, always(commitSlowly))
		const clients, size = 60, 900 << 10
		var served []<-chan string
		for range clients {
			_, done := p.wait(p.b, "BLMOVE k k LEFT RIGHT 0")
			served = append(served, done)
		}
		go p.do("RPUSH k " + strings.Repeat("x", size))
		time.Sleep(100 * ms)
		begin := time.Now()
		for i := range 20 {
			at := time.Now()
			p.expect(fmt.Sprint(i+1), "INCR lock")
			if took := time.Since(at); took > 300*ms {
				t.Errorf("a lock took %v", took)
			}
			time.Sleep(5 * ms)
		}
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("20 locks took %v", took)
		}
		time.Sleep(time.Duration(clients) * 200 * ms)
		for i, done := range served {
			select {
			case got := <-done:
				if len(got) < size {
					t.Errorf("client %d got %.30q", i, got)
				}
			default:
				t.Errorf("client %d is not served", i)
			}
		}
	})
}

// If serving takes long while keys with long names expire in one entry after the other, other commands still run in between.
func TestServingBesideExpiry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		for i := range 4000 {
			p.expect("OK", fmt.Sprintf("SET %d%s v PX 1000", i, strings.Repeat("x", 4000)))
		}
		p.log.decides(50*ms, always(commitSlowly))
		for range 60 {
			p.wait(p.b, "BLMOVE k k LEFT RIGHT 0")
		}
		time.Sleep(time.Second)
		go p.do("RPUSH k " + strings.Repeat("x", 900<<10))
		time.Sleep(100 * ms)
		for i := range 10 {
			at := time.Now()
			p.expect(fmt.Sprint(i+1), "INCR lock")
			if took := time.Since(at); took > 300*ms {
				t.Errorf("a lock took %v", took)
			}
		}
	})
}

// A blocked client that waits for more than a reply or an entry may hold gets an error.
func TestServingWhatIsTooMuch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.cfg.Limits.Reply = 1 << 20
		p.routes.get().seq.txn = nil // so that the next batch uses the new limit
		_, all := p.wait(p.b, "BLMPOP 0 1 l LEFT COUNT 100")
		_, one := p.wait(p.Node, "BLPOP l 0")
		large := strings.Repeat("x", 100<<10)
		p.expect("40", "RPUSH l"+strings.Repeat(" "+large, 40))
		p.got(all, "-ERR")
		p.got(one, "[l "+large+"]")
		p.expect("39", "LLEN l")
	})
}

// If an entry has no room for the reply to a blocked client, the client gets an error.
func TestServingWhatNoEntryHolds(t *testing.T) {
	for _, remote := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			p.cfg.Limits.Entry = 1 << 20
			p.routes.get().seq.txn = nil // so that the next batch uses the new limit
			largest := p.writes()
			node := p.Node
			if remote {
				node = p.b
			}
			large := strings.Repeat("x", 100<<10)
			p.expect("8 16 24", slices.Repeat([]string{"RPUSH big" + strings.Repeat(" "+large, 8)}, 3)...)
			_, all := p.wait(node, "BLMPOP 0 1 l LEFT COUNT 100")
			_, one := p.wait(node, "BLPOP l 0")
			p.expect("OK", "RENAME big l")
			p.got(all, "-ERR")
			p.got(one, "[l "+large+"]")
			p.expect("23", "LLEN l")
			if got := largest(); got > 2<<20 {
				t.Errorf("an entry has %d bytes of writes", got)
			}
		})
	}
}

// If a user has lost the right to a key, the user's blocked commands take no element of it, whichever node the client uses.
func TestBlockedLosesItsRights(t *testing.T) {
	restrict := store.Command{Name: "restrict", Arity: 2, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
		u, wrong := store.NewUser(c.Cmd.Table(), string(c.Args[1]), true).WithRules([]string{"on", "nopass", "+@all", "resetkeys", "~other:*"}, true)
		if wrong != "" {
			return store.Err(wrong)
		}
		c.Txn.SetUser(u)
		return store.OK
	}}
	for _, remote := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			p := newPair(t, makeUser, restrict)
			node := p.Node
			if remote {
				node = p.b
			}
			p.expect("OK", "MAKEUSER u")
			var waits []<-chan string
			for _, line := range []string{"BLPOP l 0", "BLMOVE m n LEFT RIGHT 0"} {
				done := make(chan string, 1)
				call := p.call(line)[0]
				call.User = "u"
				node.Block(&Blocked{Call: call, Done: func(r store.Reply) {
					if r.Kind == store.Noted { // the refusal comes with denials for the ACL log
						r = r.Elems[0]
					}
					done <- text([]store.Reply{r})
				}})
				node.Flush()
				synctest.Wait()
				waits = append(waits, done)
			}
			p.expect("OK", "RESTRICT u")
			p.expect("1 1", "RPUSH l secret", "RPUSH m secret")
			for _, done := range waits {
				synctest.Wait()
				select {
				case got := <-done:
					if !strings.HasPrefix(got, "-NOPERM") {
						t.Errorf("who has lost the right got %q", got)
					}
				default:
					t.Error("who has lost the right waits on")
				}
			}
			p.expect("1 1 0", "LLEN l", "LLEN m", "LLEN n")
		})
	}
}

// After SWAPDB, several batches share the many keys that clients wait for.
func TestSwappedDatabasesAreServedInParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		const parts = 4
		many := strings.Builder{}
		for i := range parts * serveKeys {
			fmt.Fprintf(&many, " k%d", i)
		}
		p.wait(p.b, "BLPOP"+many.String()+" 0")
		_, behind := p.wait(p.b, "BLPOP l 0")
		p.expect("1 1", "RPUSH m x", "COPY m l DB 1")
		p.silent(behind)

		before := p.batches.Load()
		swapped := p.start("SWAPDB 0 1")
		p.got(behind, "[l x]")
		p.got(swapped, "OK")
		if got := p.batches.Load() - before; got < parts {
			t.Errorf("%d keys were looked at in %d batches", parts*serveKeys, got)
		}
		if ws := p.routes.get().seq.blockedClients; ws.pending() || len(ws.inLine.queues)-ws.inLine.ended != len(ws.queues) {
			t.Errorf("pending: %v; %d queues, in line %d without %d", ws.pending(), len(ws.queues), len(ws.inLine.queues), ws.inLine.ended)
		}
	})
}

// If databases are swapped again during a round, that round goes on to its end before the next one begins.
func TestRoundsGoToTheirEnd(t *testing.T) {
	ws := newBlockedClients()
	for i := range 3 {
		ws.queue(waitKey{key: fmt.Sprint(i)}).n = 1
	}
	l := &ws.ready
	l.add(ws, nil, true)
	var seen []string
	for i := 0; ws.pending() && i < 20; i++ {
		k, ok := l.take(ws)
		if seen = append(seen, k.key); !ok {
			seen[len(seen)-1] = "end"
		}
		if i == 1 {
			ws.queue(waitKey{key: "new"}).n = 1
			l.add(ws, nil, true)
		}
	}
	if got, want := strings.Join(seen, " "), "0 1 2 end 0 1 2 new end"; got != want {
		t.Errorf("looked at %s, want %s", got, want)
	}
}

// A client was served in a batch that is evaluated again. Then the client has its old place in the queue again.
func TestRoundsSurviveARollback(t *testing.T) {
	ws := newBlockedClients()
	w := &blockedClient{req: &request{}}
	ws.join(w, &store.Wait{Keys: [][]byte{[]byte("k")}}, 0)
	w.fresh = false
	w.state.Store(blockedWaiting)
	ws.ready.add(ws, nil, true)
	ws.settle()
	for _, again := range []bool{false, true} {
		if k, ok := ws.ready.take(ws); !ok || k.key != "k" || !ws.take(w) {
			t.Fatalf("again %v: the round came to %q", again, k.key)
		}
		ws.answer(w, store.OK)
		ws.rollback()
	}
}

// One command deletes many users. The leader looks once at each blocked client: to compare each client with each user would
// take minutes.
func TestBlockedClientsOfManyDeletedUsers(t *testing.T) {
	const users, clients = 1_000_000, 30_000
	s := &sequencer{blockedClients: newBlockedClients()}
	ws := s.blockedClients
	cmd := store.NewTable(store.Commands()).Lookup([]byte("blpop"))
	for i := range clients {
		w := &blockedClient{req: &request{calls: []Call{{Cmd: cmd, User: fmt.Sprint("stays", i)}}}}
		ws.join(w, &store.Wait{Keys: [][]byte{fmt.Append(nil, i)}}, 0)
		w.state.Store(blockedWaiting)
		if i == 0 {
			w.req.calls[0].User = "user0"
		}
	}
	gone := make([]string, users)
	for i := range gone {
		gone[i] = fmt.Sprint("user", i)
	}
	s.sendAway(gone)
	if len(ws.answered) != 1 || ws.answered[0].calls[0].User != "user0" || len(ws.all) != clients-1 {
		t.Errorf("%d are answered, %d wait", len(ws.answered), len(ws.all))
	}
}

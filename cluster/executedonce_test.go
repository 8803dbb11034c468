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

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// TestJ1 to TestJ20 stand for twenty real failures of other lock services or their clients. conformance/broken breaks this
// program in each way, and the test fails.

// J1: a request that a node carried to the leader was executed again and again. Here each is executed once.
func TestJ1ExecutedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newLinked(t)
		const requests = 80
		for id := range requests {
			lines := []string{"INCR counter", fmt.Sprintf("RPUSH done %d", id)}
			want := fmt.Sprintf("%d %d", id+1, id+1)
			var got string
			switch id % 4 {
			case 0:
				got = p.doOn(p.b, lines...)
			case 1: // the link breaks before the commit
				got = p.brokenLink(commitSlowly, lines...)
			case 2: // the link breaks between commit and reply
				got = p.brokenLink(returnSlowly, lines...)
			case 3: // the leader is lost with the entry in flight
				got = p.lostLeader(applyLater, lines...)
			}
			if got != want {
				t.Fatalf("request %d: told %q, want %q", id, got, want)
			}
		}
		for id, got := range strings.Fields(strings.Trim(p.do("LRANGE done 0 -1"), "[]")) {
			if got != fmt.Sprint(id) {
				t.Fatalf("request %s was executed in the place of %d", got, id)
			}
		}
		p.expect(fmt.Sprintf("%d %d", requests, requests), "GET counter", "LLEN done")
	})
}

// newLinked is newPair with a second node that looks for the first one again
// whenever its link has broken.
func newLinked(t *testing.T, commands ...store.Command) *pair {
	return newPair(t, commands...).keepLinked()
}

func (p *pair) keepLinked() *pair {
	p.cut()
	a := &adversary{t: p.t, n: p.testNode, b: p.b, r: rand.New(rand.NewPCG(1, 7))}
	var links sync.WaitGroup
	links.Go(a.connect)
	p.t.Cleanup(func() {
		p.b.cancel()
		links.Wait()
	})
	time.Sleep(100 * ms)
	return p
}

// brokenLink submits on the second node, whose link breaks while the entry is
// on its way.
func (p *pair) brokenLink(v verdict, lines ...string) string {
	p.t.Helper()
	p.log.decides(40*ms, once(v))
	reply := p.startMany(p.b, lines...)
	time.Sleep(20 * ms)
	p.cut()
	got := <-reply
	p.log.decides(0, nil)
	return got
}

// J9: a request that was sent again got the replies of another one. Here each request of an entry gets its own.
func TestJ9AnsweredAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newLinked(t)
		verdicts := []verdict{commitSlowly, applyLater}
		p.log.decides(40*ms, func(e raftfsm.Entry) verdict {
			if len(e.Writes) == 0 || len(verdicts) == 0 {
				return commit
			}
			v := verdicts[0]
			verdicts = verdicts[1:]
			return v
		})
		p.log.set(func(l *fakeLog) { l.barrier = func() error { return errDeposed } })
		before := p.startMany(p.Node, "SET before them")
		synctest.Wait()
		var replies []<-chan string
		for id := range 5 {
			replies = append(replies, p.startMany(p.b, fmt.Sprintf("INCRBY counter-%d %d", id, id+1), fmt.Sprintf("RPUSH list-%d a b", id)))
			synctest.Wait()
		}
		if got := <-before; got != "OK" {
			t.Fatal("told", got)
		}
		time.Sleep(10 * ms) // a batch waits for more
		p.loseLeader()
		for id, reply := range replies {
			if got, want := <-reply, fmt.Sprintf("%d 2", id+1); got != want {
				t.Errorf("request %d: told %q, want %q", id, got, want)
			}
		}
		if len(verdicts) > 0 {
			t.Error("not all of them were in doubt")
		}
	})
}

// lostLeader submits on the second node; the leader is lost with the entry in
// flight, and so is the link.
func (p *pair) lostLeader(v verdict, lines ...string) string {
	p.t.Helper()
	p.log.decides(0, once(v))
	p.log.set(func(l *fakeLog) { l.barrier = func() error { return errDeposed } })
	reply := p.startMany(p.b, lines...)
	synctest.Wait()
	p.loseLeader()
	got := <-reply
	p.log.decides(0, nil)
	return got
}

// loseLeader cuts the link, deposes the leader and elects it again.
func (p *pair) loseLeader() {
	p.t.Helper()
	p.cut()
	p.depose()
	time.Sleep(300 * ms)
	p.log.set(func(l *fakeLog) { l.barrier = nil })
	p.lead()
}

func (p *pair) startMany(node *Node, lines ...string) <-chan string {
	calls, done := p.call(lines...), make(chan string, 1)
	go func() { done <- text(node.Submit(calls, nil)) }()
	return done
}

// fault is what a test does to a cluster around one request.
type fault struct {
	name   string
	before func(p *pair)
	after  func(p *pair) // in time for the request to hear of it
	want   string        // code of the answer; "": success
}

var unreachable = func() error { return errDeposed }

var faults = []fault{
	{name: "none", before: func(*pair) {}},
	{name: "no leader", before: func(p *pair) { p.depose(); p.cut() }, want: "-CLUSTERDOWN"},
	{name: "every proposal refused", before: func(p *pair) {
		p.log.decides(0, once(refuse))
		p.log.set(func(l *fakeLog) { l.barrier = unreachable })
	}, want: "-CLUSTERDOWN"},
	{name: "evaluated on a state that has moved on", before: func(p *pair) { p.log.decides(0, once(overtake)) }},
	{name: "committed after its proposer gave up", before: func(p *pair) {
		p.log.decides(0, once(applyLater))
		p.log.set(func(l *fakeLog) { l.barrier = unreachable })
	}, want: "-INDETERMINATE"},
	{name: "the same, known in time", before: func(p *pair) {
		p.log.decides(0, once(applyLater))
		p.log.set(func(l *fakeLog) { l.barrier = unreachable })
	}, after: func(p *pair) { p.log.set(func(l *fakeLog) { l.barrier = nil }) }},
	{name: "superseded after its proposer gave up", before: func(p *pair) {
		p.log.decides(0, once(supersedeLater))
		p.log.set(func(l *fakeLog) { l.barrier = unreachable })
	}, want: "-INDETERMINATE"},
	{name: "superseded, known in time", before: func(p *pair) { p.log.decides(0, once(supersedeLater)) }},
	{name: "never heard of again", before: func(p *pair) {
		p.log.decides(0, once(forget))
		p.log.set(func(l *fakeLog) { l.barrier = unreachable })
	}, want: "-INDETERMINATE"},
	{name: "a disk that stalls", before: func(p *pair) { p.log.decides(8*time.Second, once(commitSlowly)) }, want: "-INDETERMINATE"},
	{name: "a log that is slow to say so", before: func(p *pair) { p.log.decides(8*time.Second, once(returnSlowly)) }},
	{name: "a script that runs on and on", before: func(p *pair) {
		p.startForwarded("SCRIPT 20")
		synctest.Wait()
	}, want: "-BUSY"},
}

// resent are the codes on which one client library or another sends a command
// again.
var resent = []string{"-CLUSTERDOWN", "-BUSY", "-TRYAGAIN", "-LOADING", "-READONLY", "-MASTERDOWN", "-MOVED", "-ASK", "-WAIT"}

// J7: a write was answered with an error but took effect. Here an error on which clients resend means that the write never takes
// effect.
func TestJ7ErrorsTellTheTruth(t *testing.T) {
	for _, f := range faults {
		for _, carried := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, carried=%v", f.name, carried), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := newLinked(t, scriptCommand)
					node := p.Node
					if carried {
						node = p.b
					}
					f.before(p)
					reply := p.startMany(node, "INCR counter")
					time.Sleep(100 * ms)
					if f.after != nil {
						f.after(p)
					}
					got := <-reply
					time.Sleep(time.Minute) // what is still on its way arrives
					p.log.decides(0, nil)
					p.log.set(func(l *fakeLog) { l.barrier = nil })
					p.depose()
					synctest.Wait()
					p.lead()
					value := p.do("GET counter")
					switch {
					case !strings.HasPrefix(got, "-"):
						if got != "1" || value != "1" {
							t.Errorf("told %q, and the counter is %s", got, value)
						}
					case slices.Contains(resent, got):
						if value != "nil" {
							t.Errorf("told %q, and the counter is %s", got, value)
						}
					case got != "-INDETERMINATE":
						t.Errorf("told %q", got)
					case value != "nil" && value != "1":
						t.Errorf("executed more than once: the counter is %s", value)
					}
					if f.want == "" && got != "1" || f.want != "" && got != f.want && !carried {
						t.Errorf("told %q, want %q", got, f.want)
					}
				})
			})
		}
	}
}

// J10: elements came twice, and two histories existed. Here every list that is read is a prefix of the final one.
func TestJ10OneHistory(t *testing.T) {
	t.Run("a copy from an earlier link", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			n, b := newTestNode(t), newTestNode(t)
			n.lead()
			old := n.carried(b.Node)
			now := n.carried(b.Node)
			if got := n.carry(now, forward.Ticket{ID: 1, Low: 1, Again: true}, "RPUSH list a"); got != "1" {
				t.Errorf("sent again: %q", got)
			}
			// What the earlier link still had on its way comes only now.
			if got := n.carry(old, forward.Ticket{ID: 1, Low: 1}, "RPUSH list a"); got != forward.ErrStale.Error() {
				t.Errorf("by the earlier link: %q", got)
			}
			n.expect("[a]", "LRANGE list 0 -1")
		})
	})
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { (&appends{}).run(t, seed) })
		})
	}
}

// appends is clients that append to one list and read it, while links break and
// leaders come and go.
type appends struct {
	*adversary
	mu      sync.Mutex
	told    map[string]string // by element
	read    []reading
	clients sync.WaitGroup
}

// reading is a list as somebody read it, and when.
type reading struct {
	began, ended time.Time
	list         []string
}

func (a *appends) run(t *testing.T, seed uint64) {
	p := newPair(t)
	p.cut()
	a.told = map[string]string{}
	a.adversary = &adversary{t: t, n: p.testNode, b: p.b, r: rand.New(rand.NewPCG(seed, 10)), cut: true,
		verdicts: []verdict{refuse, applyLater, supersedeLater, overtake, commitSlowly, returnSlowly}}
	var others sync.WaitGroup
	others.Go(a.connect)
	p.log.decides(30*ms, a.decide)
	stop := make(chan struct{})
	others.Go(func() { a.disturb(stop) })
	for client := range 6 {
		node := p.Node
		if client%2 == 0 {
			node = p.b
		}
		a.clients.Go(func() { a.client(node, client) })
	}
	a.clients.Wait()
	close(stop)
	p.log.decides(0, nil)
	synctest.Wait()
	a.check(p)
	p.b.cancel()
	others.Wait()
}

func (a *appends) client(node *Node, client int) {
	for k := range 30 {
		if a.intN(3) == 0 {
			began := time.Now()
			if got := a.n.doOn(node, "LRANGE list 0 -1"); !strings.HasPrefix(got, "-") {
				a.mu.Lock()
				a.read = append(a.read, reading{began, time.Now(), strings.Fields(strings.Trim(got, "[]"))})
				a.mu.Unlock()
			}
			continue
		}
		element := fmt.Sprintf("%d:%d", client, k)
		got := a.n.doOn(node, "RPUSH list "+element)
		a.mu.Lock()
		a.told[element] = got
		a.mu.Unlock()
		time.Sleep(time.Duration(a.intN(30)) * ms)
	}
}

func (a *appends) check(p *pair) {
	final := strings.Fields(strings.Trim(p.do("LRANGE list 0 -1"), "[]"))
	at := map[string]int{}
	for i, element := range final {
		if at[element] != 0 {
			a.t.Errorf("%s was appended twice", element)
		}
		at[element] = i + 1
	}
	acknowledged := 0
	for element, got := range a.told {
		switch got {
		case "-CLUSTERDOWN":
			if at[element] != 0 {
				a.t.Errorf("%s was refused and appended", element)
			}
		case "-INDETERMINATE":
		default:
			acknowledged++
			if got != fmt.Sprint(at[element]) {
				a.t.Errorf("%s was told to be number %s, and is number %d", element, got, at[element])
			}
		}
	}
	if acknowledged < len(a.told)/2 || len(a.read) < 10 {
		a.t.Errorf("%d of %d acknowledged, %d reads", acknowledged, len(a.told), len(a.read))
	}
	for _, r := range a.read {
		if len(r.list) > len(final) || !slices.Equal(r.list, final[:len(r.list)]) {
			a.t.Errorf("read %v, and the list is %v", r.list, final)
		}
		for _, s := range a.read {
			if s.ended.Before(r.began) && len(s.list) > len(r.list) {
				a.t.Errorf("a read of %d elements after one of %d", len(r.list), len(s.list))
			}
		}
	}
	// Both nodes have applied the same.
	synctest.Wait()
	here, _ := p.fsm.Snapshot().Hash()
	there, _ := p.b.fsm.Snapshot().Hash()
	if here != there {
		a.t.Error("two states")
	}
}

// unlockCommand is the script that every lock client releases with.
var unlockCommand = store.Command{Name: "unlock", Arity: 3, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
	e := c.Lookup(0, c.Args[1])
	if e == nil || e.Str() != c.Arg(2) {
		return store.Int(0)
	}
	c.Delete(0, c.Args[1])
	return store.Int(1)
}}

// J20: a release failed with its connection, and the lock stayed held. Here a release that a node has received is carried out.
func TestJ20ReleaseIsCarriedOut(t *testing.T) {
	for name, release := range map[string]func(p *pair) string{
		"the link breaks before the commit": func(p *pair) string { return p.brokenLink(commitSlowly, "UNLOCK lock me") },
		"the link breaks after it":          func(p *pair) string { return p.brokenLink(returnSlowly, "UNLOCK lock me") },
		"the leader dies, it takes effect":  func(p *pair) string { return p.lostLeader(applyLater, "UNLOCK lock me") },
		"the leader dies, it does not":      func(p *pair) string { return p.lostLeader(supersedeLater, "UNLOCK lock me") },
		"it was never appended":             func(p *pair) string { return p.lostLeader(refuse, "UNLOCK lock me") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newLinked(t, unlockCommand)
				p.expect("OK", "SET lock me NX PX 60000")
				if got := release(p); got != "1" {
					t.Errorf("the release was told %q", got)
				}
				// The next client that asks gets the lock, here at the second node.
				if got := p.doOn(p.b, "SET lock you NX PX 60000"); got != "OK" {
					t.Errorf("the next owner was told %q", got)
				}
				time.Sleep(time.Minute - ms)
				p.expect("you", "GET lock")
			})
		})
	}
}

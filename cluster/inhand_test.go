package cluster

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// A client that takes a lock does not wait for large replies, of which a node has only a few in memory at a time.
func TestLargeRepliesInHand(t *testing.T) {
	for name, c := range map[string]struct{ remote, async, ephemeral bool }{
		"leader":                    {},
		"leader, event loop":        {async: true},
		"follower":                  {remote: true},
		"follower, event loop":      {remote: true, async: true},
		"without a log":             {ephemeral: true},
		"without a log, event loop": {ephemeral: true, async: true},
	} {
		for _, command := range []string{"GET k", "GETRANGE k 0 -1"} {
			t.Run(name+", "+command, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					n, by := leaderAnd(t, c.remote, badCommands...)
					if c.ephemeral {
						n = newEphemeralNode(t, badCommands...)
						by = n
					}
					n.expect("OK", "FILL k 1")
					const clients = 60
					var answered atomic.Int32
					goOn := make(chan struct{})
					var all sync.WaitGroup
					for range clients {
						all.Go(func() {
							client := by.NewClient(heavyHost)
							by.ask(client, c.async, by.call(command))
							answered.Add(1)
							<-goOn
							client.Encoded()
						})
					}
					time.Sleep(20 * ms) // for batches that wait for more
					synctest.Wait()
					limit := fair.RepliesInHand
					if c.remote {
						limit = fair.BeyondInHand // the leader does not know which large replies this node still holds
					}
					atOnce := int32((limit+maxReplyBytes)>>20 + 2)
					if got := answered.Load(); got < 4 || got > atOnce {
						t.Errorf("%d replies of a megabyte are in hand at once, want up to %d", got, atOnce)
					}
					begin := time.Now()
					by.run(by.NewClient(lightHost), c.async, "SET lock me")
					took, most := time.Since(begin), 2*longPause
					if c.remote {
						most = fair.InHandPatience * (forward.MaxPeerOutput>>20 + 1)
					}
					if took > most {
						t.Errorf("a lock took %v, want up to %v", took, most)
					}
					begin = time.Now()
					close(goOn)
					all.Wait()
					if took = time.Since(begin); took >= fair.InHandPatience {
						t.Errorf("the others waited for %v", took)
					}
					if left := by.RepliesInHand(); left != 0 {
						t.Errorf("%d bytes are in hand when all have been encoded", left)
					}
				})
			})
		}
	}
}

// Clients that never report their replies as encoded hold others up for some time, not for ever.
func TestLargeRepliesForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := leaderAnd(t, false, badCommands...)
		n.expect("OK", "FILL k 1")
		for range 40 {
			n.ask(n.NewClient(heavyHost), false, n.call("GET k"))
		}
		begin := time.Now()
		n.expect("OK", "SET lock me")
		if took := time.Since(begin); took > fair.InHandPatience {
			t.Errorf("a lock took %v", took)
		}
	})
}

// While the leader has no room for large replies, small replies do not wait, and one client asks again for all of its node.
func TestLargeRepliesPutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		l, far := testLink()
		defer l.Fail()
		n.routes.set(n.ctx, nil, l)
		room := atomic.Bool{}
		var asked atomic.Int32
		go leaderWithout(far, func(large bool) bool {
			if large {
				asked.Add(1)
			}
			return !large || room.Load()
		})
		var large []<-chan string
		for range 20 {
			large = append(large, n.start("GET large"))
		}
		synctest.Wait()
		for range 100 {
			begin := time.Now()
			if got := <-n.start("SET lock me"); got != "OK" || time.Since(begin) > 0 {
				t.Fatalf("%q after %v", got, time.Since(begin))
			}
			time.Sleep(50 * ms)
		}
		if n := time.Duration(asked.Load()); n > 5*time.Second/retryPause+20 {
			t.Errorf("the leader was asked %d times in 5 s, want %d", n, 5*time.Second/retryPause)
		}
		select {
		case got := <-large[0]:
			t.Errorf("%q after 5 s", got)
		default:
		}
		room.Store(true)
		for _, reply := range large {
			if got := <-reply; got != "OK" {
				t.Errorf("%q", got)
			}
		}
		room.Store(false)
		begin := time.Now()
		one, other := n.start("GET large"), n.start("GET large")
		for _, reply := range []<-chan string{one, other} {
			if got := <-reply; got != "-BUSY" || time.Since(begin).Round(time.Second) != putOffMost {
				t.Errorf("%q after %v", got, time.Since(begin))
			}
		}
	})
}

// A large array stays in the leader's encoding until the node encodes it for the client.
func TestFollowersRepliesStayPacked(t *testing.T) {
	elems := make([]store.Reply, 100_000)
	for i := range elems {
		elems[i] = store.Str("member")
	}
	array := store.Reply{Kind: store.Array, Elems: elems}
	for name, c := range map[string]struct {
		reply store.Reply
		txn   bool
	}{
		"a command":     {reply: array},
		"a transaction": {reply: store.List(store.OK, array), txn: true},
	} {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t)
			l, far := testLink()
			defer l.Fail()
			n.routes.set(n.ctx, nil, l)
			go leaderSaying(far, func([]byte) []byte { return forward.AppendReplies(nil, []store.Reply{c.reply}) })
			calls := n.call("GET large")
			if c.txn {
				calls = n.txn(nil, "GET small", "GET large")
			}
			size := len(store.AppendReply(nil, array))
			for _, async := range []bool{false, true} {
				client := n.NewClient(lightHost)
				got := n.ask(client, async, calls)[0]
				if c.txn && got.Elems[0].Str == "OK" {
					got = got.Elems[1]
				}
				if got.Kind != store.Packed || !reflect.DeepEqual(unpacked(&got), array) {
					t.Errorf("%s: the client gets kind %d with %d elements", name, got.Kind, len(got.Elems))
				}
				if held := int(n.RepliesInHand()); held < size || held > size+fair.SmallReply {
					t.Errorf("%s: %d bytes are in hand, want %d", name, held, size)
				}
				client.Encoded()
			}
			if got := n.Submit(calls, nil)[0]; !reflect.DeepEqual(got, c.reply) {
				t.Errorf("%s: the node gets kind %d with %d elements", name, got.Kind, len(got.Elems))
			}
		})
	}
}

// A follower holds little memory even for a result of tiny elements, because one below SmallReply does not wait for room.
func TestFollowersRepliesOfEmptyElements(t *testing.T) {
	nulls := store.List(slices.Repeat([]store.Reply{store.Nil}, 60_000)...)
	for name, reply := range map[string]store.Reply{
		"empty strings": store.List(slices.Repeat([]store.Reply{store.Str("")}, 30_000)...),
		"nulls":         nulls,
		"fewer nulls":   store.List(nulls.Elems[:5_000]...),
		"few nulls":     store.List(nulls.Elems[:500]...),
		"of a script":   {Kind: store.Noted, Elems: []store.Reply{nulls, store.List(store.Zero, store.Zero, store.Str("get"), store.Str("u"))}},
	} {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t)
			l, far := testLink()
			defer l.Fail()
			n.routes.set(n.ctx, nil, l)
			go leaderSaying(far, func([]byte) []byte { return forward.AppendReplies(nil, []store.Reply{reply}) })
			for _, async := range []bool{false, true} {
				client := n.NewClient(lightHost)
				got := n.ask(client, async, n.call("GET large"))
				if held := fair.Extent(got); held > 2*max(fair.SmallReply, len(store.AppendReply(nil, reply))) {
					t.Errorf("%s: the node holds %d KB of a reply for which nobody waits", name, held>>10)
				}
				if !reflect.DeepEqual(unpacked(&got[0]), reply) {
					t.Errorf("%s: the client gets something else", name)
				}
				client.Encoded()
			}
		})
	}
}

// leaderWithout answers requests as a leader that has no room for some replies.
func leaderWithout(conn net.Conn, room func(large bool) bool) {
	leaderSaying(conn, func(request []byte) []byte {
		if !room(bytes.Contains(request, []byte("large"))) {
			return []byte{forward.ReplyLater}
		}
		return forward.AppendReplies(nil, []store.Reply{store.OK})
	})
}

// leaderSaying answers requests with what say returns.
func leaderSaying(conn net.Conn, say func(request []byte) []byte) {
	r := bufio.NewReader(conn)
	for {
		f, err := readCall(r)
		if err != nil {
			return
		}
		if _, err := conn.Write(oneFrame(forward.Result, f.ID, say(f.Body))); err != nil {
			return
		}
	}
}

// TestReadPutOffKeepsNobodyWaiting: a read was put off for lack of room. It holds up no other request, not even after a change of
// leader.
func TestReadPutOffKeepsNobodyWaiting(t *testing.T) {
	for _, change := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			p.expect("3", "RPUSH list a b c")
			big := p.b.NewClient(netip.MustParseAddr("192.0.2.9"))
			big.Holds(9 << 20)
			read := p.startMany(p.b, "LRANGE list 0 -1")
			time.Sleep(50 * ms)
			if change {
				p.cut()
				time.Sleep(50 * ms)
				p.connect()
			}
			time.AfterFunc(3*time.Second, func() { big.Holds(0) })
			begin := time.Now()
			if got := p.doOn(p.b, "SET lock me NX PX 1000"); got != "OK" {
				t.Error(got)
			}
			if took := time.Since(begin); took > 100*ms {
				t.Errorf("change of leader: %v: a lock takes %v", change, took)
			}
			t.Log(<-read)
		})
	}
}

// TestPutOffWhileAMemberIsDown: the leader puts a large reply off ("later"), even while a member is down from which it has heard
// nothing.
func TestPutOffWhileAMemberIsDown(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	n := newTestNode(t)
	n.peers.Update()
	p := &peerConn{n: n.Node, out: forward.NewOutbox(near)}
	large := strings.Repeat("x", 1<<20)
	get := store.Command{Name: "get", Flags: store.ReadOnly}
	var last *request
	for range 8 {
		last = &request{calls: []Call{{Cmd: &get}}, replies: []store.Reply{store.Str(large)}, extent: len(large)}
		p.answer(1)(last)
	}
	if last.err != forward.ErrReplyLater {
		t.Errorf("the leader says %v", last.err)
	}
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		l, far := testLink()
		defer l.Fail()
		n.routes.set(n.ctx, nil, l)
		go leaderSaying(far, func(request []byte) []byte {
			if bytes.Contains(request, []byte("large")) {
				return []byte{forward.NotExecuted}
			}
			time.Sleep(200 * time.Microsecond)
			return forward.AppendReplies(nil, []store.Reply{store.OK})
		})
		for range 20 {
			n.start("GET large")
		}
		synctest.Wait()
		worst := time.Duration(0)
		for range 20 {
			begin := time.Now()
			got := <-n.start("SET lock me")
			if worst = max(worst, time.Since(begin)); got != "OK" {
				t.Errorf("%q after %v", got, time.Since(begin))
				break
			}
			time.Sleep(3 * ms)
		}
		t.Log(worst)
	})
}

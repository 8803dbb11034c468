package cluster

import (
	"bufio"
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/store"
)

// Many clients ask for a megabyte at once. Only so many have their reply in hand, be it that they are at the leader or
// at a follower, and every other one gets it as soon as those have encoded theirs. Who takes a lock at
// the leader does not wait for long reads.
func TestLargeRepliesInHand(t *testing.T) {
	for name, c := range map[string]struct{ remote, async, ephemeral bool }{
		"leader":                    {},
		"leader, event loop":        {async: true},
		"follower":                  {remote: true},
		"follower, event loop":      {remote: true, async: true},
		"without a log":             {ephemeral: true},
		"without a log, event loop": {ephemeral: true, async: true},
	} {
		for command, limit := range map[string]int{"GET k": beyondInHand, "GETRANGE k 0 -1": repliesInHand} {
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
					if c.remote {
						limit = beyondInHand // its leader knows nothing of what is in hand here
					}
					most := int32((limit+maxReplyBytes)>>20 + 2)
					if got := answered.Load(); got < 4 || got > most {
						t.Errorf("%d replies of a megabyte are in hand at once, want up to %d", got, most)
					}
					begin := time.Now()
					if by.run(by.NewClient(lightHost), c.async, "SET lock me"); limit == repliesInHand && time.Since(begin) > 2*longPause {
						t.Errorf("a lock took %v", time.Since(begin))
					}
					begin = time.Now()
					close(goOn)
					all.Wait()
					if took := time.Since(begin); took >= inHandPatience {
						t.Errorf("the others waited for %v", took)
					}
					if left := by.inHand.bytes.Load(); left != 0 {
						t.Errorf("%d bytes are in hand when all have been encoded", left)
					}
				})
			})
		}
	}
}

// Who says nothing of its replies holds the others up for some time, not for ever.
func TestLargeRepliesForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := leaderAnd(t, false, badCommands...)
		n.expect("OK", "FILL k 1")
		for range 40 {
			n.ask(n.NewClient(heavyHost), false, n.call("GET k"))
		}
		begin := time.Now()
		n.expect("OK", "SET lock me")
		if took := time.Since(begin); took > inHandPatience {
			t.Errorf("a lock took %v", took)
		}
	})
}

// A leader that has no room for a large reply is asked by one client for all. Whoever comes with small requests
// meanwhile does not wait for them, nor do they give up.
func TestLargeRepliesPutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		l, far := testLink()
		defer l.fail()
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

// leaderWithout answers requests as a leader that has no room for some replies.
func leaderWithout(conn net.Conn, room func(large bool) bool) {
	r := bufio.NewReader(conn)
	for {
		f, err := readFrame(r)
		if err != nil {
			return
		}
		result := appendReplies(nil, []store.Reply{store.OK})
		if !room(bytes.Contains(f.body, []byte("large"))) {
			result = []byte{statusReplyLater}
		}
		if _, err := conn.Write(oneFrame(frameResult, f.id, result)); err != nil {
			return
		}
	}
}

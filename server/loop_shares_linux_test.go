package server

import (
	"container/list"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// large returns a command with 40,000 empty arguments, and largeArguments is the memory that these arguments take.
const largeArguments = 40_000 * argumentCost

func large(name string) string {
	return array(append([]string{name}, make([]string, 40_000)...)...)
}

// TestLargeCommandsAreReadInTurn: while large commands wait, the loop reads no more of them, so that no client is cut off.
func TestLargeCommandsAreReadInTurn(t *testing.T) {
	const many, limit = 30, 16 * largeArguments
	ts := newTestServer(t, func(c *Config) { withLoops(1)(c); c.MaxMemoryClients, c.MaxClients = limit, 2*many })
	other := ts.dial(t)
	release := ts.fake.holdBack()
	command := []byte(large("EXISTS"))
	var sent sync.WaitGroup
	var clients []*client
	for range many {
		c := ts.dial(t)
		clients = append(clients, c)
		sent.Go(func() {
			if _, err := c.conn.Write(command); err != nil {
				t.Errorf("a client was cut off: %v", err)
			}
		})
	}
	ts.await(func() bool { return ts.fake.held.Load() >= 1 })
	for range 200 {
		other.do("PING", "+PONG\r\n")
	}
	if held := ts.clientMemory.arriving.Load(); held > limit {
		t.Errorf("%d bytes were read", held)
	}
	release()
	for _, c := range clients {
		c.expect(":0\r\n")
	}
	sent.Wait()
	ts.await(func() bool {
		return ts.clientMemory.arriving.Load() == 0 && ts.hub.accounts.def.memory.complete.Load() == 0
	})
}

// TestLargeCommandsOfWhoWaits: large commands that CLIENT PAUSE holds back for long take all the room. The loop still reads
// large commands of other clients.
func TestLargeCommandsOfWhoWaits(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { withLoops(1)(c); c.MaxMemoryClients = 8 * largeArguments })
	c := ts.dial(t)
	c.do("CLIENT PAUSE 100000 WRITE", "+OK\r\n")
	for range 2 {
		go io.WriteString(ts.dial(t).conn, large("DEL"))
	}
	ts.await(func() bool { return ts.clientMemory.crowded(&ts.hub.accounts.def.memory) })
	var answered atomic.Bool
	go func() {
		_, err := io.WriteString(c.conn, large("EXISTS"))
		if got := make([]byte, 4); err == nil {
			_, err = io.ReadFull(c.conn, got)
			answered.Store(err == nil && string(got) == ":0\r\n")
		}
	}()
	ts.await(answered.Load)
}

// sendsLarge returns an idle connection of a user that has sent a part of a large command.
func sendsLarge(l *loop, user *account) *loopConn {
	c := &loopConn{loop: l, guard: newGuard(nil), s: &session{srv: l.srv}, state: connIdle, ready: true}
	c.s.authed.Store(true)
	c.s.account.Store(user)
	c.guard.large = make([][]byte, manyArguments)
	return c
}

// testLoop returns a loop that nobody runs.
func testLoop(t *testing.T, srv *Server) *loop {
	t.Helper()
	l, err := newLoop(srv)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.closeFiles)
	return l
}

// waiting returns the connections in the list of a share.
func waiting(list *list.List) (conns []*loopConn) {
	for e := list.Front(); e != nil; e = e.Next() {
		conns = append(conns, e.Value.(*loopConn))
	}
	return conns
}

// TestLargeCommandInParts: a command read in part goes before the others. After each part the loop serves other clients, for longer if the
// user is crowded.
func TestLargeCommandInParts(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.MaxMemoryClients = 1 << 20 })
	l := testLoop(t, ts.Server)
	user := &account{}
	begun, second, third := sendsLarge(l, user), sendsLarge(l, user), sendsLarge(l, user)
	begun.part = true
	for _, c := range []*loopConn{second, begun, third} {
		l.turn(c)
	}
	if got, want := waiting(&l.incoming.queue), []*loopConn{begun, second, third}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
	for _, c := range []*loopConn{begun, second, third} {
		c.state = connRunning // so that nothing is read
	}
	// serves counts the rounds until the loop serves a connection.
	serves := func() (rounds int) {
		left := l.incoming.queue.Len()
		for ; l.incoming.queue.Len() == left; rounds++ {
			l.now = ts.cfg.Clock()
			l.serveShares()
			ts.fake.advance(crowdLook) // the round takes that long
			l.sharesServed()
		}
		return rounds
	}
	l.lightAt = ts.cfg.Clock() // another client has sent something
	if n := serves(); n != 1 {
		t.Errorf("the first part was read in round %d", n)
	}
	if n := serves(); n != 1+shareRest {
		t.Errorf("the second part was read in round %d", n)
	}
	ts.fake.advance(aloneAfter)
	user.memory.complete.Add(1 << 19)
	if n := serves(); n != 1+crowdLooks {
		t.Errorf("the third part was read in round %d, while a large command waits", n)
	}
}

// TestLargeCommandsOfOtherUsers: users have turns, however many connections each has. The loop passes over a user whose commands take too
// much memory.
func TestLargeCommandsOfOtherUsers(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.MaxMemoryClients = 1 << 20 })
	l := testLoop(t, ts.Server)
	hostile, good := &account{name: "hostile"}, &account{name: "good"}
	wait := func(user *account) {
		c := sendsLarge(l, user)
		c.state = connRunning // so that nothing is read
		l.incoming.add(c)
	}
	for range 20 {
		wait(hostile)
	}
	for range 3 {
		wait(good)
	}
	order := func(n int) (served []string) {
		for range n {
			l.now = l.now.Add(time.Second)
			before := waiting(&l.incoming.queue)
			l.serveShares()
			for _, c := range before {
				if c.share == nil {
					served = append(served, c.s.userName())
				}
			}
		}
		return served
	}
	if got := order(4); !slices.Equal(got, []string{"hostile", "good", "hostile", "good"}) {
		t.Errorf("the turns are %v", got)
	}
	hostile.memory.complete.Add(1 << 19)
	wait(good)
	if got := order(2); !slices.Equal(got, []string{"good", "good"}) {
		t.Errorf("the turns are %v, while commands of one user take the room", got)
	}
	if got := order(crowdLooks); !slices.Equal(got, []string{"hostile"}) {
		t.Errorf("then the turns are %v", got)
	}
}

// TestWhoHasManyClientsIsCutOffFirst: the user whose clients together hold most loses a client next, even if each of them holds little.
func TestWhoHasManyClientsIsCutOffFirst(t *testing.T) {
	good, many, idle := &account{name: "good"}, &account{name: "many"}, &account{name: "idle"}
	client := func(user *account, n int64) holder {
		s := &session{}
		s.account.Store(user)
		return holder{s: s, n: n}
	}
	var got []string
	for h := range mostFirst([]holder{client(good, 50), client(many, 20), client(many, 30), client(many, 20), client(idle, 0)}) {
		got = append(got, fmt.Sprint(h.s.userName(), h.n))
	}
	if want := []string{"many30", "good50", "many20", "many20", "idle0"}; !slices.Equal(got, want) {
		t.Errorf("they go in the order %v, want %v", got, want)
	}
}

// TestSlowConnectionsComeInTurn: connections with large commands, and those that are to be closed, get some time in a round. Then they rest,
// unless there are no light clients.
func TestSlowConnectionsComeInTurn(t *testing.T) {
	ts := newTestServer(t, func(*Config) {})
	l := testLoop(t, ts.Server)
	for i := range 12 {
		c := sendsLarge(l, &account{})
		if c.guard.large = make([][]byte, 1); i%2 == 0 {
			c.guard.large, c.leaving = nil, true
		}
		l.turn(c)
		c.state = connRunning // so that nothing is read
	}
	l.now = ts.cfg.Clock()
	var took time.Duration
	l.srv = &Server{cfg: Config{Clock: func() time.Time { // each connection takes half of slowTurn
		took += slowTurn / 2
		return l.now.Add(took)
	}}, clientMemory: clientMemory{limit: ts.clientMemory.limit}}
	rounds := func(n int) (served []int) {
		for range n {
			before := l.slow.queue.Len()
			l.serveShares()
			l.sharesServed()
			served = append(served, before-l.slow.queue.Len())
			l.now, took = l.now.Add(max(took, slowTurn)), 0
		}
		return served
	}
	l.lightAt = l.now.Add(time.Second) // another client has sent something
	if got := rounds(4); !slices.Equal(got, []int{2, 0, 2, 0}) {
		t.Errorf("beside light clients, rounds served %v", got)
	}
	l.now, l.lightAt = l.slow.due, time.Time{}
	if got := rounds(5); !slices.Equal(got, []int{2, 2, 2, 2, 0}) {
		t.Errorf("without light clients, rounds served %v", got)
	}
}

// TestWhoHasHungUpIsSlowAtTheEnd: the loop reads what a client has sent before it hung up at once, and only closes its connection in a turn
// of slow connections. Meanwhile the connection counts as departed, so that it makes room for a new client.
func TestWhoHasHungUpIsSlowAtTheEnd(t *testing.T) {
	ts := newTestServer(t, func(*Config) {})
	l := testLoop(t, ts.Server)
	c := sendsLarge(l, &account{})
	c.guard.policy, c.guard.large, c.guard.end, c.hungUp = c.s, nil, io.EOF, true
	if c.isSlow() {
		t.Error("it is slow before its input has ended")
	}
	l.turn(c)
	if !c.leaving || !c.isSlow() || !slices.Equal(l.ready, []*loopConn{c}) {
		t.Errorf("leaving is %v, and ready are %v", c.leaving, l.ready)
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if n := ts.departed.Len(); n != 1 {
		t.Errorf("%d clients have departed", n)
	}
}

// TestStrangersThatHaveHungUpComeLast: a stranger that waits for its reply is served before strangers that have closed their
// connections. The loop serves these last.
func TestStrangersThatHaveHungUpComeLast(t *testing.T) {
	var s share
	var conns []*loopConn
	add := func(hungUp bool) {
		c := &loopConn{state: connGone, ready: true}
		c.hungUp = hungUp
		conns = append(conns, c)
		c.waitIn(&s.queue)
	}
	for _, hungUp := range []bool{true, true, false, true, false} {
		add(hungUp)
	}
	var order []int
	for !s.isEmpty() {
		s.nextStranger()
		for i, c := range conns {
			if !c.ready && !slices.Contains(order, i) {
				order = append(order, i)
			}
		}
		if len(order) == 2 {
			add(false) // this newcomer is served before the strangers that came earlier and have hung up
		}
	}
	if want := []int{2, 4, 5, 0, 1, 3}; !slices.Equal(order, want) {
		t.Errorf("served in the order %v, want %v", order, want)
	}
}

// TestFamiliarStrangersHaveEverySecondTurn: neither strangers at familiar addresses nor the others wait until all of the other kind have
// been served.
func TestFamiliarStrangersHaveEverySecondTurn(t *testing.T) {
	var s share
	names := map[*loopConn]string{}
	for _, name := range []string{"far", "far", "far", "far", "near", "near gone", "near"} {
		c := &loopConn{state: connGone, ready: true, s: &session{}}
		names[c], c.hungUp = name, name == "near gone"
		if name == "far" {
			c.waitIn(&s.queue)
		} else {
			c.waitIn(&s.near)
		}
	}
	var order []string
	for !s.isEmpty() {
		s.nextStranger()
		for c, name := range names {
			if !c.ready {
				order = append(order, name)
				delete(names, c)
			}
		}
	}
	if want := []string{"far", "near", "far", "near", "far", "far", "near gone"}; !slices.Equal(order, want) {
		t.Errorf("served in the order %v, want %v", order, want)
	}
}

// TestEndedConnectionsLeaveTheirShare: clients connect, send something and disconnect faster than the loop serves its shares.
// Their connections do not stay in the queues of the shares.
func TestEndedConnectionsLeaveTheirShare(t *testing.T) {
	for name, queue := range map[string]func(*loop, *loopConn){
		"strangers": func(l *loop, c *loopConn) { c.s.authed.Store(false) },
		"strangers that have hung up": func(l *loop, c *loopConn) {
			c.s.authed.Store(false)
			c.hungUp = true
			l.turn(c)
			c.waitIn(&l.strangers.last)
		},
		"large commands": func(l *loop, c *loopConn) { c.guard.large = make([][]byte, manyArguments) },
	} {
		ts := newTestServer(t, func(c *Config) { c.RequirePass = "secret" })
		l, err := newLoop(ts.Server)
		if err != nil {
			t.Fatal(err)
		}
		defer l.closeFiles()
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		for range 3 {
			there, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			here, err := ln.Accept()
			if err == nil {
				err = ts.adopt(here.(*net.TCPConn), nil, l, FacePlain)
			}
			if err != nil {
				t.Fatal(err)
			}
			l.hear() // the connection joins
			there.Close()
		}
		waiting := func() int { return l.strangers.queue.Len() + l.strangers.last.Len() + l.incoming.queue.Len() }
		var conns []*loopConn
		for _, c := range l.conns {
			if c == nil {
				continue
			}
			c.s.authed.Store(true)
			queue(l, c)
			l.turn(c)
			conns = append(conns, c)
		}
		if n := waiting(); n != 3 || len(conns) != 3 {
			t.Fatalf("%s: %d of %d connections wait", name, n, len(conns))
		}
		for _, c := range conns {
			l.retire(c)
		}
		if n := waiting(); n > 0 {
			t.Errorf("%s: %d ended connections wait", name, n)
		}
	}
}

// TestSendersOfLargeCommandsWaitForTheCollector: while memory is scarce, and for some time after the garbage collection, a loop reads no
// large command.
func TestSendersOfLargeCommandsWaitForTheCollector(t *testing.T) {
	scarce := false
	ts := newTestServer(t, func(c *Config) { c.scarce = func() bool { return scarce } })
	l := testLoop(t, ts.Server)
	wait := func() {
		c := sendsLarge(l, &account{})
		c.guard.large = c.guard.large[:1]
		l.now = ts.cfg.Clock()
		if l.incoming.has(c) {
			t.Error("a command with one argument waits, while there is memory")
		}
		scarce = true
		ts.largeGarbage.bytes.Store(strangersGarbage)
		if !l.incoming.has(c) {
			t.Fatal("a command with one argument is read, while memory is scarce")
		}
		l.turn(c)
		c.state = connRunning // so that nothing is read
	}
	// serves counts the rounds until the loop serves the connection. Memory is scarce in the first rounds; the argument
	// some says in how many.
	serves := func(some int, others bool) (rounds int) {
		for ; l.incoming.queue.Len() > 0; rounds++ {
			scarce = rounds < some
			l.now = ts.cfg.Clock()
			if others {
				l.lightAt = l.now
			}
			l.serveShares()
			ts.fake.advance(crowdLook) // the round takes that long
			l.sharesServed()
		}
		return rounds
	}
	for _, test := range []struct {
		some   int
		others bool
		want   int
	}{
		{20, true, 20 + shareRest*20 + 1},
		{1 << 20, true, int(yieldMost/crowdLook) + int(yieldMost/crowdLook) + 1}, // memory is scarce for longer than yieldMost
		{20, false, 20 + 1},
	} {
		ts.fake.advance(aloneAfter)
		if wait(); serves(test.some, test.others) != test.want {
			l.incoming.rest = time.Time{}
			t.Errorf("%v: the command is not read in round %d", test, test.want)
		}
		scarce = false
	}
}

// TestLoopDoesNotWaitForTheCollector: while memory is scarce, the sender of a large command waits for the collector, and the loop serves
// others.
func TestLoopDoesNotWaitForTheCollector(t *testing.T) {
	var scarce atomic.Bool
	ts := newTestServer(t, func(c *Config) { withLoops(1)(c); c.scarce = scarce.Load })
	other, sender := ts.dial(t), ts.dial(t)
	sender.send(large("EXISTS"))
	sender.expect(":0\r\n")
	if n := ts.largeGarbage.bytes.Load(); n < largeArguments {
		t.Errorf("the command counts as %d bytes", n)
	}
	scarce.Store(true)
	ts.largeGarbage.bytes.Store(strangersGarbage)
	go io.WriteString(sender.conn, large("EXISTS"))
	for range 100 {
		other.do("PING", "+PONG\r\n")
	}
	_ = sender.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := sender.conn.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a large command was served")
	}
	_ = sender.conn.SetReadDeadline(time.Time{})
	scarce.Store(false)
	sender.expect(":0\r\n")
}

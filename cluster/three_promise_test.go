package cluster

import (
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func leaseReads(cfg *Config) { cfg.LeaseReads = true }

// readsFor reads through a node for a while, and counts the reads that asked a follower.
func (c *bubbled) readsFor(i int, d time.Duration, want string) (reads, asked int) {
	c.t.Helper()
	for begin := time.Now(); time.Since(begin) < d; time.Sleep(ms) {
		start := time.Now()
		c.expect(i, want, "GET k")
		reads++
		if time.Since(start) >= 2*bubbleDelay {
			asked++
		}
	}
	return reads, asked
}

// A leader asks its followers once in a while, and without the option for each read.
func TestLeaseReads(t *testing.T) {
	for what, c := range map[string]struct {
		with  []string // ids
		asked func(asked, reads int) bool
	}{
		"nobody makes promises":    {nil, func(asked, reads int) bool { return asked == reads }},
		"all do":                   {[]string{"n1", "n2", "n3"}, func(asked, reads int) bool { return asked <= reads/20 }},
		"the followers do not":     {[]string{"n1"}, func(asked, reads int) bool { return asked == reads }},
		"the leader does not read": {[]string{"n2", "n3"}, func(asked, reads int) bool { return asked == reads }},
		"one follower does":        {[]string{"n1", "n3"}, func(asked, reads int) bool { return asked <= reads/20 }},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bubbled) {
				if b.leader() != 0 {
					b.transfer(b.nodes[0], 0)
				}
				b.expect(0, "OK", "SET k v")
				if reads, asked := b.readsFor(0, 2*time.Second, "v"); !c.asked(asked, reads) {
					t.Errorf("%d of %d reads asked a follower", asked, reads)
				}
			}, func(cfg *Config) {
				for _, id := range c.with {
					cfg.LeaseReads = cfg.LeaseReads || cfg.ID == id
				}
			})
		})
	}
}

// While a leader relies on a promise nobody is elected, however an election comes
// about: not by the votes of those who have heard of it, nor of those who have not,
// nor of one that was started again.
func TestNoElectionWhileALeaderReads(t *testing.T) {
	const deaf = 300 * ms // less than Raft waits before it stands, more than a promise
	for what, prepare := range map[string]func(c *bubbled, leader, candidate, voter int){
		"both have promised": func(*bubbled, int, int, int) {},
		"the candidate alone": func(c *bubbled, leader, _, voter int) {
			c.wires.cut([]string{c.cfg[leader].ID}, []string{c.cfg[voter].ID})
			c.readsFor(leader, deaf, "old")
		},
		"the voter alone": func(c *bubbled, leader, candidate, _ int) {
			c.wires.cut([]string{c.cfg[leader].ID}, []string{c.cfg[candidate].ID})
			c.readsFor(leader, deaf, "old")
		},
		"the voter alone, before it was started again": func(c *bubbled, leader, candidate, voter int) {
			c.wires.cut([]string{c.cfg[leader].ID}, []string{c.cfg[candidate].ID})
			c.readsFor(leader, deaf, "old")
			c.wires.cut([]string{c.cfg[leader].ID}, []string{c.cfg[voter].ID})
			c.crash(voter)
			n, err := Open(c.cfg[voter])
			if err != nil {
				c.t.Fatal(err)
			}
			c.nodes[voter] = n
		},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(c *bubbled) {
				leader := c.leader()
				candidate, voter := (leader+1)%3, (leader+2)%3
				c.expect(leader, "OK", "SET k old")
				c.readsFor(leader, 200*ms, "old")
				prepare(c, leader, candidate, voter)
				c.alone(leader)
				start := time.Now()
				c.expect(leader, "old", "GET k") // by its lease: nobody hears it
				if took := time.Since(start); took != 0 {
					t.Fatalf("a read that needs nobody took %v", took)
				}
				if err := c.nodes[candidate].cons.Campaign(); err != nil {
					t.Fatal(err)
				}
				next := c.leaderOf(candidate, voter)
				c.expect(next, "OK", "SET k new")
				if took := time.Since(start); took > 2*votePromise+50*ms {
					t.Fatalf("another leader has written after %v: Raft's timers have elected it", took)
				}
				if got := c.do(leader, "GET k"); got == "old" {
					t.Error("a leader that was replaced reads by its lease")
				}
			}, leaseReads)
		})
	}
}

// A handover waits for the promises, and succeeds.
func TestHandoverWithLeaseReads(t *testing.T) {
	inBubble(t, func(c *bubbled) {
		for range 10 {
			leader := c.leader()
			c.readsFor(leader, 200*ms, "nil")
			next := (leader + 1) % 3
			start := time.Now()
			if err := c.nodes[leader].Transfer(c.cfg[next].ID); err != nil {
				t.Fatal(err)
			}
			c.until("the handover", func() bool { return c.nodes[next].routes.get().seq != nil })
			if took := time.Since(start); took > votePromise+50*ms {
				t.Errorf("a handover took %v", took)
			}
		}
	}, leaseReads)
}

// still is a clock, and a time of day, that the test sets.
type still struct {
	mono time.Duration
	wall time.Time
}

func (s still) Monotonic() time.Duration { return s.mono }
func (s still) Wall() time.Time          { return s.wall }

// Which promises a leader relies on.
func TestWhatMakesALease(t *testing.T) {
	day := time.Unix(1e9, 0)
	now := still{time.Minute, day}
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}, {ID: "n4", Suffrage: raft.Nonvoter}}}
	good := ack{term: 7, promised: true, at: now.mono - leaderLease + ms, wall: day.Add(-leaderLease + ms)}
	with := func(change func(*ack)) map[raft.ServerID]ack {
		a := good
		change(&a)
		return map[raft.ServerID]ack{"n2": a}
	}
	for what, c := range map[string]struct {
		acks map[raft.ServerID]ack
		want bool
	}{
		"nobody has answered":           {nil, false},
		"one voter has promised":        {with(func(*ack) {}), true},
		"it has not promised":           {with(func(a *ack) { a.promised = false }), false},
		"it promised another leader":    {with(func(a *ack) { a.term = 6 }), false},
		"that was too long ago":         {with(func(a *ack) { a.at -= ms }), false},
		"this machine was suspended":    {with(func(a *ack) { a.wall = day.Add(-time.Hour) }), false},
		"its time of day was set back":  {with(func(a *ack) { a.wall = day.Add(time.Hour) }), false},
		"one without a vote has":        {map[raft.ServerID]ack{"n4": good}, false},
		"one that is no member has":     {map[raft.ServerID]ack{"n9": good}, false},
		"one voter of two has, and n4":  {map[raft.ServerID]ack{"n3": good, "n4": good}, true},
		"one did, the other of no term": {map[raft.ServerID]ack{"n2": good, "n3": {}}, true},
	} {
		tr := &transport{acks: c.acks, time: now}
		if got := tr.leased("n1", conf, 7); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	left := raft.Configuration{Servers: conf.Servers[1:2]}
	if tr := (&transport{acks: with(func(*ack) {}), time: now}); tr.leased("n1", left, 7) {
		t.Error("a leader that is no member any more has a lease")
	}
}

// A node that stops meanwhile has given no vote.
func TestStoppedBeforeThePromiseIsOver(t *testing.T) {
	a := newPeer(t, "127.0.0.1:0", leaseReads)
	vote := make(chan raft.RPCResponse, 1)
	inner := a.withhold(raft.RPC{Command: &raft.RequestVoteRequest{}, RespChan: vote})
	a.held.promise()
	a.held.until += time.Hour
	inner.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
	asked := make(chan error, 1)
	go func() {
		asked <- a.RequestVote("b", "127.0.0.1:1", &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{})
	}()
	select {
	case got := <-vote:
		t.Fatalf("the vote has left: %+v", got)
	case err := <-asked:
		t.Fatal("it has voted for itself:", err)
	case <-time.After(50 * ms):
	}
	a.Close()
	if got := <-vote; got.Error != raft.ErrRaftShutdown || got.Response != nil {
		t.Errorf("the stop let a vote out: %+v", got)
	}
	if err := <-asked; err != raft.ErrRaftShutdown {
		t.Errorf("the stop let a candidate go on: %v", err)
	}
}

// What a node says of itself, as an earlier and a later version say it, too.
func TestSaidBy(t *testing.T) {
	for addr, want := range map[string]selfReport{
		"host:1":                               {},
		"host:1\x00dir":                        {directory: []byte("dir")},
		"host:1\x00dir\x00promises":            {directory: []byte("dir"), promises: true},
		"host:1\x00dir\x00listens":             {directory: []byte("dir"), listens: true},
		"host:1\x00dir\x00promises\x00listens": {directory: []byte("dir"), promises: true, listens: true},
		"host:1\x00dir\x00later\x00listens":    {directory: []byte("dir"), listens: true},
	} {
		if got := saidBy(raft.RPCHeader{Addr: []byte(addr)}); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", addr, got, want)
		}
	}
	for promising := range 2 {
		for listening := range 2 {
			tr := &transport{NetworkTransport: new(raft.NetworkTransport), self: "n1", addr: "host:1", directory: "dir", cluster: func() string { return "name" },
				promises: promising == 1, listens: func() bool { return listening == 1 }}
			want := selfReport{[]byte("dir"), []byte("name"), promising == 1, listening == 1}
			if got := saidBy(tr.header()); !reflect.DeepEqual(got, want) {
				t.Errorf("%+v is read as %+v", want, got)
			}
		}
	}
}

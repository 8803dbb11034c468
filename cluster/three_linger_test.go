package cluster

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// lastIndex is how far the log of a node reaches.
func (c *bubbled) lastIndex(i int) uint64 { return c.nodes[i].cons.(*raftLog).raft.LastIndex() }

// Of two followers the one that would stand last gets what it was not needed for a moment
// later. It is needed, and has everything at once, when the other is gone.
func TestRealRaftFollowerThatIsNotNeeded(t *testing.T) {
	const leader, needed, spare = 0, 1, 2
	const soon = 8 * bubbleDelay // there and back, perhaps behind another request
	inBubble(t, func(c *bubbled) {
		c.transfer(c.nodes[leader], leader)
		time.Sleep(100 * ms)
		const writes = 300
		var at [writes]time.Time // after which the leader's log had so many entries more
		first, lacked, behind := c.lastIndex(leader), 0, 0
		for i := range at {
			c.write(leader)
			at[i] = time.Now()
			if c.lastIndex(needed) < c.lastIndex(leader) {
				behind++
			}
			has := int(c.lastIndex(spare) - first)
			if has <= i {
				lacked++
				if late := time.Since(at[has]); late > lingering+soon {
					t.Errorf("the other one has not got an entry after %v", late)
				}
			}
		}
		if lacked < writes*3/4 || behind > writes/10 {
			t.Errorf("of %d times the follower that is not needed lacked the last entry %d times, and the one that is %d times", writes, lacked, behind)
		}
		time.Sleep(lingering + soon)
		if got, want := c.lastIndex(spare), c.lastIndex(leader); got != want {
			t.Errorf("the other one has %d of %d entries after it was left alone", got, want)
		}
		c.alone(needed)
		c.write(leader)
		for range 20 {
			if took := c.write(leader); took > soon {
				t.Errorf("a write without the follower that was needed took %v", took)
			}
		}
		c.wires.heal()
		c.leader()
		c.same()
	}, func(cfg *Config) {
		dial := cfg.dial
		cfg.dial = func(addr string, proto byte, timeout time.Duration) (net.Conn, error) {
			conn, err := dial(addr, proto, timeout)
			if addr == cfg.Peers[spare].Addr && err == nil {
				conn = laterConn{conn}
			}
			return conn, err
		}
	})
}

// laterConn is a connection on a longer way.
type laterConn struct{ net.Conn }

func (c laterConn) Write(p []byte) (int, error) {
	time.Sleep(bubbleDelay / 3)
	return c.Conn.Write(p)
}

// TestWhoIsNotNeeded: a majority must have an entry without it, and it is not one of those
// who would stand first.
func TestWhoIsNotNeeded(t *testing.T) {
	voter := func(id string) raft.Server { return raft.Server{ID: raft.ServerID(id), Suffrage: raft.Voter} }
	learner := raft.Server{ID: "x", Suffrage: raft.Nonvoter}
	three := []raft.Server{voter("c"), voter("a"), voter("b")}
	five := append([]raft.Server{voter("e"), voter("d")}, three...)
	for _, tt := range []struct {
		self    string
		servers []raft.Server
		have    string // who has taken the entry
		spare   string // who is not needed
	}{
		{"a", three, "", ""},
		{"a", three, "b", "c"},
		{"a", three, "c", ""},
		{"a", three, "bc", "c"},
		{"b", three, "a", "c"},
		{"c", three, "a", "b"},
		{"a", five, "bc", "de"},
		{"a", five, "bd", "e"},
		{"a", five, "b", ""},
		{"a", five, "bcde", "de"},
		{"a", five, "bde", "de"},
		{"a", three[:2], "c", ""},
		{"a", append([]raft.Server{learner}, three...), "b", "cx"},
		{"a", append([]raft.Server{learner}, three...), "x", ""},
		{"x", append([]raft.Server{learner}, three...), "abc", ""},
	} {
		tr := &transport{self: tt.self, matches: map[raft.ServerID]matched{}}
		req := &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 41, Entries: []*raft.Log{{Index: 42}}}
		for _, id := range tt.have {
			tr.matches[raft.ServerID(id)] = matched{7, 42}
		}
		got := ""
		for _, s := range slices.SortedFunc(slices.Values(tt.servers), byID) {
			if string(s.ID) != tt.self && tr.spare(raft.Configuration{Servers: tt.servers}, s.ID, req) {
				got += string(s.ID)
			}
		}
		if got != tt.spare {
			t.Errorf("%s leads %v, %q have the entry: %q are not needed, want %q", tt.self, tt.servers, tt.have, got, tt.spare)
		}
		req.Term = 8
		if tr.spare(raft.Configuration{Servers: tt.servers}, "c", req) {
			t.Errorf("%s: what was taken in another term counts", tt.self)
		}
	}
}

// TestAnswersAtOnce: of followers that answer at the same time those are needed that come first.
func TestAnswersAtOnce(t *testing.T) {
	conf := raft.Configuration{}
	for _, id := range "abcde" {
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(id), Suffrage: raft.Voter})
	}
	tr := &transport{self: "a", matches: map[raft.ServerID]matched{}, audience: map[raft.ServerID]*listener{}}
	for index := uint64(42); index < 44; index++ {
		req := &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: index - 1, Entries: []*raft.Log{{Index: index}}}
		for _, step := range []struct {
			id    raft.ServerID
			spare bool
		}{{"b", false}, {"d", false}, {"e", true}, {"d", true}, {"c", false}} {
			if got := tr.take(conf, step.id, "", req, false); got != step.spare {
				t.Errorf("%s takes entry %d: to be left alone: %v, want %v", step.id, index, got, step.spare)
			}
		}
	}
	// What follows is asked of e, without which a majority has entry 43.
	for what, ask := range map[string]struct {
		entries int
		listens bool
	}{"listens": {1, true}, "is behind": {lingeringEntries + 1, false}, "was told of a commit": {0, false}} {
		req := &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 43 - uint64(ask.entries), Entries: make([]*raft.Log, ask.entries)}
		if tr.take(conf, "e", "", req, ask.listens) {
			t.Errorf("one that %s is left alone", what)
		}
	}
}

package cluster

import (
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/cluster/internal/peers"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/conformance/ports"
)

// ballot is a log of a cluster of four voters and a non-voter, led by n0.
type ballot struct {
	*fakeLog
	stood []time.Time
	whole atomic.Pointer[time.Time] // when the log has been applied
}

func (b *ballot) Fixed() bool          { return false }
func (b *ballot) CaughtUp() bool       { return !time.Now().Before(*b.whole.Load()) }
func (b *ballot) Led()                 { b.wholeAt(time.Now().Add(time.Hour)) }
func (b *ballot) wholeAt(at time.Time) { b.whole.Store(&at) }

func (b *ballot) Campaign() error {
	b.stood = append(b.stood, time.Now())
	return nil
}

func (b *ballot) Members() ([]raftnode.Member, error) {
	return []raftnode.Member{{ID: "n4", Voter: true}, {ID: "n2", Voter: true}, {ID: "n0", Voter: true, Leader: true}, {ID: "n3", Voter: true},
		{ID: "n1", Voter: true}, {ID: "guest"}}, nil
}

// suspicion makes a node suspect the leader n0, and calls happen. stood has the times since n0's last contact when the node stood for
// election.
func suspicion(t *testing.T, id string, happen func(*testNode)) (stood []time.Duration) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		b := &ballot{fakeLog: n.log}
		n.cons, n.cfg.ID = b, id
		n.log.set(func(l *fakeLog) { l.contact = time.Now() })
		heard := time.Now()
		n.leads <- raftnode.Leadership{ID: "n0"}
		time.Sleep(60 * ms)
		synctest.Wait()
		b.wholeAt(heard)
		n.suspect(raftnode.Leadership{ID: "n0"})
		if happen != nil {
			happen(n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, at := range b.stood {
			stood = append(stood, at.Sub(heard))
		}
	})
	return stood
}

// The members that may stand for election stand one after the other, each once. The others do not stand.
func TestSuspectedLeader(t *testing.T) {
	for id, want := range map[string]time.Duration{"n1": 125 * ms, "n2": 325 * ms, "n3": 0, "n4": 0, "guest": 0, "n9": 0} {
		stood := suspicion(t, id, nil)
		switch {
		case want == 0 && len(stood) == 0:
		case len(stood) == 1 && stood[0] >= want && stood[0] < want+2*peers.SuspectTick:
		default:
			t.Errorf("%s stood for election at %v, want %v", id, stood, want)
		}
	}
}

// A leader whose heartbeats arrive is not replaced, though its port refuses connections.
func TestSuspectIsHeardOf(t *testing.T) {
	stood := suspicion(t, "n1", func(n *testNode) {
		for range 30 {
			n.log.set(func(l *fakeLog) { l.contact = time.Now() })
			time.Sleep(100 * ms) // the longest time between two heartbeats
		}
	})
	if len(stood) != 0 {
		t.Errorf("stood for election at %v against a leader that lives", stood)
	}
}

// If a new leader is known, whether another node or this one, the node does not stand for election.
func TestSuspectIsReplaced(t *testing.T) {
	for _, l := range []raftnode.Leadership{{ID: "n2"}, {ID: "n1", Self: true}} {
		stood := suspicion(t, "n1", func(n *testNode) {
			n.leads <- raftnode.Leadership{}
			time.Sleep(20 * ms)
			n.leads <- l
		})
		if len(stood) != 0 {
			t.Errorf("stood for election at %v, led by %+v", stood, l)
		}
	}
}

// A node gives another candidate time to win, and more time if it has voted for the candidate, before it stands for election.
func TestSuspectHasACandidate(t *testing.T) {
	for voted, want := range map[bool]time.Duration{false: 225 * ms, true: 445 * ms} {
		stood := suspicion(t, "n2", func(n *testNode) {
			time.Sleep(40 * ms)
			n.log.set(func(l *fakeLog) { l.term++ })
			n.leads <- raftnode.Leadership{}
			time.Sleep(20 * ms)
			if voted {
				n.log.set(func(l *fakeLog) { l.contact = time.Now() })
			}
		})
		if len(stood) != 1 || stood[0] < want || stood[0] > want+2*peers.SuspectTick {
			t.Errorf("stood for election at %v, want %v", stood, want)
		}
	}
}

// A node does not stand for election before it has applied the leader's entries. Other nodes can lead at once.
func TestSuspectHasItsLogToApply(t *testing.T) {
	for late, want := range map[time.Duration]time.Duration{50 * ms: 125 * ms, 300 * ms: 300 * ms, 2 * time.Second: 0} {
		stood := suspicion(t, "n1", func(n *testNode) {
			n.cons.(*ballot).wholeAt(time.Now().Add(late - 60*ms))
			time.Sleep(100 * ms)
			n.leads <- raftnode.Leadership{} // Raft's timer knows, too, that the leader is gone
		})
		if want == 0 && len(stood) == 0 {
			continue
		}
		if len(stood) != 1 || stood[0] < want || stood[0] > want+2*peers.SuspectTick {
			t.Errorf("stood for election at %v, want %v", stood, want)
		}
	}
}

// An ephemeral node has nobody to suspect and no election to stand for.
func TestSuspectWithoutElections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.suspect(raftnode.Leadership{ID: "n0"})
		synctest.Wait()
	})
}

// The timers are set to many seconds here. So only the refused connection can have told the other nodes that their leader is
// dead.
func TestDeadLeaderIsReplacedAtOnce(t *testing.T) {
	const timer = 5 * time.Second
	c := startThree(t, func(cfg *Config) {
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = timer, timer, timer
	})
	for i := range c.nodes {
		c.cfg[i].Sink = &notes{}
		n, err := Open(c.cfg[i])
		if err != nil {
			t.Fatal(err)
		}
		c.nodes[i] = n
	}
	if err := c.nodes[1].cons.Campaign(); err != nil {
		t.Fatal(err)
	}
	if c.leader() != 1 {
		t.Fatal("n2 stood for election and does not lead")
	}
	c.expect(0, "OK", "SET lock owner NX PX 3600000")
	start := time.Now()
	c.crash(1)
	c.leader()
	if took := time.Since(start); took >= timer {
		t.Errorf("another leader after %v: by Raft's timers", took)
	}
	c.expect(2, "owner", "GET lock")
}

func TestRefused(t *testing.T) {
	if _, err := (&peerport.Dialer{Network: peerport.DialTCP}).Dial(ports.Addrs(t, 1)[0], peerport.ProtoForward, peerport.DialTimeout); !peers.Refused(err) {
		t.Errorf("nobody listens: %v", err)
	}
	for _, err := range []error{nil, io.EOF, &net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}, &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}} {
		if peers.Refused(err) {
			t.Errorf("%v does not say that the process is gone", err)
		}
	}
}

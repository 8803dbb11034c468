package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
)

// How this package and the real hashicorp/raft work together, in virtual time (see bubble_test.go): elections, handovers,
// partitions, snapshots.

// While a leader is cut off for minutes, leases grow only by the time without a leader, and a forwarded request is executed once.
func TestRealRaftLeaderCutOff(t *testing.T) {
	inBubble(t, func(c *bubbled) {
		old := c.leader()
		via, other := (old+1)%3, (old+2)%3
		c.expect(via, "OK", "SET lock me NX PX 20000")
		granted := time.Now()
		c.expect(other, "OK", "SET long me NX PX 120000")
		time.Sleep(3500 * ms) // half a second after the leader has logged the time

		before, cut := c.lengthened(), time.Now()
		c.alone(old)
		carried, lost := c.ask(via, "INCR carried"), c.ask(old, "INCR lost")
		time.Sleep(2 * fair.GatherLimit) // otherwise the next requests would be in the same batch
		behind, read := c.ask(old, "INCR behind"), c.ask(old, "GET long")
		c.mustTell(carried, "a write through a follower", "1", cut, 0, c.cfg[via].FailoverWait)
		leaderless := time.Since(cut)
		c.expect(c.leaderOf(via, other), "1 me", "GET carried", "GET long")
		if by := c.lengthened() - before; by < 400*ms || by > leaderless+lastEntryLate {
			t.Errorf("the leases were lengthened by %v, and nobody led for %v", by, leaderless)
		}
		wait := c.cfg[old].FailoverWait
		c.mustTell(lost, "a write that was in flight", "-INDETERMINATE", cut, wait, wait+10*ms)
		// Their time to wait begins when the leader notices that it no longer leads.
		c.mustTell(behind, "a write that waited behind it", "-CLUSTERDOWN", cut, wait, wait+time.Second)
		c.mustTell(read, "a read that waited behind it", "-CLUSTERDOWN", cut, wait, wait+time.Second)

		c.endsWithin(other, "lock", "me", granted, 20*time.Second, leaderless+unknownLate)
		time.Sleep(time.Minute)
		c.mustTell(c.ask(old, "INCR later"), "a write after minutes", "-CLUSTERDOWN", time.Now(), wait, wait+10*ms)
		c.wires.heal()
		healed := time.Now()
		c.leader()
		if took := time.Since(healed); took > time.Second {
			t.Errorf("the old leader was %v without a leader after it came back", took)
		}
		c.expect(old, "me nil nil nil", "GET long", "GET lost", "GET behind", "GET later")
		c.expect(old, "2", "INCR carried")
		c.endsWithin(via, "long", "me", granted, 120*time.Second, leaderless+unknownLate)
		c.same()
	})
}

// A leader with a write in flight is cut off for less than FailoverWait. The client of the write sees only a pause.
func TestRealRaftWriteInFlightOfDeposedLeader(t *testing.T) {
	inBubble(t, func(c *bubbled) {
		old := c.leader()
		a, b := (old+1)%3, (old+2)%3
		cut := time.Now()
		c.alone(old)
		write, lock := c.ask(old, "INCR counter"), c.ask(old, "SET lock me NX PX 5000")
		c.leaderOf(a, b)
		c.expect(a, "1", "INCR others")
		leaderless := time.Since(cut)
		c.wires.heal()
		c.mustTell(write, "a write in flight", "1", cut, leaderless, c.cfg[old].FailoverWait)
		got := <-lock
		if got.reply != "OK" {
			t.Fatalf("a lock that waited: told %q", got.reply)
		}
		c.leader()
		c.endsWithin(b, "lock", "me", got.at, 5*time.Second, unknownLate)
		c.expect(b, "1 1", "GET counter", "GET others")
		c.same()
	}, func(cfg *Config) { cfg.FailoverWait = 10 * time.Second })
}

// Whenever during a write the leader is cut off, the write is executed once, and its lease has its whole time from the reply.
func TestRealRaftCutAtAnyInstantOfAWrite(t *testing.T) {
	clustertest.Slow(t)
	const last = 6 * bubbleDelay
	step := bubbleDelay / 2
	if underRace {
		step = bubbleDelay
	}
	for through, who := range []string{"a client of the leader", "a client of a follower"} {
		t.Run(who, func(t *testing.T) {
			before, after := 0, 0
			for at := time.Duration(0); at <= last; at += step {
				inBubble(t, func(c *bubbled) {
					if c.cutDuringAWrite(through, at) {
						before++
					} else {
						after++
					}
				}, func(cfg *Config) { cfg.FailoverWait = 10 * time.Second })
			}
			if before == 0 || after == 0 {
				t.Errorf("%d writes were answered before the cut, and %d after it", before, after)
			}
		})
	}
}

// cutDuringAWrite sends a write, cuts the leader off after the time at, and checks the outcome. It reports whether the reply came
// before the cut.
func (c *bubbled) cutDuringAWrite(through int, at time.Duration) bool {
	const ttl = 3 * time.Second
	c.t.Helper()
	old := c.leader()
	a, b, i := (old+1)%3, (old+2)%3, (old+through)%3
	write := c.ask(i, "INCR counter", "SET lock me NX PX 3000")
	time.Sleep(at)
	cut := time.Now()
	c.alone(old)
	c.leaderOf(a, b)
	led := time.Now()
	if i == old { // the old leader learns the outcome from the next leader
		c.wires.heal()
	}
	got := <-write
	if got.reply != "1 OK" {
		c.t.Errorf("cut off after %v: told %q", at, got.reply)
	}
	// If the reply came before the election, the lease may end late by the time from the reply to the election.
	leaderless := max(led.Sub(got.at), 0)
	c.endsWithin(b, "lock", "me", got.at, ttl, leaderless+unknownLate)
	c.wires.heal()
	c.leader()
	c.expect(a, "2", "INCR counter")
	c.same()
	return !got.at.After(cut)
}

// While leadership goes from node to node, an owner keeps its lock by renewals, and a counter is exact.
func TestRealRaftWatchdogThroughTransfers(t *testing.T) {
	clustertest.Slow(t)
	transfers, every := 60, 10*time.Second
	if underRace {
		transfers = 12
	}
	inBubble(t, func(c *bubbled) {
		c.expect(0, "OK", "SET lock me NX PX 3000")
		leader, counted := c.leader(), 0
		for range transfers {
			for second := range int(every / time.Second) {
				i := second % 3
				c.expect(i, "1 me", "PEXPIRE lock 3000", "GET lock")
				if second%7 == 0 {
					c.expect((i+1)%3, "nil", "SET lock thief NX PX 60000")
				}
				time.Sleep(time.Second - time.Duration(second)*ms)
			}
			to := (leader + 1) % 3
			handed := make(chan error, 1)
			go func() { handed <- c.nodes[leader].Transfer(c.cfg[to].ID) }()
			counted = c.burst(counted, 20)
			if err := <-handed; err != nil {
				t.Error(err)
			}
			if leader = c.leader(); leader != to {
				t.Errorf("n%d leads, not n%d", leader+1, to+1)
			}
		}
		c.expect(leader, fmt.Sprint("1 me ", counted), "PEXPIRE lock 3000", "GET lock", "GET counter")
		c.endsWithin(leader, "lock", "me", time.Now(), 3*time.Second, unknownLate)
		c.same()
	})
}

// burst has clients of every node increment a counter while something happens. The parameter counted and the result are its
// values before and after.
func (c *bubbled) burst(counted, each int) int {
	c.t.Helper()
	var asked []<-chan told
	for range each {
		for i := range c.nodes {
			asked = append(asked, c.ask(i, "INCR counter"))
		}
		time.Sleep(ms)
	}
	seen := map[string]bool{}
	for _, reply := range asked {
		seen[(<-reply).reply] = true
	}
	for range asked {
		if counted++; !seen[fmt.Sprint(counted)] {
			c.t.Errorf("nobody was told %d", counted)
		}
	}
	return counted
}

// Without a majority, a command that certainly has no effect gets CLUSTERDOWN; a write of unknown outcome gets INDETERMINATE,
// after FailoverWait.
func TestRealRaftMinority(t *testing.T) {
	clustertest.Slow(t)
	const leader, follower = 0, 1
	down, unknown := "-CLUSTERDOWN", "-INDETERMINATE"
	for _, c := range []struct {
		name    string
		nobody  bool // no side has a majority; if false, the two other nodes have one
		through int
		command string
		want    string
	}{
		{"read", false, leader, "GET n", down},
		{"read", true, leader, "GET n", down},
		{"read", true, follower, "GET n", down},
		{"write", false, leader, "INCR n", unknown},
		{"write", true, leader, "INCR n", unknown},
		{"write", true, follower, "INCR n", unknown},
		{"lock", false, leader, "SET n me NX PX 100", unknown},
		{"lock", true, follower, "SET n me NX PX 100", unknown},
	} {
		t.Run(fmt.Sprintf("%s %v %d", c.name, c.nobody, c.through), func(t *testing.T) {
			inBubble(t, func(b *bubbled) { b.minority(c.nobody, c.through, c.command, c.want) })
		})
	}
}

func (c *bubbled) minority(nobody bool, through int, command, want string) {
	t := c.t
	t.Helper()
	old := c.leader()
	i, wait := (old+through)%3, c.cfg[old].FailoverWait
	c.expect(i, "OK", "SET lock me NX PX 5000")
	granted, cut := time.Now(), time.Now()
	c.alone(old)
	if nobody {
		c.alone((old + 1) % 3)
	}
	first := c.ask(i, command)
	time.Sleep(2 * fair.GatherLimit) // otherwise both would be in one batch
	second := c.ask(i, "INCR second")
	time.Sleep(ms)
	third := c.ask(i, "GET second", "INCR third")
	// If the leader is lost first, the time begins at the last sign of life of that leader.
	most := wait + time.Second
	c.mustTell(first, command, want, cut, wait, most)
	secondWant := "-CLUSTERDOWN"
	if through != 0 { // it was sent to the leader, too, so its outcome is unknown
		secondWant = "-INDETERMINATE"
	}
	c.mustTell(second, "the second write", secondWant, cut, wait, most)
	c.mustTell(third, "the third write", secondWant+" "+secondWant, cut, wait, most)
	time.Sleep(10 * time.Second)
	late := time.Now()
	for _, late := range []string{"INCR late", "GET lock", "SET other me NX PX 1000"} {
		c.mustTell(c.ask(i, late), late, "-CLUSTERDOWN", time.Now(), wait, wait+10*ms)
	}
	if took := time.Since(late); took < 3*wait {
		t.Errorf("three requests without a leader took %v", took)
	}
	c.wires.heal()
	c.leader()
	served := time.Now()
	c.expect(i, "nil nil", "GET late", "GET other")
	for key, told := range map[string]string{"n": want, "second": secondWant, "third": secondWant} {
		if got := c.do(i, "GET "+key); got != "nil" && (got != "1" || told == "-CLUSTERDOWN") {
			t.Errorf("%s was told %q, and its value is %s", key, told, got)
		}
	}
	if nobody {
		// Nobody could renew the lease meanwhile, so it goes on with the time that it had left.
		c.endsWithin(i, "lock", "me", granted, 5*time.Second, served.Sub(cut)+unknownLate)
	} else {
		c.expect(i, "nil", "GET lock")
	}
	c.same()
}

// A node that got a snapshot while leases ran leads: the leases that had ended are gone, the others end when they should.
func TestRealRaftInstallsASnapshotWhileLeasesRun(t *testing.T) {
	inBubble(t, func(c *bubbled) {
		leader := c.leader()
		away, third := (leader+1)%3, (leader+2)%3
		first := func(i int) uint64 {
			index, err := raftOf(c.nodes[i]).Dir.Log.FirstIndex()
			if err != nil {
				t.Fatal(err)
			}
			return index
		}
		c.expect(away, "OK OK OK", "SET over me NX PX 2000", "SET lock me NX PX 30000", "SET renewed me NX PX 5000")
		granted := time.Now()
		c.same()
		last, err := raftOf(c.nodes[away]).Dir.Log.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		before := c.lengthened()
		c.alone(away)
		for k := 0; first(leader) <= last+1 || k < 100; k++ {
			c.expect(third, "1 OK 0", "PEXPIRE renewed 20000", fmt.Sprintf("SET k%d v PX 3600000", k), fmt.Sprintf("PUBLISH news %d", k))
			time.Sleep(50 * ms)
			if k > 1000 {
				t.Fatal("the log is not shortened")
			}
		}
		renewed := time.Now().Add(-50 * ms)
		c.wires.heal()
		c.same()
		// The first messages may have been on their way, and are sent once more. So the test looks for a later one.
		if slices.Contains(c.sinks[away].all(), "news 50") {
			t.Error("the node caught up by the log")
		}
		if err := c.nodes[third].Transfer(c.cfg[away].ID); err != nil || c.leader() != away {
			t.Fatalf("n%d does not lead: %v", away+1, err)
		}
		c.expect(away, "nil me me", "GET over", "GET lock", "GET renewed")
		by := c.lengthened() - before
		if by > 200*ms {
			t.Errorf("leases were lengthened by %v by a transfer", by)
		}
		c.endsWithin(leader, "renewed", "me", renewed, 20*time.Second, by+unknownLate+ms)
		c.endsWithin(third, "lock", "me", granted, 30*time.Second, by+unknownLate)
		c.same()
	}, func(cfg *Config) {
		cfg.SnapshotThreshold, cfg.SnapshotInterval, cfg.TrailingLogs = 40, 200*ms, 5
	})
}

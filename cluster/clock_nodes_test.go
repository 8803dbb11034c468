package cluster

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Leases on nodes whose clocks differ, drift, jump and stop: a lease may outlast its time only by the leaderless time and the
// drift.

const clockDrift = 0.0002 // of ringClocks

// lengthened returns the time by which elections have lengthened leases, as the nodes count it.
func (r *ring) lengthened() (sum time.Duration) {
	for _, n := range r.nodes {
		sum += n.Status().Leaderless
	}
	return sum
}

// ends checks that a lock is held for the promised ttl, and then ends. i is the leader, before the earlier result of lengthened.
func (r *ring) ends(i int, key, owner string, granted time.Time, ttl time.Duration, before time.Duration) {
	r.t.Helper()
	drift := time.Duration(float64(ttl) * 2 * clockDrift)
	time.Sleep(time.Until(granted.Add(ttl - drift - ms)))
	r.expect(i, owner+" nil", "GET "+key, "SET "+key+" thief NX")
	most := ttl + r.lengthened() - before + drift + 15*ms
	time.Sleep(time.Until(granted.Add(most)))
	r.expect(i, "nil", "GET "+key)
}

// Leadership goes round among nodes whose clocks differ by minutes and hours. Meanwhile the clocks are set again and again.
func TestLeasesWhereClocksDiffer(t *testing.T) {
	for _, jump := range []time.Duration{0, 3 * time.Hour, -3 * time.Hour, 40 * 365 * 24 * time.Hour} {
		bubble(t, func(t *testing.T) {
			r := newRing(t, ringClocks(), nil)
			r.expect(0, "OK", "SET lock me NX PX 10000")
			granted := time.Now()
			for turn := range 6 {
				time.Sleep(700 * ms)
				r.nodes[turn%3].time.jump(jump) // the leader's
				r.expect(turn%3, "me nil", "GET lock", "SET lock you NX")
				r.lose()
				r.nodes[(turn+1)%3].time.jump(-jump)
				time.Sleep(200 * ms)
				r.elect((turn + 1) % 3)
				r.nodes[(turn+2)%3].time.jump(jump)
			}
			if sum := r.lengthened(); sum < 1190*ms || sum > 1210*ms {
				t.Errorf("%v lengthened by %v, six times 200 ms", jump, sum)
			}
			r.ends(0, "lock", "me", granted, 10*time.Second, 0)
		})
	}
}

// Changes of leader do not shorten a lease. Each lengthens it by the time without a leader or, after a grant, by at least
// promptly.
func TestElectionStorm(t *testing.T) {
	for _, leaderless := range []time.Duration{0, 37 * ms, 600 * ms} {
		for _, quick := range []bool{true, false} {
			t.Run(fmt.Sprint(leaderless, quick), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRing(t, ringClocks(), nil)
					r.expect(0, "OK OK", "SET lock me NX PX 5000", "SET renewed me NX PX 1500")
					granted, renewed, before := time.Now(), time.Now(), time.Duration(0)
					for turn := range 10 {
						if !quick {
							time.Sleep(190 * ms)
						}
						r.lose()
						time.Sleep(leaderless)
						r.elect((turn + 1) % 3)
						if turn == 4 {
							before = r.lengthened()
							r.expect(5%3, "1", "PEXPIRE renewed 1500")
							renewed = time.Now()
						}
					}
					want := 10 * leaderless
					if !quick { // in two terms nothing came after a grant, so nobody knows how late it was
						want += 2 * max(promptly-leaderless, 0)
					}
					if sum := r.lengthened(); sum < want-10*ms || sum > want+10*ms {
						t.Errorf("lengthened by %v, want %v: ten times %v", sum, want, leaderless)
					}
					if leaderless < 600*ms {
						r.ends(10%3, "renewed", "me", renewed, 1500*ms, before)
					}
					r.ends(10%3, "lock", "me", granted, 5*time.Second, 0)
				})
			})
		}
	}
}

// The leader converts a Unix time by its own wall clock, once. No later jump, and no other clock, moves the time.
func TestUnixTimesUnderJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 9 * time.Second} {
		bubble(t, func(t *testing.T) {
			r := newRing(t, ringClocks(), nil)
			at := r.nodes[0].Node.cfg.Time.Wall().Add(10 * time.Second)
			granted := time.Now()
			r.expect(0, "OK OK OK", fmt.Sprintf("SET exat me EXAT %d", at.Unix()), fmt.Sprintf("SET pxat me PXAT %d", at.UnixMilli()), "SET expireat me")
			r.expect(0, "1", fmt.Sprintf("EXPIREAT expireat %d", at.Unix()))
			r.nodes[0].time.jump(jump)
			time.Sleep(time.Second)
			r.expect(0, "1 1 1", "EXISTS exat", "EXISTS pxat", "EXISTS expireat")
			if got, want := r.do(0, "PEXPIRETIME pxat"), fmt.Sprint(at.Add(jump).UnixMilli()); got != want {
				t.Errorf("after a jump by %v it ends at %s, want %s: as far away as before", jump, got, want)
			}
			// A deadline that is set now is converted by the present clock.
			r.expect(0, "OK", fmt.Sprintf("SET past me PXAT %d", r.nodes[0].time.Wall().UnixMilli()-1))
			r.expect(0, "nil", "GET past")
			r.lose()
			time.Sleep(300 * ms)
			r.elect(1) // seven minutes ahead
			r.nodes[1].time.jump(-jump)
			for _, key := range []string{"exat", "pxat", "expireat"} {
				time.Sleep(time.Until(granted.Add(9995 * ms)))
				r.expect(1, "me", "GET "+key)
			}
			time.Sleep(time.Until(granted.Add(10*time.Second + r.lengthened() + 20*ms)))
			r.expect(1, "nil nil nil", "GET exat", "GET pxat", "GET expireat")
		})
	}
}

// A leader that wakes after another node has led grants nothing, and answers the request from before with an error.
func TestPausedLeader(t *testing.T) {
	const other = "SET lock you NX PX 60000"
	replaced := func(r *ring) {
		time.Sleep(700 * ms)
		r.mu.Lock()
		r.nodes[1].contact, r.nodes[2].contact = time.Now().Add(-700*ms), time.Now().Add(-700*ms)
		r.mu.Unlock()
		r.elect(1)
	}
	check := func(name string, said []string, stop func(r *ring) <-chan string) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRing(t, ringClocks(), nil)
				r.expect(0, "OK", "SET lock me NX PX 1000")
				reply := stop(r)
				synctest.Wait()
				replaced(r)
				time.Sleep(1500 * ms)
				r.expect(1, "OK", other)
				r.nodes[0].resume()
				synctest.Wait()
				r.tell() // only now it learns that it leads no more
				got := <-reply
				for _, want := range said {
					if got == want {
						got = ""
					}
				}
				if got != "" {
					t.Errorf("told %q when it woke, want one of %q", got, said)
				}
				r.expect(1, "you", "GET lock")
			})
		})
	}
	refused := []string{"-CLUSTERDOWN", "-INDETERMINATE"}
	check("before a read", refused, func(r *ring) <-chan string {
		r.nodes[0].pause()
		return r.start(0, "GET lock")
	})
	check("before a renewal", refused, func(r *ring) <-chan string {
		r.nodes[0].pause()
		return r.start(0, "PEXPIRE lock 1000")
	})
	check("between the majority's answer to a renewal and its own", refused, func(r *ring) <-chan string {
		r.nodes[0].stopsNext()
		return r.start(0, "PEXPIRE lock 1000")
	})
	check("between the majority's answer to a grant and its own", refused, func(r *ring) <-chan string {
		time.Sleep(1200 * ms)
		r.nodes[0].stopsNext()
		return r.start(0, "SET lock me NX PX 1000")
	})
}

// A lease has its whole time from the leader's answer on, even if the leader stood still before that answer.
func TestPausedLeaderGrantsTheWholeTime(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r := newRing(t, ringClocks(), nil)
			r.nodes[0].stopsNext()
			reply := r.start(0, "SET lock me NX PX 2000")
			time.Sleep(300 * ms)
			leader := 0
			if replaced {
				leader = 1
				r.elect(1)
				time.Sleep(500 * ms)
				r.expect(1, "OK", "SET other v")
			}
			r.nodes[0].resume()
			synctest.Wait()
			if replaced {
				r.elect(0) // it asks whoever leads, here itself
				leader = 0
			}
			if got := <-reply; got != "OK" {
				t.Fatalf("told %q", got)
			}
			r.ends(leader, "lock", "me", time.Now(), 2*time.Second, -100*ms)
		})
	}
}

// A leader answers a grant late, and another node leads right after that. The lease still has its whole time, counted from the
// answer.
func TestLateGrantOutlivesItsLeader(t *testing.T) {
	for _, slow := range []time.Duration{20 * ms, 45 * ms, 60 * ms, 300 * ms, 1900 * ms} {
		bubble(t, func(t *testing.T) {
			r := newRing(t, ringClocks(), nil)
			r.nodes[0].stopsNext()
			reply := r.start(0, "SET lock me NX PX 2000")
			time.Sleep(slow)
			r.nodes[0].resume()
			if got := <-reply; got != "OK" {
				t.Fatalf("told %q", got)
			}
			granted := time.Now()
			r.mu.Lock()
			r.nodes[1].contact = granted // the second node has heard from the leader until now
			r.mu.Unlock()
			r.elect(1)
			r.ends(1, "lock", "me", granted, 2*time.Second, -60*ms)
		})
	}
}

// A lease that was granted late outlives its leader, even if the same batch renamed, copied or moved its key.
func TestLateGrantOutlivesItsLeaderElsewhere(t *testing.T) {
	for _, move := range []string{"RENAME held lock", "COPY held lock", "RENAME held mid; RENAME mid lock", "RENAME held lock; INCR n"} {
		for _, slow := range []time.Duration{60 * ms, 300 * ms} {
			for _, another := range []bool{false, true} {
				bubble(t, func(t *testing.T) {
					r := newRing(t, ringClocks(), nil)
					r.nodes[0].stopsNext()
					var replies []<-chan string
					lines := append([]string{"SET held me NX PX 2000"}, strings.Split(move, "; ")...)
					if another {
						replies = r.together(0, lines...)
					} else {
						replies = append(replies, r.start(0, lines...))
					}
					time.Sleep(slow)
					r.nodes[0].resume()
					for _, reply := range replies {
						if got := <-reply; strings.Contains(got, "-") {
							t.Fatalf("%s: told %q", move, got)
						}
					}
					granted := time.Now()
					r.mu.Lock()
					r.nodes[1].contact = granted // the second node has heard from the leader until now
					r.mu.Unlock()
					r.elect(1)
					r.ends(1, "lock", "me", granted, 2*time.Second, -60*ms)
				})
			}
		}
	}
}

// A follower that slept for longer than a lease, and leads as soon as it wakes, does not end a renewed lease.
func TestPausedFollowerLeads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRing(t, ringClocks(), nil)
		r.expect(0, "OK", "SET lock me NX PX 3000")
		r.nodes[2].pause()
		var renewed time.Time
		for range 20 {
			time.Sleep(time.Second)
			r.expect(0, "1", "PEXPIRE lock 3000")
			renewed = time.Now()
		}
		r.mu.Lock()
		r.leader = -1
		r.mu.Unlock()
		r.nodes[2].resume()
		r.elect(2)
		r.expect(2, "me nil", "GET lock", "SET lock you NX")
		r.ends(2, "lock", "me", renewed, 3*time.Second, -20*ms)
	})
}

// The time for which all nodes are down does not count against a lease. A restart lengthens the lease by at most a second.
func TestLeaseGoesOnAfterARestart(t *testing.T) {
	for _, jump := range []time.Duration{0, 48 * time.Hour, -48 * time.Hour} {
		bubble(t, func(t *testing.T) {
			r := newRing(t, ringClocks(), nil)
			r.expect(0, "OK", "SET lock me NX PX 10000")
			time.Sleep(4300 * ms)
			r.expect(0, "me", "GET lock")
			r.stop()
			time.Sleep(time.Hour)
			clocks := ringClocks()
			for i, c := range clocks {
				c.wall += jump * time.Duration(i+1)
				c.base = time.Duration(i) * time.Minute
			}
			again := newRing(t, clocks, r.entries)
			start := time.Now()
			time.Sleep(5690 * ms)
			again.expect(0, "me nil", "GET lock", "SET lock you NX")
			time.Sleep(time.Until(start.Add(6720 * ms)))
			again.expect(0, "nil", "GET lock")
			if sum := again.lengthened(); sum != 0 {
				t.Errorf("lengthened by %v: nothing ran while there was no leader", sum)
			}
		})
	}
}

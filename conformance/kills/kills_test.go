package kills

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/judge"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// repeat returns how often a test does its harm: a few times in `make test`, or as often as an environment variable says in `make
// kills`.
func repeat(t *testing.T, variable string, short int) int {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return short
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q is not a number of times", variable, s)
	}
	return n
}

// grantLimit bounds the time without grants after a kill or transfer. The aim is a median of 700 ms, but other tests run, too.
const (
	grantLimit = 3 * time.Second
	// If no lock is granted for longer than the time "slow", the test shows the survivors' logs.
	slow = 600 * time.Millisecond
	// hashEvery is how many kills lie between two comparisons of the states.
	hashEvery = 5
)

// TestLeaderKills kills the leader under load at random moments, and starts it again.
func TestLeaderKills(t *testing.T) {
	kills := repeat(t, "LOCKSTEP_KILLS", 3)
	r := start(t, uint64(time.Now().UnixNano()))
	rng := rand.New(rand.NewPCG(r.seed, 0))
	t.Logf("seed %d", r.seed)
	var first, every []time.Duration
	for n := 0; n < kills && !t.Failed(); n++ {
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond) // a random moment between two batches
		leader := r.leader()
		survivors := r.others(leader)
		logged := []int{len(survivors[0].Log()), len(survivors[1].Log())}
		a, b := r.kill(leader, survivors, n)
		if b > slow {
			t.Logf("kill %d, of %s: %v\n%s:\n%s\n%s:\n%s", n, leader.ID, b,
				survivors[0].ID, survivors[0].Log()[logged[0]:], survivors[1].ID, survivors[1].Log()[logged[1]:])
		}
		first, every = append(first, a), append(every, b)
		if b > grantLimit {
			t.Errorf("kill %d: a surviving node granted nothing for %v, the limit is %v", n, b, grantLimit)
		}
		leader.Run()
		leader.WaitReady()
		leader.epoch.Add(1)
		r.turn(survivors[n%2])
		if n%hashEvery == 0 {
			r.same()
		}
		if n%50 == 49 {
			t.Logf("%d kills: next grant %v", n+1, summarise(first))
		}
	}
	rep := r.finish()
	rep.Kills, rep.NextGrant, rep.Everywhere = len(first), summarise(first), summarise(every)
	tell(t, rep)
}

// kill kills the leader. It measures when one survivor (first) and when every survivor (every) grants a lock requested after the kill.
func (r *run) kill(leader *place, survivors []*place, n int) (first, every time.Duration) {
	r.t.Helper()
	took := make([]time.Duration, len(survivors))
	var conns []*respclient.Conn
	for _, p := range survivors {
		conns = append(conns, r.dial(p))
	}
	var wg sync.WaitGroup
	leader.epoch.Add(1)
	start := time.Now()
	leader.Kill()
	for i, p := range survivors {
		c := conns[i]
		wg.Go(func() {
			defer c.Close()
			key := "probe:" + p.ID + ":" + strconv.Itoa(n)
			if got, err := c.Do("SET", key, "me", "NX", "PX", "60000"); got != "OK" {
				r.judge.Fault(judge.ClientError, "%s: the first lock after the kill: %v, %v", p.ID, got, err)
			}
			took[i] = time.Since(start)
			r.checkHeld(c, n)
		})
	}
	wg.Wait()
	return min(took[0], took[1]), max(took[0], took[1])
}

// TestTransfers hands leadership over, and stops the leader by SIGTERM. It measures how long a client has to wait for a reply
// meanwhile.
func TestTransfers(t *testing.T) {
	times := repeat(t, "LOCKSTEP_TRANSFERS", 2)
	r := start(t, uint64(time.Now().UnixNano()))
	rng := rand.New(rand.NewPCG(r.seed, 0))
	t.Logf("seed %d", r.seed)
	var transfers, stops, nothing []time.Duration
	for range times {
		nothing = append(nothing, r.watch(nil, func() {}))
		from := r.leader()
		c := r.dial(r.places[rng.IntN(3)])
		transfers = append(transfers, r.watch(nil, func() {
			if got := r.ask(c, "LOCKSTEP", "TRANSFER"); got != "OK" {
				t.Errorf("transfer: %v", got)
			}
		}))
		c.Close()
		leader := r.leader()
		if leader == from {
			t.Errorf("%s leads as before", from.ID)
		}
		leader.epoch.Add(1)
		stops = append(stops, r.watch(leader, func() {
			if code := leader.Terminate(); code != 0 {
				t.Errorf("exit code %d:\n%s", code, leader.Log())
			}
		}))
		leader.Run()
		leader.WaitReady()
		leader.epoch.Add(1)
		r.turn(r.others(leader)[0])
	}
	rep := r.finish()
	rep.Transfer, rep.Stop, rep.Undisturbed = summarise(transfers), summarise(stops), summarise(nothing)
	tell(t, rep)
	if m := max(rep.Transfer.Max, rep.Stop.Max); m > float64(grantLimit.Milliseconds()) {
		t.Errorf("a client waited %.0f ms, the limit is %v", m, grantLimit)
	}
}

// tell prints the report, and judges it.
func tell(t *testing.T, rep *report) {
	t.Helper()
	t.Log("\n" + rep.text())
	if err := rep.write(); err != nil {
		t.Error(err)
	}
	for _, f := range judge.Faults {
		if rep.Faults[f] != 0 {
			t.Errorf("%d %s", rep.Faults[f], f)
		}
	}
	for _, what := range []string{"locks granted", "reentrant locks granted", "tokens compared", "elements and increments checked for exactly-once"} {
		if rep.Operations[what] == 0 {
			t.Errorf("%s: none, so nothing was judged", what)
		}
	}
}

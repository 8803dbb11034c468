package hostile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/judge"
)

// These faults come in addition to those of package judge.
const (
	processEnded judge.Fault = "processes that ended"
	answersLate  judge.Fault = "answers later than the bound"
	leftBehind   judge.Fault = "traces left behind"
	rightsBroken judge.Fault = "rights broken"
	memoryHigh   judge.Fault = "memory above the bound"
	unlikeRedis  judge.Fault = "replies unlike Redis's"
)

var faults = append(judge.Faults, processEnded, answersLate, leftBehind, rightsBroken, memoryHigh, unlikeRedis)

const (
	// answerBound is how long an innocent client may wait for an answer: an attacker may run several scripts up to their limit.
	answerBound = 8 * time.Second
	// settleLimit is how long an attack's traces may last: a node may hold a costly reply for 30 s (yieldCrowd).
	settleLimit = 35 * time.Second
	// sameLimit is how long the nodes may take until all have applied the same entries.
	sameLimit = 10 * time.Second
	// atOnce is how many inputs of a round are played at the same time.
	atOnce = 4
)

// siege is a fleet with its innocents, and with its levels before the attacks.
type siege struct {
	t         testing.TB
	f         *fleet
	innocents *innocents
	before    []*levels
	recorded  []*recording
	seen      map[judge.Fault]int // faults of earlier rounds
	worst     time.Duration
	settle    time.Duration
	memory    int64 // how many bytes of a process may be resident if no control group bounds them
}

// besiege makes a fleet ready for attacks.
func besiege(t testing.TB, n int, seed uint64, count *tally, bound time.Duration) *siege {
	t.Helper()
	s := &siege{t: t, f: start(t, n, seed, count), seen: map[judge.Fault]int{}, settle: settleLimit, memory: memoryLimit}
	var err error
	if s.recorded, err = s.f.record(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.f.clean(); err != nil {
		t.Fatal(err)
	}
	if s.innocents, err = s.f.innocents(seed, bound); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.innocents.stop)
	for i := range s.f.nodes {
		before, err := s.f.measure(i)
		if err != nil {
			t.Fatal(err)
		}
		s.before = append(s.before, before)
	}
	return s
}

// round plays inputs, several at once, and returns the faults that they have caused.
func (s *siege) round(inputs []input) map[judge.Fault]int {
	over := s.watchMemory()
	var wg sync.WaitGroup
	next := make(chan input)
	for range atOnce {
		wg.Go(func() {
			for in := range next {
				s.f.play(in)
			}
		})
	}
	for _, in := range inputs {
		if s.f.anyEnded() {
			break
		}
		next <- in
	}
	close(next)
	wg.Wait()
	if err := s.f.again(); err != nil && !s.f.endedSoon() {
		s.f.told(answersLate, "the judge was not answered: %v", err)
	}
	over()
	return s.check()
}

// watchMemory checks the nodes' resident memory until off is called, unless control groups bound the memory.
func (s *siege) watchMemory() (off func()) {
	if s.f.ungrouped == nil {
		return func() {}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for told := false; ; {
			for _, n := range s.f.nodes {
				if now, _, err := resident(n.Process().Pid); err == nil && now > s.memory && !told {
					told = true
					s.f.told(memoryHigh, "%s: %d MiB resident", n.ID, now>>20)
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() { close(stop); <-done }
}

// stacks ends the nodes and keeps the stacks of all their goroutines.
func (s *siege) stacks(t *testing.T) {
	dir, err := os.MkdirTemp("", "hostile-")
	if err != nil {
		t.Error(err)
		return
	}
	for _, n := range s.f.nodes {
		if n.Process().Signal(syscall.SIGQUIT) == nil {
			n.Wait()
		}
		if err := os.WriteFile(filepath.Join(dir, n.ID), []byte(n.Log()), 0o600); err != nil {
			t.Error(err)
		}
	}
	t.Logf("the logs of the nodes, with what their goroutines did: %s", dir)
}

// check judges after a round, and returns the faults since the last call of check.
func (s *siege) check() map[judge.Fault]int {
	if !s.f.ended() {
		if err := s.traces(); err != nil && !s.f.endedSoon() {
			s.f.told(answersLate, "the judge was not answered: %v", err)
		}
	}
	s.worst = max(s.worst, s.innocents.since())
	found, _ := s.f.judge.Found()
	fresh := map[judge.Fault]int{}
	for what, n := range found {
		if n > s.seen[what] {
			fresh[what] = n - s.seen[what]
		}
	}
	s.seen = found
	return fresh
}

// traces looks for what an attack has left behind.
func (s *siege) traces() error {
	strange, err := s.f.clean()
	if err != nil {
		return err
	}
	if len(strange) > 0 {
		s.f.told(rightsBroken, "keys that nobody may make: %.300q", strange)
		if _, err := s.f.ask(0, append([]string{"DEL"}, strange...)...); err != nil {
			return err
		}
	}
	if err := s.treasure(); err != nil {
		return err
	}
	for i, n := range s.f.nodes {
		left, err := s.f.settled(i, s.before[i], s.settle)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			s.f.told(leftBehind, "%s: %s", n.ID, strings.Join(left, "\n  "))
		}
	}
	return s.locks()
}

// treasure checks that the keys which no attacker may write are unchanged.
func (s *siege) treasure() error {
	for _, q := range [][]string{{"GET", "secret:string"}, {"GET", "secret:app:1"}, {"HGET", "secret:hash", "field"}, {"LINDEX", "secret:list", "0"}, {"SRANDMEMBER", "secret:set"}, {"ZRANGE", "secret:zset", "0", "0"}} {
		got, err := s.f.ask(0, q...)
		if err != nil {
			return err
		}
		if text := strings.Trim(fmt.Sprint(got), "[]"); text != s.f.forbidden {
			s.f.told(rightsBroken, "%s is %.200q", q[1], text)
		}
	}
	return nil
}

// locks checks every lock that is never released, through every node. Then it compares the nodes' states.
func (s *siege) locks() error {
	query := []string{"MGET"}
	for _, c := range s.innocents.list {
		query = append(query, c.held.Key)
	}
	for i := range s.f.nodes {
		got, err := s.f.ask(i, query...)
		if err != nil {
			return err
		}
		owners, _ := got.([]any)
		for k, c := range s.innocents.list {
			if k >= len(owners) || owners[k] != c.held.Owner {
				s.f.told(judge.LockLost, "%s through n%d: %v", c.held.Key, i+1, owners)
			}
		}
	}
	for _, c := range s.innocents.list {
		got, err := s.f.ask(0, "PTTL", c.held.Key)
		if err != nil {
			return err
		}
		left, _ := got.(int64)
		c.held.Remains(s.f.judge, left, time.Now())
	}
	var err error
	s.innocents.standStill(func() { err = s.f.same() })
	return err
}

// same waits until all nodes have applied the same entries, and then compares their states.
func (f *fleet) same() error {
	for deadline := time.Now().Add(sameLimit); ; time.Sleep(5 * time.Millisecond) {
		var at, hashes []string
		for i := range f.nodes {
			got, err := f.ask(i, "LOCKSTEP", "STATUS")
			if err != nil {
				return err
			}
			words, _ := got.([]any)
			for k := 0; k+1 < len(words); k += 2 {
				switch words[k] {
				case "state-index":
					at = append(at, fmt.Sprint(words[k+1]))
				case "state-hash":
					hashes = append(hashes, fmt.Sprint(words[k+1]))
				}
			}
		}
		if len(at) != len(f.nodes) || len(hashes) != len(f.nodes) {
			return errors.New("LOCKSTEP STATUS says no state")
		}
		if alike(at) {
			if !alike(hashes) {
				f.told(judge.StateDiffers, "at index %s: %q", at[0], hashes)
			}
			return nil
		}
		if time.Now().After(deadline) {
			f.told(judge.StateDiffers, "the nodes do not come to the same entry: %q", at)
			return nil
		}
	}
}

func alike(list []string) bool {
	for _, x := range list {
		if x != list[0] {
			return false
		}
	}
	return true
}

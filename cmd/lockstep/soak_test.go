package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// soak is a healthy cluster under load. Its clients report every fault that they see.
type soak struct {
	t      *testing.T
	list   []*member
	failed atomic.Bool
	wg     sync.WaitGroup

	replies, pushed, taken atomic.Int64
}

// client runs fn with a connection to a node. fn returns an error if something is wrong.
func (s *soak) client(m *member, fn func(c *respclient.Conn) error) {
	conn, err := respclient.Dial(m.o.listen, 5*time.Second)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	s.wg.Go(func() {
		if err := fn(conn); err != nil {
			s.failed.Store(true)
			s.t.Errorf("%s: %v", m.o.id, err)
		}
	})
}

// ask sends a command, and returns an error if the reply is one.
func (s *soak) ask(c *respclient.Conn, args ...string) (any, error) {
	got, err := c.Do(args...)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", args, err)
	}
	s.replies.Add(1)
	return got, nil
}

// wants sends a command, and returns an error unless the reply is want.
func (s *soak) wants(c *respclient.Conn, want any, args ...string) error {
	got, err := s.ask(c, args...)
	if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
		err = fmt.Errorf("%q: got %v, want %v", args, got, want)
	}
	return err
}

const releaseScript = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

// owner returns a client that takes locks which other clients want, too, and uses many other commands.
func (s *soak) owner(m *member, name string, rounds int) func(c *respclient.Conn) error {
	return func(c *respclient.Conn) error {
		for i := 0; i < rounds && !s.failed.Load(); i++ {
			lock, own := fmt.Sprint("lock:", i%5), fmt.Sprint(name, ":", i)
			got, err := s.ask(c, "SET", lock, own, "NX", "PX", "60000")
			if err != nil {
				return err
			}
			if got == "OK" {
				err = errors.Join(s.wants(c, own, "GET", lock), s.wants(c, 1, "PEXPIRE", lock, "60000"),
					s.wants(c, 1, "EVAL", releaseScript, "1", lock, own))
			}
			err = errors.Join(err, s.wants(c, i+1, "INCR", name),
				s.wants(c, "OK", "MULTI"), s.wants(c, "QUEUED", "SET", own, "v", "PX", "300"), s.wants(c, "QUEUED", "GET", name),
				s.wants(c, fmt.Sprintf("[OK %d]", i+1), "EXEC"))
			if err != nil {
				return err
			}
			if _, err = s.ask(c, "RPUSH", fmt.Sprint("queue:", i%2), own); err != nil {
				return err
			}
			s.pushed.Add(1)
			if why := unready(m.parts.node); why != "" {
				return fmt.Errorf("the node says of itself: %s", why)
			}
		}
		return nil
	}
}

// taker returns a client that waits for elements with the given blocking commands, some of which have a short timeout, until
// the test stops it.
func (s *soak) taker(blocking ...[]string) func(c *respclient.Conn) error {
	return func(c *respclient.Conn) error {
		for i := 0; ; i++ {
			got, err := s.ask(c, blocking[i%len(blocking)]...)
			if err != nil {
				return err
			}
			pair, some := got.([]any)
			switch {
			case got == nil:
			case !some || len(pair) != 2:
				return fmt.Errorf("%q: got %v", blocking[i%len(blocking)], got)
			case pair[1] == "stop":
				return nil
			default:
				s.taken.Add(1)
			}
		}
	}
}

// J6: a cluster without faults tells no client an error, and keeps its leader, even while it takes snapshots.
func TestJ6NobodyIsToldAnErrorWithoutAFault(t *testing.T) {
	list := startMembersWith(t, cluster.Default().FailoverWait, func(cfg *cluster.Config) {
		// The machine may have other work. That must not count as a fault of the cluster, so the timeouts are longer than the
		// defaults.
		cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLease = time.Second, time.Second, 800*time.Millisecond
		cfg.SnapshotThreshold, cfg.SnapshotInterval, cfg.TrailingLogs = 200, 50*time.Millisecond, 100
	})
	s := &soak{t: t, list: list}
	before := list[0].parts.node.Status()
	var owners sync.WaitGroup
	const rounds = 250
	for i, m := range list {
		for j := range 3 {
			owners.Add(1)
			run := s.owner(m, fmt.Sprintf("n%d-%d", i+1, j), rounds)
			s.client(m, func(c *respclient.Conn) error {
				defer owners.Done()
				return run(c)
			})
		}
		s.client(m, s.taker([]string{"BLPOP", "queue:0", "queue:1", "0"}))
		s.client(m, s.taker([]string{"BRPOP", "queue:1", "queue:0", "0.003"}, []string{"BLPOP", "queue:0", "5"}))
	}
	owners.Wait()
	until(t, "the last element to be taken", func() bool { return s.failed.Load() || s.taken.Load() == s.pushed.Load() })
	s.client(list[0], func(c *respclient.Conn) error {
		for range 2 * len(list) {
			if _, err := s.ask(c, "RPUSH", "queue:0", "stop"); err != nil {
				return err
			}
		}
		return nil
	})
	s.wg.Wait()
	if s.failed.Load() {
		return
	}
	if want := int64(3 * len(list) * rounds); s.taken.Load() != want {
		t.Errorf("%d elements taken, want %d", s.taken.Load(), want)
	}
	// A pause without writes must not end the leadership. 700 ms is longer than the clients' shortest leases.
	time.Sleep(700 * time.Millisecond)
	for _, m := range list {
		if st := m.parts.node.Status(); st.Term != before.Term || st.LeaderID != before.LeaderID {
			t.Errorf("%s: led by %s in term %d; it was %s in term %d", m.o.id, st.LeaderID, st.Term, before.LeaderID, before.Term)
		}
	}
	t.Logf("%d replies", s.replies.Load())
}

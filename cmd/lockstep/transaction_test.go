package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/transcript"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// session is a client connection with a method that checks replies.
type session struct {
	*respclient.Conn
	t *testing.T
}

func (s session) expect(want any, args ...string) {
	s.t.Helper()
	if got, err := s.Do(args...); err != nil || !reflect.DeepEqual(got, want) {
		s.t.Errorf("%q: got %v, %v; want %v", args, got, err, want)
	}
}

// TestTransactionsThroughFollowers runs transactions of clients that know nothing of the cluster. The clients are connected to
// different nodes. The leader is killed between WATCH and EXEC.
func TestTransactionsThroughFollowers(t *testing.T) {
	list := nodes.Start(t, 3)
	leader := nodes.Leader(list)
	if leader == nil {
		t.Fatal("no leader")
	}
	var others []*nodes.Node
	for _, n := range list {
		if n != leader {
			others = append(others, n)
		}
	}
	a, b := session{others[0].Dial(), t}, session{others[1].Dial(), t}

	// A client releases its lock with WATCH, through a follower.
	a.expect("OK", "SET", "lock", "a", "NX", "PX", "60000")
	a.expect("OK", "WATCH", "lock")
	a.expect("a", "GET", "lock")
	a.expect("OK", "MULTI")
	a.expect("QUEUED", "SELECT", "1")
	a.expect("QUEUED", "INCR", "releases")
	a.expect("QUEUED", "CLIENT", "SETNAME", "released")
	a.expect("QUEUED", "SELECT", "0")
	a.expect("QUEUED", "DEL", "lock")
	a.expect("QUEUED", "EVAL", "return redis.call('exists', KEYS[1])", "1", "lock")
	a.expect([]any{"OK", int64(1), "OK", "OK", int64(1), int64(0)}, "EXEC")
	a.expect("released", "CLIENT", "GETNAME")

	// The leader dies between WATCH and EXEC. The next leader knows which watched keys have changed, and which have not.
	b.expect("OK", "SET", "kept", "x")
	b.expect("OK", "SET", "stolen", "x")
	a.expect("OK", "WATCH", "kept")
	b.expect("OK", "WATCH", "stolen")
	a.expect("OK", "SET", "stolen", "x")
	a.expect("OK", "MULTI")
	a.expect("QUEUED", "GET", "kept")
	b.expect("OK", "MULTI")
	b.expect("QUEUED", "SET", "stolen", "y")
	leader.Kill()
	a.expect([]any{"x"}, "EXEC") // the transaction only reads, so it may be sent again
	b.expect(nil, "EXEC")
	b.expect("x", "GET", "stolen")
	leader.Run()
	leader.WaitReady()
	waitEqual(t, list)
}

// follower plays transcripts against a node that does not lead.
type follower struct{ addr string }

func (f follower) Dial() (net.Conn, error) { return net.Dial("tcp", f.addr) }
func (f follower) Advance(time.Duration)   {} // none of these transcripts moves the clock

// TestTransactionTranscriptsThroughAFollower plays the recorded transactions through a follower, except those that wait or whose replies
// depend on the node.
func TestTransactionTranscriptsThroughAFollower(t *testing.T) {
	list := nodes.Start(t, 3)
	leader := nodes.Leader(list)
	at := list[0]
	if at == leader {
		at = list[1]
	}
	root := filepath.Join("..", "..", "conformance", "transcript", "testdata")
	files, err := filepath.Glob(filepath.Join(root, "multi", "*.txt"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	for _, path := range files {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := "multi/" + filepath.Base(path)
		if bytes.Contains(src, []byte("@advance")) || name == "multi/pubsub.txt" || isNotYet(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			f, err := transcript.Parse(name, src)
			if err != nil {
				t.Fatal(err)
			}
			transcript.Run(t, f, follower{at.Addr})
		})
	}
	waitEqual(t, list)
}

// TestCountersByWatch: clients on all nodes count by WATCH, GET, MULTI, SET and EXEC, and no count is lost.
func TestCountersByWatch(t *testing.T) {
	list := nodes.Start(t, 3)
	const clients, each = 6, 15
	var wg sync.WaitGroup
	for i := range clients {
		c := list[i%3].Dial()
		wg.Go(func() {
			for range each {
				if err := countOnce(c); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	c := session{list[0].Dial(), t}
	c.expect(fmt.Sprint(clients*each), "GET", "counter")
	c.expect(fmt.Sprint(clients*each), "GET", "shadow")
	waitEqual(t, list)
}

func countOnce(c *respclient.Conn) error {
	for {
		if _, err := c.Do("WATCH", "counter"); err != nil {
			return err
		}
		v, err := c.Do("GET", "counter")
		if err != nil {
			return err
		}
		n := 0
		if v != nil {
			if _, err := fmt.Sscan(v.(string), &n); err != nil {
				return err
			}
		}
		next := fmt.Sprint(n + 1)
		var replies []any
		for _, line := range []string{"MULTI", "SET counter " + next, "PING", "INCR shadow", "EXEC"} {
			if err := c.Send(strings.Fields(line)...); err != nil {
				return err
			}
		}
		for range 5 {
			r, err := c.Receive()
			if err != nil {
				return err
			}
			replies = append(replies, r)
		}
		if replies[4] == nil {
			continue // another client has changed the key first
		}
		want := []any{"OK", "QUEUED", "QUEUED", "QUEUED", []any{"OK", "PONG", int64(n + 1)}}
		if !reflect.DeepEqual(replies, want) {
			return fmt.Errorf("got %v, want %v", replies, want)
		}
		return nil
	}
}

// TestWatchWhileAScriptIsBusy: EXEC fails if a script was busy at the WATCH, because the script may have written the key.
func TestWatchWhileAScriptIsBusy(t *testing.T) {
	list := nodes.Start(t, 3)
	if nodes.Leader(list) == nil {
		t.Fatal("no leader")
	}
	for _, n := range list {
		session{n.Dial(), t}.expect("OK", "CONFIG", "SET", "busy-reply-threshold", "100")
	}
	for _, n := range list {
		a := session{n.Dial(), t}
		for _, absent := range []bool{false, true} {
			a.expect("OK", "SET", "k", "v")
			if absent {
				a.expect(int64(1), "DEL", "k")
			}
			script, ended := n.Dial(), make(chan error, 1)
			go func() {
				_, err := script.Do("EVAL", "redis.call('get', KEYS[1]) while true do end", "1", "k")
				ended <- err
			}()
			busy := n.Dial()
			time.Sleep(100 * time.Millisecond) // a command in one batch with the script would wait for it
			for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
				if _, err := busy.Do("GET", "k"); isError(err, "BUSY ") {
					break
				} else if time.Since(begin) > 10*time.Second {
					t.Fatalf("no -BUSY: %v", err)
				}
			}
			a.expect("OK", "WATCH", "k")
			if got, err := busy.Do("SCRIPT", "KILL"); got != "OK" {
				t.Fatal(got, err)
			}
			if err := <-ended; !isError(err, "ERR ") {
				t.Errorf("the script: %v", err)
			}
			for _, want := range []any{nil, []any{"OK"}} {
				a.expect("OK", "MULTI")
				a.expect("QUEUED", "SET", "k", "w")
				a.expect(want, "EXEC")
			}
		}
	}
}

package server

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/conformance/transcript"
	"github.com/lockstep-io/lockstep/store"
)

// A whole transaction is one submission to the leader. If no command of the transaction needs the leader, EXEC submits
// nothing.
func TestTransactionIsOneSubmission(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		ts.fake.whole.Store(true)
		c := ts.dial(t)
		c.send("MULTI\r\nSET k 1\r\nPING\r\nINCR k\r\nSELECT 1\r\nEXEC\r\nEXISTS k\r\nGET k\r\n")
		c.expect("+OK\r\n" + strings.Repeat("+QUEUED\r\n", 4) + "*4\r\n+OK\r\n+PONG\r\n:2\r\n+OK\r\n:0\r\n$-1\r\n")
		c.send("MULTI\r\nPING\r\nEXEC\r\nWATCH k k\r\nWATCH k\r\nMULTI\r\nEXEC\r\n")
		c.expect("+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n+OK\r\n+OK\r\n+OK\r\n*0\r\n")
		ts.fake.mu.Lock()
		defer ts.fake.mu.Unlock()
		if got, want := ts.fake.batch, []int{1, 2, 1, 1}; !slices.Equal(got, want) {
			t.Errorf("submissions of %v calls, want %v", got, want)
		}
	})
}

// The arguments of a queued command must stay the same when the server reuses the input buffer.
func TestQueuedArgumentsAreCopied(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		c.do("MULTI", "+OK\r\n")
		want := ""
		for i := range 100 {
			v := fmt.Sprintf("%03d%s", i, strings.Repeat("x", i*i*3))
			c.send(array("RPUSH", "list", v))
			c.expect("+QUEUED\r\n")
			want += bulk(v)
		}
		c.send("LRANGE list 0 -1\r\nEXEC\r\n")
		c.expect("+QUEUED\r\n*101\r\n")
		for i := range 100 {
			c.expect(fmt.Sprintf(":%d\r\n", i+1))
		}
		c.expect("*100\r\n" + want)
	})
}

// If a client queues a command with large arguments, it must first give way to other clients.
func TestQueuedArgumentsGiveWay(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		c.do("MULTI", "+OK\r\n")
		value := strings.Repeat("x", 100_000)
		c.send(array("SET", "a", value) + array("SET", "b", value) + "EXEC\r\n")
		c.expect("+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n+OK\r\n")
		if n := ts.fake.gaveWay.Load(); n < 200_000 || n > 220_000 {
			t.Errorf("%d bytes gave way, want 200,000", n)
		}
	})
}

// A client whose command has large arguments gives way to others even if the command is refused or not submitted.
func TestLargeArgumentsGiveWay(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		value := strings.Repeat("x", 100_000)
		for i, step := range []struct{ command, want string }{
			{array("AUTH", value, "x"), "-WRONGPASS invalid username-password pair or user is disabled.\r\n"},
			{array("CLIENT", "SETNAME", value), "+OK\r\n"},
			{array("ECHO", value), bulk(value)},
			{array("ECHO", value, "x"), "-ERR wrong number of arguments for 'echo' command\r\n"},
			{array(value), "-ERR unknown command '" + value[:128] + "', with args beginning with: \r\n"},
			{array("SUBSCRIBE", value), "*3\r\n" + bulk("subscribe") + bulk(value) + ":1\r\n"},
		} {
			c.send(step.command)
			c.expect(step.want)
			if n := ts.fake.gaveWay.Load(); n < int64(i+1)*100_000 {
				t.Fatalf("after %.40q %d bytes gave way", step.command, n)
			}
		}
		c.do("PING", "*2\r\n"+bulk("pong")+bulk(""))
		if n := ts.fake.underWay.Load(); n != 0 {
			t.Errorf("%d commands are under way for good", n)
		}
	})
}

// No message comes between the replies of an EXEC, although the server writes them one by one.
func TestMessagesBesideTransactions(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		r := bufio.NewReader(c.conn)
		read := func() transcript.Value {
			v, err := transcript.ReadValue(r)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		c.send("HELLO 3\r\nSUBSCRIBE ch\r\n")
		read()
		read()
		const transactions = 300
		room := make(chan struct{}, 500) // how many messages may be on their way to the client
		go func() {
			for i := 0; ; i++ {
				select {
				case room <- struct{}{}:
					ts.hub.Publish(store.Channel, "ch", fmt.Sprint(i))
				case <-t.Context().Done():
					return
				}
			}
		}()
		go func() {
			queue := "MULTI\r\n" + strings.Repeat("ECHO reply\r\nEXISTS k\r\n", 20) + "EXEC\r\n"
			for range transactions {
				if _, err := c.conn.Write([]byte(queue)); err != nil {
					return
				}
			}
		}()
		next, done := 0, 0
		for done < transactions {
			switch v := read(); {
			case v.Type == '+':
			case v.Type == '>' && v.Elems[2].Text == fmt.Sprint(next):
				next++
				<-room
			case v.Type == '*' && len(v.Elems) == 40:
				done++
				for i, e := range v.Elems {
					if want := "$:"[i%2]; e.Type != want {
						t.Fatalf("reply %d of transaction %d: %q", i, done, e.Lines())
					}
				}
			default:
				t.Fatalf("after %d messages and %d transactions: %q", next, done, v.Lines())
			}
		}
	})
}

func TestTransactionSizeIsBounded(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		large := array("SET", "k", strings.Repeat("x", 5<<19))
		c.do("MULTI", "+OK\r\n")
		for range 3 {
			c.send(large)
			c.expect("+QUEUED\r\n")
		}
		c.send(large + large + "PING\r\nEXEC\r\n")
		c.expect("-" + string(errQueueTooBig) + "\r\n+QUEUED\r\n+QUEUED\r\n-" + string(errExecAborted) + "\r\n")
		c.do("EXISTS k", ":0\r\n")
		key := strings.Repeat("k", 5<<20)
		c.send(array("WATCH", key) + array("WATCH", "other", key[1:]) + "UNWATCH\r\n" + array("WATCH", key[1:]))
		c.expect("+OK\r\n-" + string(errTooMuchWatched) + "\r\n+OK\r\n+OK\r\n")
	})
}

// While a script keeps the server busy, no command can be queued. MULTI and DISCARD are allowed, and EXEC ends the
// transaction.
func TestTransactionWhileBusy(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		c.do("WATCH k", "+OK\r\n")
		c.do("MULTI", "+OK\r\n")
		c.do("GET k", "+QUEUED\r\n")
		ts.fake.busy.Store(true)
		c.do("EXEC", "-EXECABORT Transaction discarded because of: "+string(store.ErrBusyScript)+"\r\n")
		c.do("MULTI", "+OK\r\n")
		c.do("GET k", "-"+string(store.ErrBusyScript)+"\r\n")
		c.do("DISCARD", "+OK\r\n")
		c.do("MULTI", "+OK\r\n")
		c.do("GET k", "-"+string(store.ErrBusyScript)+"\r\n")
		ts.fake.busy.Store(false)
		c.do("EXEC", "-"+string(errExecAborted)+"\r\n")
		c.do("EXEC", "-"+string(errExecWithoutMulti)+"\r\n")
	})
}

// If the leader refuses an EXEC, the transaction ends, and this node has run none of its commands either.
func TestTransactionThatTheLeaderRefuses(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		const why = "CLUSTERDOWN The cluster has no leader"
		c := ts.dial(t)
		ts.fake.refusal.Store(store.Error(why))
		c.do("WATCH k", "-"+why+"\r\n")
		c.send("MULTI\r\nSELECT 3\r\nSET k v\r\nPING\r\nEXEC\r\n")
		c.expect("+OK\r\n" + strings.Repeat("+QUEUED\r\n", 3) + "-" + why + "\r\n")
		c.do("EXEC", "-"+string(errExecWithoutMulti)+"\r\n")
		ts.fake.refusal.Store(store.Error(""))
		c.send("MULTI\r\nGET k\r\nEXEC\r\nCLIENT INFO\r\n")
		c.expect("+OK\r\n+QUEUED\r\n*1\r\n$-1\r\n")
		v, err := transcript.ReadValue(bufio.NewReader(c.conn))
		if err != nil || !strings.Contains(v.Text, " db=0 ") || !strings.Contains(v.Text, " multi=-1 ") {
			t.Errorf("after a refused EXEC: %q, %v", v.Text, err)
		}
	})
}

// TestUnknownTransactionEndsTheConnection: the outcome of a transaction with SELECT is not known, so neither is the database in which
// later commands would run.
func TestUnknownTransactionEndsTheConnection(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		why := string(cluster.ErrIndeterminate)
		ts.fake.refusal.Store(store.Error(why))
		for _, command := range []string{"SELECT 3", "HELLO 3"} {
			c := ts.dial(t)
			c.send("MULTI\r\n" + command + "\r\nSET k v\r\nEXEC\r\nPING\r\n")
			c.expect("+OK\r\n" + strings.Repeat("+QUEUED\r\n", 2) + "-" + why + "\r\n")
			_ = c.conn.SetReadDeadline(time.Now().Add(10 * time.Second)) // if it fails, the test waits longer
			if rest, err := io.ReadAll(c.conn); len(rest) > 0 || err != nil {
				t.Errorf("%s: %q follows, %v", command, rest, err)
			}
		}
		c := ts.dial(t)
		c.send("MULTI\r\nSET k v\r\nEXEC\r\nPING\r\n")
		c.expect("+OK\r\n+QUEUED\r\n-" + why + "\r\n+PONG\r\n")
	})
}

// TestBusyChangesNoLaterCommand: after one BUSY, later commands of a pipeline get BUSY, too. Otherwise a SET after a refused SELECT would
// use the wrong database.
func TestBusyChangesNoLaterCommand(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		c := ts.dial(t)
		busy := "-" + string(store.ErrBusyScript) + "\r\n"
		ts.fake.busyOnce.Store(true)
		c.send("SELECT 1\r\nSET k v NX\r\nMULTI\r\nINCR n\r\nEXEC\r\nPING\r\n")
		c.expect(busy + busy + "+OK\r\n" + busy + "-" + string(store.ErrExecAbort(store.ErrBusyScript)) + "\r\n" + busy)
		c.do("EXISTS k n", ":0\r\n")
		c.do("SELECT 1", "+OK\r\n")

		// CLIENT CACHING needs no leader that has confirmed the password, because it applies to the next command.
		c.do("CLIENT TRACKING ON OPTIN", "+OK\r\n")
		<-ts.learned
		ts.patient.Store(int64(5 * time.Millisecond))
		ts.elsewhere("ACL SETUSER op on >p +@all ~*")
		ts.fake.unready.Store(true)
		c.do("AUTH op p", "+OK\r\n")
		c.do("CLIENT CACHING YES", "+OK\r\n")
		ts.fake.unready.Store(false)
		c.do("GET other", "$-1\r\n")
		if n, _ := ts.TrackedKeys(); n != 1 {
			t.Errorf("after CLIENT CACHING YES without a leader, the node remembers %d keys, want 1", n)
		}
	})
}

package server

import (
	"fmt"
	"github.com/lockstep-io/lockstep/store"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestOwnWorkRests: a client that has used much time of its node gives way, but for subscriptions and transactions only in a flood.
func TestOwnWorkRests(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		value := strings.Repeat("x", 200_000)
		lock := ts.dial(t)
		for i := range 300 {
			channel := fmt.Sprintf("redisson_lock__channel:{%d}", i)
			lock.send(array("SUBSCRIBE", channel))
			lock.expect("*3\r\n" + bulk("subscribe") + bulk(channel) + fmt.Sprintf(":%d\r\n", i+1))
		}
		txn := ts.dial(t)
		for range 300 {
			txn.send("MULTI\r\nGET k\r\nEXEC\r\n")
			txn.expect("+OK\r\n+QUEUED\r\n*1\r\n$-1\r\n")
		}
		if n := ts.fake.rested.Load(); n != 0 {
			t.Errorf("clients with notifications and transactions have given way for %d ns", n)
		}
		c := ts.dial(t)
		c.send(array("ECHO", value) + array("ECHO", value) + "PING\r\n")
		c.expect(bulk(value) + bulk(value) + "+PONG\r\n")
		if n := ts.fake.rested.Load(); n < 4_000_000 {
			t.Errorf("a client with 400 KB of replies has given way for %d ns", n)
		}
		for what, command := range map[string]string{"unknown commands": array(strings.Repeat("x", 100)), "subscriptions": array("SUBSCRIBE", strings.Repeat("x", 4000))} {
			before := ts.fake.rested.Load()
			c := ts.dial(t)
			go func() { // writes while the test reads
				_, _ = io.WriteString(c.conn, strings.Repeat(command, 3000)+"QUIT\r\n")
			}()
			if _, err := io.ReadAll(c.conn); err != nil {
				t.Error(err)
			}
			if n := ts.fake.rested.Load() - before; n < 2_000_000 {
				t.Errorf("a client that pipelines %s has given way for %d ns", what, n)
			}
		}
		c = ts.dial(t)
		before := ts.fake.rested.Load()
		value = strings.Repeat("x", 1_500_000)
		for range 2 {
			c.send("MULTI\r\n" + array("ECHO", value) + "EXEC\r\n")
			c.expect("+OK\r\n+QUEUED\r\n*1\r\n" + bulk(value))
		}
		if n := ts.fake.rested.Load() - before; n < 15_000_000 {
			t.Errorf("a client whose transactions have 3 MB of replies has given way for %d ns", n)
		}
	})
}

// TestLoginsThatWaitAreNoWork: while a login waits until the leader confirms the password, the node does nothing for the client. So
// the client does not give way afterwards.
func TestLoginsThatWaitAreNoWork(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		ts.dial(t).do("ACL SETUSER u on >pw +@all ~*", "+OK\r\n")
		for _, login := range []string{"AUTH u pw\r\n", "HELLO 2 AUTH u pw\r\n", "MULTI\r\nAUTH u pw\r\nEXEC\r\n"} {
			c := ts.dial(t)
			release := ts.fake.holdBack()
			c.send(login + "CLIENT SETNAME x\r\nQUIT\r\n")
			until(t, "the question", func() bool { return ts.fake.held.Load() == 1 })
			ts.fake.advance(5 * ownSlice)
			release()
			if _, err := io.ReadAll(c.conn); err != nil {
				t.Error(err)
			}
			if n := ts.fake.rested.Load(); n != 0 {
				t.Errorf("%q: the client has given way for %d ns", login, n)
			}
		}
	})
}

// TestKillsGiveWayForNobody: SCRIPT KILL and FUNCTION KILL run at once. If they gave way, they might wait for the script that they
// are to end.
func TestKillsGiveWayForNobody(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		value := strings.Repeat("x", 200_000)
		for _, kill := range []string{array("SCRIPT", "KILL"), array("FUNCTION", "KILL")} {
			c := ts.dial(t)
			c.send(array("ECHO", value) + array("ECHO", value))
			c.expect(bulk(value) + bulk(value))
			before := ts.fake.rested.Load()
			c.send(kill)
			c.expect("+OK\r\n") // the reply of the fake backend
			if n := ts.fake.rested.Load() - before; n != 0 {
				t.Errorf("%q has given way for %d ns", kill, n)
			}
			c.send("PING\r\n")
			c.expect("+PONG\r\n")
			if n := ts.fake.rested.Load() - before; n == 0 {
				t.Error("PING has not given way")
			}
		}
	})
}

// TestOwnWorkRestsWithinExec: a client also gives way between the commands of one EXEC. A transaction does not run all of them at
// once.
func TestOwnWorkRestsWithinExec(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		value := strings.Repeat("x", 200_000)
		c := ts.dial(t)
		go func() { // writes while the test reads
			_, _ = io.WriteString(c.conn, "MULTI\r\n"+strings.Repeat(array("ECHO", value), 20)+"EXEC\r\n")
		}()
		c.expect("+OK\r\n" + strings.Repeat("+QUEUED\r\n", 20) + "*20\r\n" + strings.Repeat(bulk(value), 20))
		if n := ts.fake.rested.Load(); n < 20_000_000 {
			t.Errorf("a client with 4 MB of replies in one EXEC has given way for %d ns", n)
		}
	})
}

// TestChecksAreOwnWork: long checks of a user's rights count as work once, even for refused commands.
func TestChecksAreOwnWork(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		rule := "~*" + strings.Repeat("[a]", 63) + "[b]"
		slow := []string{"ACL", "SETUSER", "slow", "on", "nopass", "+@all", "resetkeys", rule + "1", rule + "2", rule + "3", "~a*7"}
		c := ts.dial(t)
		c.send(array(slow...))
		c.expect("+OK\r\n")
		c = ts.dial(t)
		c.send(array("AUTH", "slow", "x"))
		c.expect("+OK\r\n")
		key := strings.Repeat("a", 300)
		for _, k := range []struct{ key, reply string }{
			{key + "7", "$-1\r\n"}, {key + "8", "-" + string(store.ErrNoPermKey) + "\r\n"},
		} {
			before := ts.fake.rested.Load()
			c.send(strings.Repeat(array("GET", k.key), 20))
			c.expect(strings.Repeat(k.reply, 20))
			if n := ts.fake.rested.Load() - before; n < 15_000_000 {
				t.Errorf("a client whose checks take long has given way for %d ns", n)
			}
		}
		before := ts.fake.rested.Load()
		for range 300 {
			c.send(array("GET", "a7"))
			c.expect("$-1\r\n")
		}
		if n := ts.fake.rested.Load() - before; n > 3_000_000 {
			t.Errorf("a client whose checks are short has given way for %d ns", n)
		}
	})
}

// TestQueuesInVainCount: queued commands that are never run count as work, however the transaction ends.
func TestQueuesInVainCount(t *testing.T) {
	for how, end := range map[string][2]string{
		"DISCARD": {"DISCARD\r\n", "+OK\r\n"}, "RESET": {"RESET\r\n", "+RESET\r\n"},
		"a refused command": {"NOSUCH\r\nPING\r\nEXEC\r\n", "-ERR unknown command 'NOSUCH', with args beginning with: \r\n+QUEUED\r\n-" + string(errExecAborted) + "\r\n"},
		"a refused EXEC":    {"EXEC x\r\n", "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n"},
	} {
		t.Run(how, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, ts *testServer) {
				c := ts.dial(t)
				const queued = 4000
				go func() { // writes while the test reads
					_, _ = io.WriteString(c.conn, "MULTI\r\n"+strings.Repeat("GET k\r\n", queued)+end[0]+"ECHO x\r\n")
				}()
				c.expect("+OK\r\n" + strings.Repeat("+QUEUED\r\n", queued) + end[1] + bulk("x"))
				if n := ts.fake.rested.Load(); n < int64(queued*queueTakes) {
					t.Errorf("a client that queued %d commands in vain has given way for %d ns", queued, n)
				}
			})
		})
	}
}

// TestLargeTransactionsLeaveTheLoop: a loop runs a transaction itself only if its commands are few and small. It leaves other
// transactions to a goroutine.
func TestLargeTransactionsLeaveTheLoop(t *testing.T) {
	ts := newTestServer(t, nil)
	ping, do := ts.table.Lookup([]byte("ping")), ts.handlers[ts.table.Lookup([]byte("ping"))]
	for _, c := range []struct {
		count, bytes int
		want         bool
	}{{1, 10, false}, {fewInPlace, 10, false}, {fewInPlace + 1, 10, true}, {2, 60_000, true}} {
		q := queued{cmd: ping, do: do, args: [][]byte{[]byte("ping"), make([]byte, c.bytes)}}
		tr := &transaction{commands: slices.Repeat([]queued{q}, c.count)}
		if got := (&session{srv: ts.Server}).execWaits(tr); got != c.want {
			t.Errorf("%d commands of %d bytes: %v", c.count, c.bytes, got)
		}
	}
}

// TestOwnWorkIsForgotten: work counts for a second only. A monitoring client that asks for INFO every few seconds never waits.
func TestOwnWorkIsForgotten(t *testing.T) {
	now := time.Unix(1000, 0)
	clock := func() time.Time { return now }
	info := &store.Command{Name: "info"}
	w := ownWork{all: &allOwnWork{}}
	for range 5 {
		if w.exceeds(ownSlice, clock) {
			t.Error("work of two seconds ago counts")
		}
		w.add(info, now, 2*ownSlice, 5000)
		if !w.exceeds(ownSlice, clock) {
			t.Error("work of now does not count")
		}
		now = now.Add(2 * ownMemory)
	}
	for range 20 {
		w.add(info, now, ownSlice/100, 0)
		now = now.Add(ownMemory / 10)
	}
	if w.exceeds(ownSlice, clock) {
		t.Error("a little, again and again, counts as much")
	}
}

// TestOwnWorkOfManyClients: when the node has worked much for all clients together, each client gets less time than before. In the
// next second, all clients begin anew.
func TestOwnWorkOfManyClients(t *testing.T) {
	now := time.Unix(1000, 0)
	clock := func() time.Time { return now }
	info := &store.Command{Name: "info"}
	var all allOwnWork
	clients := make([]ownWork, 200)
	for i := range clients {
		clients[i].all = &all
	}
	for round := range 3 {
		rest := 0
		for range 8 {
			for i := range clients {
				w := &clients[i]
				if w.exceeds(ownSlice, clock) {
					rest++
					continue
				}
				w.add(info, now, ownSlice/10-1, 0)
			}
		}
		if all.took.Load() > int64(ownAtOnce+time.Duration(len(clients))*ownSlice/ownCrowd) {
			t.Errorf("round %d: the node worked for %v", round, time.Duration(all.took.Load()))
		}
		if rest == 0 {
			t.Errorf("round %d: nobody gives way", round)
		}
		one := ownWork{all: &all}
		for range 10 {
			one.add(info, now, ownSlice/1000, 0)
		}
		if one.exceeds(ownSlice, clock) {
			t.Errorf("round %d: who asks for little has to give way", round)
		}
		now = now.Add(ownMemory + time.Millisecond)
	}
}

// TestPauseBeginsWhileAClientGivesWay: a pause also holds back the command of a client that is giving way when the pause begins.
func TestPauseBeginsWhileAClientGivesWay(t *testing.T) {
	value := strings.Repeat("x", 200_000)
	for name, c := range map[string]struct{ before, command, want string }{
		"rests":           {array("ECHO", value), array("ECHO", "y"), bulk("y")},
		"large arguments": {array("ECHO", "y"), array("ECHO", value), bulk(value)},
	} {
		t.Run(name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, ts *testServer) {
				client := ts.dial(t)
				client.send(c.before)
				client.expect(bulk(map[bool]string{true: value, false: "y"}[name == "rests"]))
				var ran int64
				begin := func() {
					ran = ts.stats.commands.Load()
					ts.pause.begin(pauseAll, 1_000_000)
				}
				ts.fake.meanwhile.Store(&begin)
				client.send(c.command + "PING\r\n")
				until(t, "the client to wait", func() bool { return ts.pause.count() == 1 })
				if got := ts.stats.commands.Load(); got != ran {
					t.Errorf("%d commands were run in the pause", got-ran)
				}
				ts.pause.end()
				client.expect(c.want + "+PONG\r\n")
			})
		})
	}
}

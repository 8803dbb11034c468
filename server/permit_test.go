package server

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// TestStrangersShareTheirQuestions: clients with wrong passwords share the questions to the leader. The leader is not asked for each
// client.
func TestStrangersShareTheirQuestions(t *testing.T) {
	// With a short patience, a test process that was held up would give up each question, and ask again for the next client.
	ts := newTestServer(t, func(c *Config) { c.RequirePass, c.patience = "secret", time.Minute })
	const strangers = 50
	release := ts.fake.holdBack()
	var wg sync.WaitGroup
	for range strangers {
		c := ts.dial(t)
		c.send("AUTH wrong\r\n")
		wg.Go(func() { c.expect("-" + string(errWrongPass) + "\r\n") })
	}
	ts.await(func() bool { return ts.looks.waiting.Load() == strangers })
	release()
	wg.Wait()
	ts.fake.mu.Lock()
	defer ts.fake.mu.Unlock()
	if n := len(ts.fake.batch); n == 0 || n > strangers/4 {
		t.Errorf("the leader was asked %d times by %d strangers", n, strangers)
	}
}

// TestHelloAsksOnce: a HELLO with many users and passwords asks the leader once, and so does a transaction of many AUTHs and HELLOs.
func TestHelloAsksOnce(t *testing.T) {
	ts := newTestServer(t, nil)
	<-ts.learned
	ts.elsewhere("ACL SETUSER a on >p +@all ~*")
	ts.elsewhere("ACL SETUSER b on >q +@all ~*")
	pairs := strings.Fields(strings.Repeat("AUTH a p SETNAME x AUTH b q SETNAME y ", 1000))
	hello := array(append([]string{"HELLO", "2"}, pairs...)...)
	asked := func(most int, c *client, send string, whoami string) {
		t.Helper()
		ts.fake.mu.Lock()
		ts.fake.batch = nil
		ts.fake.mu.Unlock()
		c.send(send)
		c.until(whoami)
		ts.fake.mu.Lock()
		defer ts.fake.mu.Unlock()
		if n := len(ts.fake.batch); n == 0 || n > most {
			t.Errorf("the leader was asked %d times", n)
		}
	}
	asked(3, ts.dial(t), hello+array("ACL", "WHOAMI")+array("CLIENT", "GETNAME"), "$1\r\nb\r\n$1\r\ny\r\n")
	asked(6, ts.dial(t), array("MULTI")+hello+array("ACL", "WHOAMI")+array("SET", "k", "v")+array("EXEC"), "$1\r\nb\r\n+OK\r\n")
	logins := strings.Repeat(array("AUTH", "a", "p")+array("HELLO", "2", "AUTH", "b", "q")+array("AUTH", "a", "wrong"), 100)
	asked(6, ts.dial(t), array("MULTI")+logins+array("ACL", "WHOAMI")+array("EXEC"), "$1\r\nb\r\n")
	asked(6, ts.dial(t), array("MULTI")+logins+array("ACL", "WHOAMI")+array("SET", "k", "v")+array("EXEC"), "$1\r\nb\r\n+OK\r\n")
	// What HELLO has done before it meets the wrong password keeps its effect.
	wrong := array("HELLO", "2", "AUTH", "a", "p", "SETNAME", "z", "AUTH", "b", "wrong", "SETNAME", "n")
	asked(3, ts.dial(t), wrong+array("ACL", "WHOAMI")+array("CLIENT", "GETNAME"), "-"+string(errWrongPass)+"\r\n$1\r\na\r\n$1\r\nz\r\n")
}

// TestRightsTakenElsewhere: a node that has not learned that a user has lost a right must not run a command for operators by this right.
func TestRightsTakenElsewhere(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		for _, change := range []string{"ACL SETUSER op -@all", "ACL DELUSER op"} {
			for _, line := range []string{"LOCKSTEP ADD n9 host:1", "LOCKSTEP REMOVE n2", "LOCKSTEP TRANSFER n2", "LOCKSTEP SNAPSHOT", "CONFIG GET requirepass",
				"CONFIG SET maxclients 50", "CLIENT KILL TYPE normal", "CLIENT PAUSE 10", "MULTI", ""} {
				ts := newTestServer(t, withLoops(loops))
				<-ts.learned // otherwise learnUsers might still ask the leader
				ts.elsewhere("ACL SETUSER op on >p +@all ~*")
				c := ts.dial(t)
				c.do("AUTH op p", "+OK\r\n")
				if line == "MULTI" {
					c.do("MULTI", "+OK\r\n")
					c.do("CONFIG GET requirepass", "+QUEUED\r\n")
					line = "EXEC"
				}
				ts.fake.lags.Store(true)
				ts.elsewhere(change)
				if line == "" {
					if got := ts.Permits("op", "p", "debug"); got == Permitted {
						t.Errorf("after %s one who comes by another way may still run DEBUG", change)
					}
					continue
				}
				c.send(line + "\r\n")
				r := bufio.NewReader(c.conn)
				got, err := r.ReadString('\n')
				if line == "EXEC" && err == nil {
					got, err = r.ReadString('\n')
				}
				if err == nil && !strings.HasPrefix(got, "-NOPERM") || err != nil && err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("after %s, %s is answered %q, %v", change, line, got, err)
				}
			}
		}
	})
}

// TestPasswordWithdrawnElsewhere: a node that has not learned of a withdrawn password lets nobody in by it.
func TestPasswordWithdrawnElsewhere(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		for _, change := range []string{"ACL SETUSER op <p", "ACL SETUSER op resetpass >q", "ACL SETUSER op off", "ACL DELUSER op", "ACL SETUSER op reset"} {
			ts := newTestServer(t, withLoops(loops))
			<-ts.learned // otherwise learnUsers might still ask the leader
			ts.elsewhere("ACL SETUSER op on >p +@all ~*")
			inMulti := ts.dial(t)
			inMulti.do("MULTI", "+OK\r\n")
			inMulti.do("AUTH op p", "+QUEUED\r\n")
			inMulti.do("ACL WHOAMI", "+QUEUED\r\n")
			ts.fake.lags.Store(true)
			ts.elsewhere(change)
			ts.dial(t).do("AUTH op p", "-"+string(errWrongPass)+"\r\n")
			ts.dial(t).do("HELLO 3 AUTH op p", "-"+string(errWrongPass)+"\r\n")
			inMulti.do("EXEC", "*2\r\n-"+string(errWrongPass)+"\r\n"+bulk("default"))
		}
		ts := newTestServer(t, withLoops(loops))
		<-ts.learned
		ts.elsewhere("ACL SETUSER op on >p +@all ~*")
		c := ts.dial(t)
		c.do("AUTH op p", "+OK\r\n")
		ts.fake.lags.Store(true)
		ts.elsewhere("ACL DELUSER op")
		ts.elsewhere("ACL SETUSER op on >q +@all ~*")
		c.do("SET k v", "-"+string(store.ErrNoPermCommand("set"))+"\r\n")
	})
}

// TestNewPasswordAtALateNode: a node that lags behind does not call a new password wrong.
func TestNewPasswordAtALateNode(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		<-ts.learned
		ts.patient.Store(int64(50 * time.Millisecond))
		ts.elsewhere("ACL SETUSER op on >p +@all ~*")
		c := ts.dial(t)
		c.do("AUTH op wrong", "-"+string(errWrongPass)+"\r\n")
		ts.fake.lags.Store(true)
		ts.fake.late.Store(true)
		ts.elsewhere("ACL SETUSER op >q <p")
		c.do("AUTH op q", "-"+string(errBehind)+"\r\n")
		c.do("HELLO 2 AUTH op q", "-"+string(errBehind)+"\r\n")
		ts.fake.late.Store(false)
		until(t, "the node to learn of the new password", func() bool { return c.ask("AUTH", "op", "q").Type == '+' })
		c.do("AUTH op p", "-"+string(errWrongPass)+"\r\n")
	})
}

// TestLetInWithoutALeader: after a login without a leader, the node refuses most commands until a leader has confirmed the password.
func TestLetInWithoutALeader(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		<-ts.learned
		ts.patient.Store(int64(5 * time.Millisecond))
		ts.elsewhere("ACL SETUSER op on >p +@all ~* &*")
		ts.fake.unready.Store(true)
		old, right, waits, held, reads := ts.dial(t), ts.dial(t), ts.dial(t), ts.dial(t), ts.dial(t)
		ts.fake.lags.Store(true)
		old.do("AUTH op p", "+OK\r\n")
		right.do("AUTH op p", "+OK\r\n")
		waits.do("AUTH op p", "+OK\r\n")
		held.do("AUTH op p", "+OK\r\n")
		reads.do("AUTH op p", "+OK\r\n")
		for _, line := range []string{"GET k", "SUBSCRIBE c", "BLPOP l 0", "CLIENT TRACKING ON", "CONFIG GET requirepass", "EVAL return 0", "ACL SETUSER evil on", "WATCH k"} {
			old.do(line, "-"+string(cluster.ErrClusterDown)+"\r\n")
		}
		old.do("PING", "+PONG\r\n")
		ts.fake.removed.Store(true)
		old.do("GET k", "-"+string(cluster.ErrRemoved)+"\r\n")
		ts.fake.removed.Store(false)
		ts.elsewhere("ACL SETUSER op >q")
		ts.fake.unready.Store(false)
		right.do("GET k", "$-1\r\n")
		waits.send("BLPOP l 0\r\n")
		ts.await(func() bool { return ts.fake.begun.Load() == 1 })
		right.do("RPUSH l v", ":1\r\n")
		waits.expect("*2\r\n" + bulk("l") + bulk("v"))
		right.do("CLIENT PAUSE 100000 WRITE", "+OK\r\n")
		held.send("SET m 1\r\n")
		ts.await(func() bool {
			ts.pause.mu.Lock()
			defer ts.pause.mu.Unlock()
			return len(ts.pause.waiting) == 1
		})
		right.do("CLIENT UNPAUSE", "+OK\r\n")
		held.expect("+OK\r\n")
		ts.elsewhere("ACL SETUSER op <p")
		old.do("GET k", "-"+string(store.ErrNoAuth)+"\r\n")
		reads.do("LOCKSTEP BACKUP BEGIN b", "-"+string(store.ErrNoAuth)+"\r\n")
		old.do("AUTH op q", "+OK\r\n")
		old.do("GET k", "$-1\r\n")
		right.do("GET k", "$-1\r\n")
	})
}

// TestTransactionBeginsWithoutALeader: after a login without a leader, a transaction is run as a whole or not at all, whenever a leader
// appears.
func TestTransactionBeginsWithoutALeader(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		<-ts.learned
		ts.patient.Store(int64(5 * time.Millisecond))
		ts.elsewhere("ACL SETUSER op on >p +@all ~* &*")
		ts.fake.unready.Store(true)
		none, late, revoked := ts.dial(t), ts.dial(t), ts.dial(t)
		for _, c := range []*client{none, late, revoked} {
			c.do("AUTH op p", "+OK\r\n")
		}
		none.send("MULTI\r\nINCR k\r\nINCR k\r\nEXEC\r\nDISCARD\r\n")
		none.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n-" + string(store.ErrExecAbort(cluster.ErrClusterDown)) + "\r\n-" + string(errDiscardWithoutMulti) + "\r\n")
		none.do("MULTI", "+OK\r\n")
		none.do("DISCARD", "+OK\r\n")
		for _, c := range []*client{late, revoked} {
			c.do("MULTI", "+OK\r\n")
			c.do("INCR k", "+QUEUED\r\n")
		}
		ts.fake.unready.Store(false)
		late.send("INCR k\r\nEXEC\r\n")
		late.expect("+QUEUED\r\n*2\r\n:1\r\n:2\r\n")
		ts.fake.lags.Store(true)
		ts.elsewhere("ACL SETUSER op <p")
		revoked.do("EXEC", "-"+string(store.ErrExecAbort(store.ErrNoAuth))+"\r\n")
		none.do("INCR k", "-"+string(store.ErrNoAuth)+"\r\n")
		none.do("GET k", "$1\r\n2\r\n") // the client is the default user again
	})
}

// TestLoginWaitsForALeaderAsOthersDo: the commands of a client whose password no leader has confirmed wait for a leader as long as
// other commands do: for Config.FailoverWait.
func TestLoginWaitsForALeaderAsOthersDo(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.FailoverWait = time.Millisecond })
	<-ts.learned
	ts.patient.Store(int64(time.Hour))
	ts.elsewhere("ACL SETUSER op on >p +@all ~* &*")
	ts.fake.unready.Store(true)
	c := ts.dial(t)
	c.do("AUTH op p", "+OK\r\n")
	c.do("GET k", "-"+string(cluster.ErrClusterDown)+"\r\n")
}

// TestPiecesAwaitNoLeader: LOCKSTEP BACKUP READ waits for no leader, but asks one that is there whether the password still counts.
func TestPiecesAwaitNoLeader(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		<-ts.learned
		ts.patient.Store(int64(5 * time.Millisecond))
		ts.elsewhere("ACL SETUSER op on >p >q +@all ~* &*")
		early := ts.dial(t)
		early.do("AUTH op p", "+OK\r\n")
		early.do("GET k", "$-1\r\n")
		ts.fake.unready.Store(true)
		reads, other := ts.dial(t), ts.dial(t)
		reads.do("AUTH op p", "+OK\r\n")
		other.do("AUTH op q", "+OK\r\n")
		name := reads.ask("LOCKSTEP", "BACKUP", "BEGIN").Elems[0].Text
		ts.patient.Store(int64(time.Hour))
		for _, c := range []*client{early, reads, other} {
			_ = c.conn.SetReadDeadline(time.Now().Add(20 * time.Second)) // so that a missing reply fails the test
		}
		for i, c := range []*client{reads, early} {
			if got, want := len(c.ask("LOCKSTEP", "BACKUP", "READ", name).Text), []int{BackupPiece, 5}[i]; got != want {
				t.Fatalf("piece %d has %d bytes, want %d", i, got, want)
			}
		}
		// No leader has confirmed this client's password, and it is not the password with which the backup began.
		other.do("LOCKSTEP BACKUP READ "+name, "-"+string(errNoBackup)+"\r\n")
		ts.fake.lags.Store(true)
		ts.elsewhere("ACL SETUSER op <p")
		ts.fake.unready.Store(false)
		reads.do("LOCKSTEP BACKUP READ "+name, "-"+string(store.ErrNoAuth)+"\r\n")
	})
}

// TestStoppedNodeIsTold: a node that was suspended runs no commands of operators until a leader has sent it the users.
func TestStoppedNodeIsTold(t *testing.T) {
	ts := newTestServer(t, nil)
	<-ts.learned // otherwise learnUsers might still ask the leader
	c := ts.dial(t)
	c.do("CONFIG SET maxclients 50", "+OK\r\n")
	release := ts.fake.holdBack()
	c.do("CONFIG SET maxclients 60", "+OK\r\n")
	ts.fake.advance(2 * pulseLate)
	c.do("CONFIG SET maxclients 70", "-"+string(errRightsUnknown)+"\r\n")
	c.do("CONFIG SET maxclients 80", "-"+string(errRightsUnknown)+"\r\n")
	ts.fake.misses.Store(2) // the node reaches the leader again in a moment
	c.do("LOCKSTEP SNAPSHOT", "-"+string(errRightsUnknown)+"\r\n")
	release()
	c.do("CONFIG GET maxclients", "*2\r\n"+bulk("maxclients")+bulk("60"))
}

// TestTransactionsNameTheirUser: the requests of EXEC and WATCH name their user. So the leader queues them with the user's other
// commands.
func TestTransactionsNameTheirUser(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		ts.elsewhere("ACL SETUSER op on >p +@all ~*")
		c := ts.dial(t)
		c.do("AUTH op p", "+OK\r\n")
		c.do("WATCH k", "+OK\r\n")
		c.do("MULTI", "+OK\r\n")
		c.do("SET k v", "+QUEUED\r\n")
		c.do("EXEC", "*1\r\n+OK\r\n")
		ts.fake.mu.Lock()
		defer ts.fake.mu.Unlock()
		if want := []string{"op", "op"}; !slices.Equal(ts.fake.txnUsers, want) {
			t.Errorf("the leader hears of %q, want %q", ts.fake.txnUsers, want)
		}
	})
}

// TestPermits: a client of another protocol, such as HTTP, has the rights of the ACL user that it names.
func TestPermits(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	if got := ts.Permits("", "", "debug"); got != Permitted || ts.HasPassword("default") {
		t.Errorf("without a password anybody is the default user: %v", got)
	}
	c.do("ACL SETUSER op on >p +debug", "+OK\r\n")
	c.do("ACL SETUSER off off >p +@all", "+OK\r\n")
	c.do("CONFIG SET requirepass secret", "+OK\r\n")
	if !ts.HasPassword("default") || ts.HasPassword("nobody") {
		t.Error("the default user has a password, nobody has none")
	}
	for _, k := range []struct {
		name, password, command string
		want                    Verdict
	}{
		{"", "", "debug", Unknown}, {"default", "secret", "debug", Permitted}, {"default", "", "debug", Unknown}, {"op", "p", "debug", Permitted},
		{"op", "p", "info", Forbidden}, {"op", "q", "debug", Unknown}, {"off", "p", "debug", Unknown}, {"nobody", "p", "debug", Unknown}, {"op", "p", "nosuch", Forbidden},
	} {
		if got := ts.Permits(k.name, k.password, k.command); got != k.want {
			t.Errorf("%s/%s %s: %v, want %v", k.name, k.password, k.command, got, k.want)
		}
	}
}

// TestPermitsBesideASilentLeader: no request at the HTTP port waits for long for a leader that does not answer.
func TestPermitsBesideASilentLeader(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.RequirePass, c.patience = "secret", 10*time.Millisecond })
	<-ts.learned
	defer ts.fake.holdBack()()
	for _, command := range []string{"info", "debug"} {
		told := make(chan Verdict, 1)
		go func() { told <- ts.Permits("default", "wrong", command) }()
		select {
		case got := <-told:
			if got != Unknown {
				t.Errorf("%s: %v", command, got)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: who has a wrong password waits for the leader", command)
		}
	}
}

// TestPermitsBeforeTheUsersAreKnown: a node without a leader that does not know the users yet lets nobody in. The configuration that
// it was started with does not count.
func TestPermitsBeforeTheUsersAreKnown(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.fake.refusal.Store(cluster.ErrClusterDown)
	ts.hub.accounts.current.Store(false)
	for _, name := range []string{"", "default"} {
		for _, password := range []string{"", "x"} {
			if got := ts.Permits(name, password, "debug"); got != Unknown {
				t.Errorf("%q/%q: %v", name, password, got)
			}
		}
	}
}

// TestLogOfRefusalsIsBounded: names that a client chooses cannot make the entries of the ACL log large.
func TestLogOfRefusalsIsBounded(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	c.do("ACL SETUSER bob on nopass +get ~a*", "+OK\r\n")
	c.do("AUTH bob x", "+OK\r\n")
	c.ask("GET", strings.Repeat("k", 1<<20))
	c.ask("AUTH", strings.Repeat("u", 1<<20), "x")
	size := 0
	ts.aclLog.mu.Lock()
	defer ts.aclLog.mu.Unlock()
	for _, e := range ts.aclLog.entries {
		size += len(e.object) + len(e.user)
	}
	if len(ts.aclLog.entries) != 2 || size > 4*aclLogWord {
		t.Errorf("%d entries with %d bytes of names", len(ts.aclLog.entries), size)
	}
}

// TestAnotherUserOfTheSameName: if one transaction deletes a user and sets a user of the same name, the first user's connections end.
func TestAnotherUserOfTheSameName(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		<-ts.learned
		admin := ts.dial(t)
		for _, again := range []string{"ACL SETUSER op on >q ~* &* +@all", "ACL DELUSER op"} {
			admin.do("ACL SETUSER op on >p ~a &a +@all", "+OK\r\n")
			idle, listens := ts.dial(t), ts.dial(t)
			for _, c := range []*client{idle, listens} {
				c.do("AUTH op p", "+OK\r\n")
			}
			listens.do("SUBSCRIBE a", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
			admin.do("MULTI", "+OK\r\n")
			admin.do("ACL DELUSER op", "+QUEUED\r\n")
			admin.do("ACL SETUSER op on >q ~* &* +@all", "+QUEUED\r\n")
			admin.do(again, "+QUEUED\r\n")
			admin.send("EXEC\r\n")
			admin.until("*3\r\n:1\r\n+OK\r\n")
			admin.until("\r\n")
			for _, c := range []*client{idle, listens} {
				_ = c.conn.SetReadDeadline(time.Now().Add(20 * time.Second)) // so that a connection that stays open fails the test
				if got, err := io.ReadAll(c.conn); err == nil && len(got) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%s: the first user's connection was sent %q, %v", again, got, err)
				}
			}
			admin.send("ACL DELUSER op\r\n")
			admin.until("\r\n")
		}
		// A user that is only changed stays the same user.
		admin.do("ACL SETUSER op on >p ~a &a +@all", "+OK\r\n")
		stays := ts.dial(t)
		stays.do("AUTH op p", "+OK\r\n")
		admin.do("ACL SETUSER op ~b", "+OK\r\n")
		stays.do("GET b", "$-1\r\n")
	})
}

// TestChangesOfTheClusterNeedAnAnswer: without a leader, a change of the cluster fails with an error that does not speak of rights.
func TestChangesOfTheClusterNeedAnAnswer(t *testing.T) {
	ts := newTestServer(t, nil)
	<-ts.learned
	ts.patient.Store(int64(5 * time.Millisecond))
	ts.fake.unready.Store(true)
	c := ts.dial(t)
	for _, line := range []string{"LOCKSTEP ADD n4 127.0.0.1:7004", "LOCKSTEP REMOVE n3", "LOCKSTEP TRANSFER", "FAILOVER"} {
		c.do(line, "-TRYAGAIN The leader does not answer in time, or there is none: nothing was changed, try again\r\n")
	}
}

// TestMay: a page of another protocol learns what the server would refuse, and whether a login is still right.
func TestMay(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	c.do("ACL SETUSER op on >p ~a* resetchannels +lock.force +psubscribe +acl|whoami", "+OK\r\n")
	for command, want := range map[string]bool{
		"lock.force": true, "lock.force a REASON x": true, "LOCK.FORCE b REASON x": false, "lock.info a": false, "psubscribe __lock@*": false,
		"acl whoami": true, "acl list": false, "no.such a": true,
	} {
		if got := ts.May("op", strings.Fields(command)...); got != want {
			t.Errorf("%s: %v", command, got)
		}
	}
	if ts.May("nobody", "ping") || ts.May("op") {
		t.Error("nobody may run anything, and nobody may run nothing")
	}
	hash := store.HashPassword([]byte("p"))
	right := func(want bool) {
		t.Helper()
		if got := ts.StillRight("op", hash); got != want {
			t.Errorf("the login is right: %v, want %v", got, want)
		}
	}
	right(true)
	if ts.StillRight("op", store.HashPassword([]byte("q"))) || ts.StillRight("nobody", hash) {
		t.Error("a wrong login is right")
	}
	c.do("ACL SETUSER op >q", "+OK\r\n")
	right(true)
	c.do("ACL SETUSER op off", "+OK\r\n")
	right(false)
	c.do("ACL SETUSER op on <p", "+OK\r\n")
	right(false)
	c.do("ACL SETUSER op nopass", "+OK\r\n")
	right(true)
	c.do("ACL DELUSER op", ":1\r\n")
	right(false)
}

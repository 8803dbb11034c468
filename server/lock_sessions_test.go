package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// lockServer is a server whose backend counts tokens, with a client that has a lock by SESSION.
func lockServer(t *testing.T, loops int) (*testServer, *client) {
	ts := newTestServer(t, withLoops(loops))
	ts.fake.mu.Lock()
	err := ts.fake.store.RaiseTokens(1, 0)
	ts.fake.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	c := ts.dial(t)
	c.send("LOCK.ACQUIRE lock me PX 3000 SESSION\r\n")
	c.expect("*3\r\n:2\r\n:3000\r\n:1\r\n")
	return ts, c
}

// after moves the clock by whole seconds, with a round of renewals after each.
func (ts *testServer) after(seconds int) {
	for range seconds {
		ts.fake.advance(time.Second)
		ts.locks.round(ts.Server)
	}
}

// ttl returns the reply to PTTL of a lock.
func (ts *testServer) ttl(key string) string {
	return fmt.Sprint(ts.elsewhere("PTTL " + key).Int)
}

// TestSessionLockLivesWithTheConnection: the node renews the lock while the connection lives, and releases it when it ends.
func TestSessionLockLivesWithTheConnection(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts, c := lockServer(t, loops)
		ts.after(20)
		if got := ts.ttl("lock"); got != "3000" && got != "2000" {
			t.Errorf("after 20 s the lease has %s ms", got)
		}
		c.conn.Close()
		until(t, "the release", func() bool { return ts.ttl("lock") == "-2" })
		ts.locks.mu.Lock()
		defer ts.locks.mu.Unlock()
		if len(ts.locks.of) != 0 {
			t.Errorf("%d sessions have locks", len(ts.locks.of))
		}
	})
}

// TestSessionLockOfALaterOwnerIsLeftAlone: after the lock has gone to somebody else, the node neither renews nor releases it, even if the
// owner has the same name.
func TestSessionLockOfALaterOwnerIsLeftAlone(t *testing.T) {
	ts, c := lockServer(t, 0)
	ts.elsewhere("DEL lock")
	ts.elsewhere("LOCK.ACQUIRE lock me PX 60000")
	ts.after(4)
	if got := ts.ttl("lock"); got != "56000" {
		t.Errorf("the lease has %s ms", got)
	}
	c.conn.Close()
	until(t, "the end of the session", func() bool {
		ts.Server.mu.Lock()
		defer ts.Server.mu.Unlock()
		return len(ts.sessions) == 0
	})
	if got := ts.ttl("lock"); got != "56000" {
		t.Errorf("the lease has %s ms", got)
	}
}

// TestSessionLockThatIsReleased: a release ends the renewals; each further hold needs a release of its own.
func TestSessionLockThatIsReleased(t *testing.T) {
	ts, c := lockServer(t, 0)
	c.send("LOCK.RELEASE lock me\r\nLOCK.ACQUIRE r me PX 3000 SESSION REENTRANT\r\nLOCK.ACQUIRE r me PX 3000 REENTRANT SESSION\r\nLOCK.RELEASE r me\r\n")
	c.expect(":0\r\n*3\r\n:3\r\n:3000\r\n:1\r\n*3\r\n:3\r\n:3000\r\n:2\r\n:1\r\n")
	ts.after(7)
	if got := ts.ttl("r"); got != "3000" && got != "2000" {
		t.Errorf("held once more: the lease has %s ms", got)
	}
	c.send("LOCK.RELEASE r me\r\n")
	c.expect(":0\r\n")
	c.send("SET r me PX 3000\r\n")
	c.expect("+OK\r\n")
	ts.after(4)
	if got := ts.ttl("r"); got != "-2" {
		t.Errorf("released: the lease has %s ms", got)
	}
}

// TestSessionLockOutlivesAFailedRenewal: after an error the node tries again in the next round.
func TestSessionLockOutlivesAFailedRenewal(t *testing.T) {
	ts, _ := lockServer(t, 0)
	ts.fake.refusal.Store(store.Error("CLUSTERDOWN no leader"))
	ts.after(2)
	ts.fake.refusal.Store(store.Error(""))
	ts.after(1)
	if got := ts.ttl("lock"); got != "3000" {
		t.Errorf("the lease has %s ms", got)
	}
}

// TestSessionLocksInManyParts: the node renews and releases many locks in parts, so that no submission is long.
func TestSessionLocksInManyParts(t *testing.T) {
	ts, c := lockServer(t, 0)
	const n = 2*renewAtOnce + 7
	for i := range n {
		c.send(fmt.Sprintf("LOCK.ACQUIRE many%d me PX 3000 SESSION\r\n", i))
		c.expect(fmt.Sprintf("*3\r\n:%d\r\n:3000\r\n:1\r\n", i+3))
	}
	ts.after(2)
	ts.fake.mu.Lock()
	if largest := slices.Max(ts.fake.batch); largest != renewAtOnce {
		t.Errorf("%d renewals at once", largest)
	}
	ts.fake.mu.Unlock()
	ts.after(10)
	for i := range n {
		if got := ts.ttl(fmt.Sprint("many", i)); strings.HasPrefix(got, "-") {
			t.Fatalf("lock %d: %s", i, got)
		}
	}
	c.conn.Close()
	until(t, "the release", func() bool { return ts.ttl(fmt.Sprint("many", n-1)) == "-2" && ts.ttl("many0") == "-2" })
}

// A renewal that was answered 0 for the former lock does not end the renewals of the lock that the session has taken since.
func TestRenewalOfAFormerSessionLock(t *testing.T) {
	ts, c := lockServer(t, 0)
	ts.fake.advance(time.Second)
	ts.locks.mu.Lock()
	list, calls := ts.locks.due(ts.Server) // the renewal is on its way …
	ts.locks.mu.Unlock()
	c.send("LOCK.RELEASE lock me\r\n")
	c.expect(":0\r\n")
	replies := ts.backend.Submit(calls, nil) // … and comes behind the release
	c.send("LOCK.ACQUIRE lock me PX 3000 SESSION\r\n")
	c.expect("*3\r\n:3\r\n:3000\r\n:1\r\n")
	ts.locks.renewed(list, replies, ts.cfg.Clock())
	ts.after(5)
	if got := ts.ttl("lock"); got == "-2" {
		t.Errorf("the lock of a living session has ended: ttl %s", got)
	}
}

// Renewals never shorten a lease, and the end of the connection releases only what was taken with SESSION.
func TestSessionRenewalShortensNothing(t *testing.T) {
	ts, c := lockServer(t, 0)
	ts.elsewhere("LOCK.ACQUIRE r me PX 600000 REENTRANT")
	c.send("LOCK.ACQUIRE r me PX 3000 REENTRANT SESSION\r\n")
	c.expect("*3\r\n:3\r\n:600000\r\n:2\r\n")
	ts.after(2)
	c.conn.Close()
	until(t, "the release", func() bool { return ts.ttl("lock") == "-2" })
	ts.fake.advance(4 * time.Second)
	if got := ts.ttl("r"); got == "-2" {
		t.Errorf("a hold with 10 minutes has ended after 6 s")
	}
}

// A hold without SESSION inside one with SESSION: its release does not end the renewals.
func TestNestedSessionLock(t *testing.T) {
	ts, c := lockServer(t, 0)
	c.send("LOCK.ACQUIRE r me PX 3000 REENTRANT SESSION\r\nLOCK.ACQUIRE r me PX 3000 REENTRANT\r\nLOCK.RELEASE r me\r\n")
	c.expect("*3\r\n:3\r\n:3000\r\n:1\r\n*3\r\n:3\r\n:3000\r\n:2\r\n:1\r\n")
	ts.after(5)
	if got := ts.ttl("r"); got == "-2" {
		t.Errorf("the lock of a living session has ended")
	}
}

// The reply that grants a lock of the queue leaves before the session waits for anything else.
func TestQueueGrantIsSentBeforeAWait(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts, _ := lockServer(t, loops)
		c := ts.dial(t)
		gate := make(chan struct{})
		ts.fake.hold.Store(&gate)
		c.send("LOCK.ACQUIRE q me PX 3000 WAIT 1000\r\nSET other x\r\n")
		c.expect("*3\r\n:3\r\n:3000\r\n:1\r\n")
		ts.fake.hold.Store(nil)
		close(gate)
		c.expect("+OK\r\n")
	})
}

// Many holds of one session lock take no memory each, and are released by one call.
func TestManyHoldsOfASessionLock(t *testing.T) {
	ts, c := lockServer(t, 0)
	for i := range 50 {
		c.send("LOCK.ACQUIRE r me PX 3000 REENTRANT SESSION\r\n")
		c.expect(fmt.Sprintf("*3\r\n:3\r\n:3000\r\n:%d\r\n", i+1))
	}
	ts.fake.mu.Lock()
	ts.fake.batch = nil
	ts.fake.mu.Unlock()
	c.conn.Close()
	until(t, "the release", func() bool { return ts.ttl("r") == "-2" })
	ts.fake.mu.Lock()
	defer ts.fake.mu.Unlock()
	if largest := slices.Max(ts.fake.batch); largest != 2 {
		t.Errorf("%d calls release 2 locks", largest)
	}
}

// A user who may not renew keeps the lock for its lease, and the node does not ask again and again.
func TestSessionLockWithoutTheRight(t *testing.T) {
	ts, c := lockServer(t, 0)
	c.send("ACL SETUSER default -lock.renew\r\n")
	c.expect("+OK\r\n")
	ts.after(2)
	ts.locks.mu.Lock()
	defer ts.locks.mu.Unlock()
	if len(ts.locks.of) != 0 {
		t.Error("the node still renews the lock")
	}
}

// TestSessionOfASharedLock: the end of a session ends its own hold of a shared lock, and not a later one of the same owner.
func TestSessionOfASharedLock(t *testing.T) {
	ts, c := lockServer(t, 0)
	ts.elsewhere("LOCK.ACQUIRE s other PX 600000 SHARED")
	c.send("LOCK.ACQUIRE s me PX 3000 SESSION SHARED\r\n")
	c.expect("*3\r\n:4\r\n:3000\r\n:1\r\n")
	ts.elsewhere("LOCK.RELEASE s me")
	ts.elsewhere("LOCK.ACQUIRE s me PX 60000 SHARED")
	c.conn.Close()
	until(t, "the release of the first lock", func() bool { return ts.ttl("lock") == "-2" })
	if got := ts.elsewhere("LOCK.RENEW s me PX 60000").Int; got != 1 {
		t.Error("the later hold is gone")
	}
}

// TestSessionLockLapses: when its connection has ended, a lock with a delay keeps others out for that time.
func TestSessionLockLapses(t *testing.T) {
	ts, c := lockServer(t, 0)
	c.send("LOCK.ACQUIRE d me PX 3000 SESSION DELAY 9000\r\n")
	c.expect("*3\r\n:3\r\n:3000\r\n:1\r\n")
	c.conn.Close()
	until(t, "the release of the other lock", func() bool { return ts.ttl("lock") == "-2" })
	until(t, "the lapse", func() bool { return ts.ttl("d") == "9000" })
	if r := ts.elsewhere("LOCK.ACQUIRE d you PX 1000"); r.Kind != store.NullArray {
		t.Error("another owner has the lock")
	}
}

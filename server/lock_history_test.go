package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/server/history"
	"github.com/lockstep-io/lockstep/store"
)

// locked tells the server's hub of an event.
func (ts *testServer) locked(seq uint64, e store.LockEvent) {
	ts.hub.Locked(seq, store.Time{Lease: 5, Wall: 1_700_000_000_123_000}, []store.LockEvent{e})
}

// TestLockMessages: events go to subscribers of their channels, and of patterns that begin like these, but not to those who ask for all messages.
func TestLockMessages(t *testing.T) {
	ts := newTestServer(t, nil)
	all, some, one := ts.dial(t), ts.dial(t), ts.dial(t)
	all.do("PSUBSCRIBE *", "*3\r\n$10\r\npsubscribe\r\n$1\r\n*\r\n:1\r\n")
	some.do("PSUBSCRIBE __lock@*:granted", "*3\r\n$10\r\npsubscribe\r\n$16\r\n__lock@*:granted\r\n:1\r\n")
	one.do("SUBSCRIBE __lock@3__:released", "*3\r\n$9\r\nsubscribe\r\n$19\r\n__lock@3__:released\r\n:1\r\n")
	grant := store.LockEvent{How: store.LockGranted, DB: 3, Key: "k", Kind: "plain", Owner: "a", Token: 7, Holds: 1, Permits: 1, Deadline: 105}
	release := grant
	release.How, release.Holds = store.LockReleased, 0
	ts.locked(1, grant)
	ts.locked(2, release)
	ts.locked(3, store.LockEvent{How: store.LockForced, Kind: "plain"}) // LOCK.FORCE has published it
	ts.locked(4, store.LockEvent{How: store.LockFlushed})
	ts.hub.Retold(5, store.Time{}, []store.LockEvent{grant, release}) // from before the start of the node
	text := `{"seq":1,"at":"2023-11-14T22:13:20.123Z","lease":5,"db":3,"event":"granted","key":"k","kind":"plain","owner":"a","token":7,"holds":1,"permits":1,"until":105}`
	some.expect(fmt.Sprintf("*4\r\n$8\r\npmessage\r\n$16\r\n__lock@*:granted\r\n$18\r\n__lock@3__:granted\r\n$%d\r\n%s\r\n", len(text), text))
	text = strings.NewReplacer("granted", "released", `"seq":1`, `"seq":2`, `"holds":1`, `"holds":0`).Replace(text)
	one.expect(fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$19\r\n__lock@3__:released\r\n$%d\r\n%s\r\n", len(text), text))
	for _, c := range []*client{all, some, one} {
		c.do("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n") // nothing else came
	}
	one.do("UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$19\r\n__lock@3__:released\r\n:0\r\n")
	some.conn.Close()
	until(t, "both to be forgotten", func() bool {
		return ts.hub.lockNames[0].Load() == 0 && ts.hub.lockNames[store.LockReleased].Load() == 0
	})
	ts.hub.mu.RLock()
	defer ts.hub.mu.RUnlock()
	if n := ts.hub.watchers.len(); n != 0 {
		t.Errorf("%d patterns are left", n)
	}
}

// TestOtherEventsCostNothing: a client that listens to seldom events gives the node no work for each grant.
func TestOtherEventsCostNothing(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	c.do("SUBSCRIBE __lock@0__:forced", "*3\r\n$9\r\nsubscribe\r\n$17\r\n__lock@0__:forced\r\n:1\r\n")
	e := history.Event{LockEvent: store.LockEvent{How: store.LockGranted, Key: "k", Kind: "plain", Owner: "a", Token: 7, Holds: 1}}
	if n := testing.AllocsPerRun(100, func() { ts.hub.tellOfLock(e) }); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}

// TestLockStats counts events by kind, and measures how long locks were held.
func TestLockStats(t *testing.T) {
	ts := newTestServer(t, nil)
	for i, how := range []store.LockHow{store.LockGranted, store.LockExpired, store.LockGranted, store.LockForced, store.LockGranted} {
		e := store.LockEvent{How: how, Key: "k", Kind: "plain", Owner: "a", Holds: store.Flag(how == store.LockGranted).Int}
		ts.hub.Locked(uint64(i), store.Time{Wall: int64(i*i) * 1_000_000}, []store.LockEvent{e, {How: store.LockGap}})
	}
	c := ts.dial(t)
	got := c.ask("LOCK.STATS", "TOP", "1").Lines()
	want := `"k" "granted" :3 "expired" :1 "forced" :1 "held-ms" :3000 "longest-ms" :5000`
	if text := strings.Join(strings.Fields(strings.ReplaceAll(strings.Join(got, " "), "$", "")), " "); !strings.Contains(text, want) {
		t.Errorf("%s\nhas no %s", text, want)
	}
	if got := c.ask("LOCK.STATS", "TOP", "0").Lines(); len(got) < 4 || got[len(got)-1] != "  *0" {
		t.Errorf("TOP 0: %q", got)
	}
}

// TestHistoryOfTheEmptyName: the key without a name is a key like others, also for the rights of a user.
func TestHistoryOfTheEmptyName(t *testing.T) {
	ts := newTestServer(t, nil)
	for i, key := range []string{"", "app:1", "other"} {
		ts.locked(uint64(i), store.LockEvent{How: store.LockGranted, Key: key, Kind: "plain", Owner: "owner-of-" + key, Holds: 1})
	}
	ts.locked(9, store.LockEvent{How: store.LockFlushed})
	admin, alice := ts.dial(t), ts.dial(t)
	admin.do("ACL SETUSER alice on >p ~app:* +@all", "+OK\r\n")
	alice.do("AUTH alice p", "+OK\r\n")
	for _, c := range []struct {
		who  *client
		key  string
		want []string
	}{
		{admin, "*", []string{"owner-of-", "owner-of-app:1", "owner-of-other", ""}},
		{admin, "", []string{"owner-of-", ""}},
		{alice, "*", []string{"owner-of-app:1", ""}},
		{alice, "", []string{""}},
	} {
		var got []string
		lines := c.who.ask("LOCK.HISTORY", c.key).Lines()
		for i, line := range lines {
			if strings.HasSuffix(line, `$"owner"`) {
				got = append(got, strings.Trim(strings.TrimSpace(lines[i+1]), `$"`))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: owners %q, want %q", c.key, got, c.want)
		}
	}
}

// TestHistoryInScripts: a script that calls LOCK.HISTORY or LOCK.STATS can be stopped, because the work on all events counts.
func TestHistoryInScripts(t *testing.T) {
	ts := newTestServer(t, nil)
	for i := range 10_000 {
		ts.locked(uint64(i), store.LockEvent{How: store.LockGranted, Key: "k", Kind: "plain", Owner: "a", Holds: 1})
	}
	for _, args := range [][]string{{"lock.history", "k", "count", "10000"}, {"lock.stats"}} {
		looks := 0
		c := &store.Ctx{Txn: store.New().Begin(store.Time{}, 1, store.Env{}), Watch: func() { looks++ }}
		for _, arg := range args {
			c.Args = append(c.Args, []byte(arg))
		}
		c.Cmd = ts.table.Lookup(c.Args[0])
		if r := ts.RunInScript(c); r.IsError() || looks == 0 {
			t.Errorf("%s: %d looks, %v", args, looks, r)
		}
	}
}

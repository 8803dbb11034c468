package server

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// TestManyUsersAreDeletedAtOnce: one command that deletes or restricts thousands of users looks at each session once.
func TestManyUsersAreDeletedAtOnce(t *testing.T) {
	const users, sessions = 30_000, 20_000
	table := store.NewTable(store.Commands())
	srv := &Server{hub: &Hub{}, table: table, sessions: map[int64]*session{}}
	a := newAccounts()
	a.srv = srv
	for i := range users {
		a.latest.List = append(a.latest.List, &store.Account{Name: fmt.Sprint(i)})
	}
	a.update()
	// All users may listen to channel c. The next update takes that right from them.
	listener, refusal := store.NewUser(table, "", false).WithRules([]string{"&c"}, false)
	if refusal != "" {
		t.Fatal(refusal)
	}
	for i := range users {
		a.byName[fmt.Sprint(i)].user.Store(listener)
	}
	for i := range int64(sessions) {
		s := &session{id: i, lifecycle: lifecycle{running: true}, out: &outbox{}}
		s.account.Store(a.byName[fmt.Sprint(i)])
		srv.sessions[i] = s
	}
	srv.sessions[0].subs[subChannel].put("c", struct{}{})
	closing := func() (n int) {
		for _, s := range srv.sessions {
			if s.closing {
				n++
			}
		}
		return n
	}
	a.update()
	if n := closing(); n != 1 || !srv.sessions[0].closing {
		t.Errorf("%d sessions end because their users may no longer listen, not that of the listener alone", n)
	}
	a.latest.List = a.latest.List[sessions/2:]
	a.update()
	if n := closing(); n != sessions/2 || srv.sessions[sessions-1].closing {
		t.Errorf("%d sessions of deleted users end", n)
	}
}

// TestLookForLostChannelsIsBounded: the search for lost channels takes bounded steps, and cuts off a session that needs more.
func TestLookForLostChannelsIsBounded(t *testing.T) {
	table := store.NewTable(store.Commands())
	rights := func(rules ...string) *store.User {
		u, refusal := store.NewUser(table, "u", false).WithRules(rules, false)
		if refusal != "" {
			t.Fatal(refusal)
		}
		return u
	}
	slow, ordinary := []string{"&few"}, []string{"&few"}
	for i := range 50 {
		slow = append(slow, fmt.Sprintf("&*%s[b]%d", strings.Repeat("[a]", 63), i))
		ordinary = append(ordinary, fmt.Sprintf("&*:%d:*", i))
	}
	slow = append(slow, "&*[6-7]")
	for name, c := range map[string]struct {
		now    *store.User
		format string
		names  int
		ends   bool
	}{
		"slow patterns":            {rights(slow...), strings.Repeat("a", 2000) + "%d7", 20, true},
		"one slow name":            {rights(slow...), strings.Repeat("a", 20) + "%d7", 1, false},
		"ordinary patterns":        {rights(ordinary...), "a:%d:49:b", 1000, false},
		"a name that has no right": {rights(ordinary...), "a:x%d:50:b", 1, true},
		"names of one head":        {rights("&few", "&app:*"), "app:%d", 10_000, false},
		"very many names":          {rights("&few", "&app:*"), "app:%d", 70_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			acc := &account{name: "u"}
			all := losses{acc: c.now}
			var sessions []*session
			for i := range 3 {
				s := &session{id: int64(i)}
				s.account.Store(acc)
				sessions = append(sessions, s)
			}
			for i := range c.names {
				sessions[0].subs[subChannel].put(fmt.Sprintf(c.format, i), struct{}{})
			}
			sessions[1].subs[subChannel].put("few", struct{}{})
			ends := (&Hub{}).listenElsewhere(sessions, all)
			if got := len(ends) == 1 && ends[0].id == 0; got != c.ends || len(ends) > 1 {
				t.Errorf("%d sessions end; does that of many names? %v", len(ends), got)
			}
		})
	}
}

// TestUserOfTheSameNameInASnapshot: if a snapshot has a new user with an old name, the old user's connections do not get the new
// rights.
func TestUserOfTheSameNameInASnapshot(t *testing.T) {
	ts := newTestServer(t, nil)
	admin, changed, same := ts.dial(t), ts.dial(t), ts.dial(t)
	admin.do("ACL SETUSER alice on >old ~app:* +@all", "+OK\r\n")
	admin.do("ACL SETUSER bob on >p ~app:* +@all", "+OK\r\n")
	changed.do("AUTH alice old", "+OK\r\n")
	same.do("AUTH bob p", "+OK\r\n")
	f := ts.fake
	f.write(func(txn *store.Txn) { txn.DeleteUser("alice") })
	f.write(func(txn *store.Txn) {
		u, refusal := store.NewUser(ts.table, "alice", false).WithRules([]string{"on", ">new", "~*", "+@all"}, false)
		if refusal != "" {
			t.Fatal(refusal)
		}
		txn.SetUser(u)
	})
	var b bytes.Buffer
	f.mu.Lock()
	if err := f.store.Snapshot().Encode(&b); err != nil {
		t.Fatal(err)
	}
	restored, err := store.Restore(&b)
	if err != nil {
		t.Fatal(err)
	}
	f.store = restored
	f.mu.Unlock()
	f.hub.AccountsChanged(restored.Accounts())
	changed.expectClosed()
	same.do("ACL WHOAMI", bulk("bob"))
}

// TestRedirectedMessagesEndWithALogin: a client's login ends the CLIENT TRACKING messages that another user redirected to the client.
func TestRedirectedMessagesEndWithALogin(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		admin, other, victim := ts.dial(t), ts.dial(t), ts.dial(t)
		admin.do("ACL SETUSER bob on >p ~bob:* +@all", "+OK\r\n")
		id := func(c *client) string { return c.ask("CLIENT", "ID").Text }
		other.do(fmt.Sprintf("CLIENT TRACKING ON REDIRECT %s BCAST", id(victim)), "+OK\r\n")
		victim.do("AUTH bob p", "+OK\r\n")
		victim.ask("HELLO", "3")
		admin.do("SET secretkey v", "+OK\r\n")
		victim.do("GET bob:k", "_\r\n")
		admin.do("CONFIG SET requirepass secret", "+OK\r\n")
		ts.dial(t).do("GET k", "-"+string(store.ErrNoAuth)+"\r\n")
		admin.do(fmt.Sprintf("CLIENT TRACKING ON REDIRECT %d BCAST", ts.lastID.Load()), "-"+string(errNoRedirect)+"\r\n")
	})
}

// TestPasswordsOfHelloAreHidden: MONITOR and SLOWLOG hide the user name and the password of HELLO, even if the client's name is "auth".
func TestPasswordsOfHelloAreHidden(t *testing.T) {
	table := newTestServer(t, nil).table
	for line, want := range map[string]string{
		"HELLO 3 SETNAME auth AUTH bob hunter2":           "HELLO 3 SETNAME auth AUTH (redacted) (redacted)",
		"HELLO 3 AUTH bob hunter2 SETNAME auth2 auth b h": "HELLO 3 AUTH (redacted) (redacted) SETNAME auth2 auth (redacted) (redacted)",
		"HELLO 3 NAME auth AUTH bob hunter2":              "HELLO 3 NAME (redacted) (redacted) (redacted) (redacted)",
		"HELLO 3 AUTH hunter2":                            "HELLO 3 AUTH (redacted)",
		"HELLO 3":                                         "HELLO 3",
	} {
		var args [][]byte
		for _, word := range strings.Fields(line) {
			args = append(args, []byte(word))
		}
		cmd, _ := table.Resolve(args)
		if got := string(bytes.Join(redact(cmd, args), []byte(" "))); got != want {
			t.Errorf("%s is shown as %s, want %s", line, got, want)
		}
	}
}

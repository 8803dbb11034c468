package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/luavm"
	"github.com/lockstep-io/lockstep/store"
)

// TestRequirePassIsTheDefaultUsers: the password that a node was started with
// is the default user's until a command sets another.
func TestRequirePassIsTheDefaultUsers(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		var log logBuffer
		ts := newTestServer(t, func(c *Config) {
			c.Loops, c.RequirePass, c.Log = loops, "first", slog.New(slog.NewTextHandler(&log, nil))
		})
		c := ts.dial(t)
		c.do("PING", "-NOAUTH Authentication required.\r\n")
		c.do("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
		c.do("AUTH first", "+OK\r\n")
		hash := store.HashPassword([]byte("first"))
		list := fmt.Sprintf("user default on #%s ~* &* +@all", hash)
		c.do("ACL LIST", "*1\r\n"+bulk(list))
		// Rules about something else leave the password as it is.
		c.do("ACL SETUSER default -flushall", "+OK\r\n")
		d := ts.dial(t)
		d.do("AUTH first", "+OK\r\n")
		c.do("CONFIG SET requirepass second maxclients 10x", "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument couldn't be parsed into an integer\r\n")
		d.do("AUTH first", "+OK\r\n")
		const told = "--requirepass is not the password"
		if strings.Contains(log.String(), told) {
			t.Errorf("it is: %s", log.String())
		}
		c.do("CONFIG SET requirepass second", "+OK\r\n")
		d.do("AUTH first", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
		d.do("AUTH second", "+OK\r\n")
		c.do("CONFIG SET requirepass \"\"", "+OK\r\n")
		ts.dial(t).do("PING", "+PONG\r\n")
		if got := strings.Count(log.String(), told); got != 1 {
			t.Errorf("it says %d times that another password counts: %s", got, log.String())
		}
		c.do("ACL SAVE", "-"+string(errNoACLFile)+"\r\n")
		c.do("ACL LOAD", "-"+string(errNoACLFile)+"\r\n")
	})
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// denials returns the entries of the ACL log.
func (ts *testServer) denials() []aclLogEntry {
	ts.aclLog.mu.Lock()
	defer ts.aclLog.mu.Unlock()
	return slices.Clone(ts.aclLog.entries)
}

// TestRefusalInAPipeline: the commands before and after a refused one run in order. Each refusal is logged once.
func TestRefusalInAPipeline(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, func(c *Config) { c.Loops = loops })
		admin, c := ts.dial(t), ts.dial(t)
		admin.do("ACL SETUSER u on nopass ~a +get +set +echo +ping", "+OK\r\n")
		c.send(array("AUTH", "u", "x") + array("SET", "a", "1") + array("GET", "b") + array("GET", "a") + array("ECHO", "e") + array("DEL", "a") + array("PING"))
		c.expect("+OK\r\n+OK\r\n-NOPERM this user has no permissions to access one of the keys used as arguments\r\n$1\r\n1\r\n$1\r\ne\r\n" +
			"-NOPERM this user has no permissions to run the 'del' command\r\n+PONG\r\n")
		for _, e := range ts.denials() {
			if e.count != 1 {
				t.Errorf("%s is logged %d times", e.object, e.count)
			}
		}
		if n := len(ts.denials()); n != 2 {
			t.Errorf("%d entries in the log, want 2", n)
		}
		if info := strings.Join(admin.ask("INFO", "stats").Lines(), "\n"); !strings.Contains(info, "acl_access_denied_cmd:1") || !strings.Contains(info, "acl_access_denied_key:1") {
			t.Errorf("INFO stats: %s", info)
		}
	})
}

// TestGateIsFree: the check of a client that may do everything allocates
// nothing.
func TestGateIsFree(t *testing.T) {
	ts := newTestServer(t, nil)
	s := &session{srv: ts.Server}
	s.leave()
	args := [][]byte{[]byte("SET"), []byte("k"), []byte("v")}
	cmd := ts.table.Lookup(args[0])
	if n := testing.AllocsPerRun(100, func() {
		if s.mayRun(cmd, args) != "" || s.call(cmd, args).User != "" {
			t.Fatal("refused")
		}
	}); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}

// TestRightsLostOnTheWay: if this node does not know yet that a user has lost a right, the leader refuses the command.
func TestRightsLostOnTheWay(t *testing.T) {
	ts := newTestServer(t, nil)
	admin := ts.dial(t)
	admin.do("ACL SETUSER u on nopass ~a +get", "+OK\r\n")
	get := ts.table.Lookup([]byte("get"))
	call := func(user string) store.Reply {
		return ts.fake.Submit([]cluster.Call{{Cmd: get, Args: [][]byte{[]byte("GET"), []byte("b")}, RESP: 2, User: user}}, nil)[0]
	}
	for _, user := range []string{"u", "nosuch"} {
		r, notes := store.DetachDenials(call(user))
		if !strings.HasPrefix(r.Str, "NOPERM ") || len(notes) != 1 {
			t.Errorf("as %s: %v, %v", user, r, notes)
		}
	}
	if r := call(""); r.Kind != store.Null {
		t.Errorf("as the default user: %v", r)
	}
}

// TestSelectIsDecidedOnce: if a transaction changes the right to SELECT and then runs SELECT, session and leader end in the same
// database.
func TestSelectIsDecidedOnce(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		c.do("ACL SETUSER adm on >pw ~* +@all", "+OK\r\n")
		c.do("AUTH adm pw", "+OK\r\n")
		for db, right := range map[string]string{"5": "-select", "6": "+select"} {
			c.send("MULTI\r\nACL SETUSER adm " + right + "\r\nSELECT " + db + "\r\nSET lock me\r\nEXEC\r\n")
			c.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n+OK\r\n+OK\r\n")
			c.do("GETDEL lock", "$2\r\nme\r\n")
			c.do("ACL SETUSER adm +select", "+OK\r\n")
		}
	})
}

// TestLogGroups: equal refusals share an entry of the ACL log if each comes within a minute of the one before, and within aclLogScan
// entries.
func TestLogGroups(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	wrong := func() {
		c.do("AUTH u wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	}
	wrong()
	ts.fake.advance(59 * time.Second)
	wrong()
	ts.fake.advance(59 * time.Second)
	wrong()
	ts.fake.advance(61 * time.Second)
	wrong()
	if e := ts.denials(); len(e) != 2 || e[0].count != 1 || e[1].count != 3 {
		t.Errorf("%+v", e)
	}
	for i := range 12 {
		c.do(fmt.Sprintf("AUTH u%d wrong", i), "-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	}
	wrong() // the equal refusal is too far back to be found
	if e := ts.denials(); len(e) != 15 || e[0].count != 1 {
		t.Errorf("%d entries, the first %+v", len(e), e[0])
	}
}

// TestAnonymousUntilCurrent: a client from before this node knew the users must authenticate once the node knows that the default user
// is off.
func TestAnonymousUntilCurrent(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		admin := ts.dial(t)
		<-ts.learned // otherwise the node would set accounts.current again
		admin.do("PING", "+PONG\r\n")
		ts.hub.accounts.current.Store(false)
		c, listener := ts.dial(t), ts.dial(t)
		c.do("SET k v", "+OK\r\n")
		listener.send(array("SUBSCRIBE", "ch"))
		listener.expect("*3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n")
		ts.elsewhere("ACL SETUSER default off")
		c.do("GET k", "-NOAUTH Authentication required.\r\n")
		listener.expectClosed()
		admin.do("GET k", bulk("v"))
		get := ts.table.Lookup([]byte("get"))
		call := cluster.Call{Cmd: get, Args: [][]byte{[]byte("GET"), []byte("k")}, RESP: 2, User: store.Anonymous}
		if r := ts.fake.Submit([]cluster.Call{call}, nil)[0]; r.Str != string(store.ErrNoAuth) {
			t.Errorf("the leader replies %v", r)
		}
	})
}

// elsewhere runs a command for a client of another node.
func (ts *testServer) elsewhere(line string) store.Reply {
	var args [][]byte
	for _, word := range strings.Fields(line) {
		args = append(args, []byte(word))
	}
	cmd, _ := ts.table.Resolve(args)
	return ts.fake.Submit([]cluster.Call{{Cmd: cmd, Args: args, RESP: 2}}, nil)[0]
}

// TestTooManyRules: before the leader applies rules, it refuses those that would write more bytes than a command may write.
func TestTooManyRules(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	words := append([]string{"ACL", "SETUSER", "u"}, strings.Fields(strings.Repeat("(~a) ", 100_000))...)
	c.send(array(words...))
	c.expect("-" + string(store.ErrEntryTooBig(store.DefaultMaxEntry)) + "\r\n")
	c.do("ACL GETUSER u", "$-1\r\n")
}

// TestBoundsOfUsersAreTold: if a user is beyond the bounds that TestUsersAreBounded checks, the errors of ACL SETUSER and of
// an ACL file say so.
func TestBoundsOfUsersAreTold(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	name := strings.Repeat("n", 2000)
	c.do("ACL SETUSER "+name+" on", "-"+string(store.ErrUserName)+"\r\n")
	c.do("ACL GETUSER "+name, "$-1\r\n")
	c.do("ACL SETUSER u "+strings.Repeat("(~a) ", 2000), "-"+string(store.ErrUserRules)+"\r\n")
	if users, faults := store.ParseACLFile(ts.table, "f", "user "+name+" on\n", false); users != nil || !strings.Contains(faults, "f:1: the name of a user may have at most 1024 bytes") {
		t.Errorf("%d users, %q", len(users), faults)
	}
}

// TestCheckOfAnyArguments: a script may ask for the rights to a command with any number of arguments. The check must
// not panic if arguments are missing.
func TestCheckOfAnyArguments(t *testing.T) {
	table := store.NewTable(store.Commands(), luavm.New(luavm.Options{}).Commands(), Commands())
	u, refusal := store.NewUser(table, "u", false).WithRules([]string{"+@all", "~k*", "&c*"}, false)
	if refusal != "" {
		t.Fatal(refusal)
	}
	for _, top := range table.All() {
		for i := range max(len(top.Sub), 1) {
			cmd, args := top, [][]byte{[]byte(top.Name)}
			if len(top.Sub) > 0 {
				cmd, args = &top.Sub[i], append(args, []byte(top.Sub[i].Name))
			}
			for _, word := range []string{"", "x", "1", "STREAMS", "STORE", "KEYS", "GET", "x", "x", "x"} {
				u.Check(cmd, args)
				args = append(args, []byte(word))
			}
		}
	}
	publish := table.Lookup([]byte("publish"))
	if why, _ := u.Check(publish, [][]byte{[]byte("publish")}); why != store.Allowed {
		t.Errorf("PUBLISH without a channel: %v", why)
	}
	if why, _ := u.Check(publish, [][]byte{[]byte("publish"), []byte("x")}); why != store.DeniedChannel {
		t.Errorf("PUBLISH to a channel of others: %v", why)
	}
}

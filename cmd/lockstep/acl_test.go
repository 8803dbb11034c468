package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/transcript/redisd"
	"github.com/lockstep-io/lockstep/luavm"
	"github.com/lockstep-io/lockstep/server"
	"github.com/lockstep-io/lockstep/server/respclient"
	"github.com/lockstep-io/lockstep/store"
)

// TestCategoriesAreRedis: the ACL categories that lockstep derives must equal those that were recorded from redis-server 7.0.15.
func TestCategoriesAreRedis(t *testing.T) {
	engine := luavm.New(luavm.Options{Now: func() time.Duration { return 0 }, TimeLimit: time.Second})
	table := store.NewTable(store.Commands(), engine.Commands(), server.Commands())
	checked := 0
	check := func(c *store.Command) {
		want, ok := store.RedisCategories(c.FullName())
		if !ok {
			return // Redis has no such command
		}
		checked++
		if got := c.ACLCategories(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.FullName(), got, want)
		}
	}
	for _, c := range table.All() {
		check(c)
		for i := range c.Sub {
			check(&c.Sub[i])
		}
	}
	if checked < 200 {
		t.Errorf("only %d commands were compared", checked)
	}
}

// TestCommandListIsRedis compares the recorded list of commands with a real redis-server.
func TestCommandListIsRedis(t *testing.T) {
	bin, version, err := redisd.Find()
	if err != nil || version != redisd.Version {
		t.Skipf("needs redis-server %s: found %q, %v", redisd.Version, version, err)
	}
	s, err := redisd.Start(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	raw, err := s.Dial()
	if err != nil {
		t.Fatal(err)
	}
	addr := raw.RemoteAddr().String()
	raw.Close()
	conn, err := respclient.Dial(addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	list, err := conn.Do("COMMAND")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var visit func(info any)
	visit = func(info any) {
		fields := info.([]any)
		name, categories := fields[0].(string), []string{}
		for _, c := range fields[6].([]any) {
			categories = append(categories, strings.TrimPrefix(c.(string), "@"))
		}
		if want, _ := store.RedisCategories(name); !slices.Equal(categories, want) {
			t.Errorf("%s: recorded %q, Redis says %q", name, want, categories)
		}
		names = append(names, name)
		for _, sub := range fields[9].([]any) {
			visit(sub)
		}
	}
	for _, info := range list.([]any) {
		visit(info)
	}
	slices.Sort(names)
	if !slices.Equal(names, store.RedisCommands()) {
		t.Errorf("Redis has %d commands, recorded are %d", len(names), len(store.RedisCommands()))
	}
}

// as returns a connection that is logged in as a user.
func as(t *testing.T, n *nodes.Node, user, password string) *respclient.Conn {
	t.Helper()
	c := n.Dial()
	if got, err := c.Do("AUTH", user, password); got != "OK" {
		t.Fatalf("%s as %s: %v, %v", n.ID, user, got, err)
	}
	return c
}

func wantError(t *testing.T, c *respclient.Conn, prefix string, args ...string) {
	t.Helper()
	if got, err := c.Do(args...); err == nil || !strings.HasPrefix(err.Error(), prefix) {
		t.Errorf("%q: %v, %v; want %s…", args, got, err, prefix)
	}
}

// TestUsersOnEveryNode: a user made through one follower can log in on the other one, at once and after a restart of all nodes.
func TestUsersOnEveryNode(t *testing.T) {
	list := nodes.Start(t, 3)
	leader := nodes.Leader(list)
	if leader == nil {
		t.Fatal("no leader")
	}
	var followers []*nodes.Node
	for _, n := range list {
		if n != leader {
			followers = append(followers, n)
		}
	}
	one, two := followers[0], followers[1]
	if got, err := one.Do("ACL", "SETUSER", "alice", "on", ">p", "~a*", "+@all", "-@dangerous", "-hset"); got != "OK" {
		t.Fatal(got, err)
	}
	c := as(t, two, "alice", "p")
	if got, err := c.Do("SET", "a1", "v", "NX", "PX", "60000"); got != "OK" {
		t.Errorf("SET: %v, %v", got, err)
	}
	wantError(t, c, "NOPERM this user has no permissions to access one of the keys", "GET", "b")
	wantError(t, c, "NOPERM this user has no permissions to run the 'hset' command", "HSET", "a", "f", "v")
	// A script runs on the leader, but a refusal of its command or key is in the ACL LOG of its client's node.
	wantError(t, c, "ERR The user executing the script can't access at least one of the keys", "EVAL", "return redis.call('GET', 'b')", "0")
	wantLogged(t, two, "b key lua alice")
	if got, err := leader.Do("ACL", "LOG"); err != nil || len(got.([]any)) != 0 {
		t.Errorf("the leader's log: %v, %v", got, err)
	}
	// Rights that are taken away through one node are gone at once for the clients of all nodes.
	if got, err := one.Do("ACL", "SETUSER", "alice", "-set"); got != "OK" {
		t.Fatal(got, err)
	}
	wantError(t, c, "NOPERM this user has no permissions to run the 'set' command", "SET", "a1", "w")
	waitEqual(t, list)
	for _, n := range list {
		n.Kill()
	}
	for _, n := range list {
		n.Run()
	}
	for _, n := range list {
		n.WaitReady()
	}
	for _, n := range list {
		c := as(t, n, "alice", "p")
		if got, err := c.Do("GET", "a1"); got != "v" {
			t.Errorf("%s: GET: %v, %v", n.ID, got, err)
		}
		wantError(t, c, "NOPERM", "SET", "a1", "w")
	}
	victim := as(t, two, "alice", "p")
	if got, err := one.Do("ACL", "DELUSER", "alice"); got != int64(1) {
		t.Errorf("DELUSER: %v, %v", got, err)
	}
	if got, err := victim.Receive(); err == nil {
		t.Errorf("a connection of a deleted user got %v", got)
	}
	wantError(t, two.Dial(), "WRONGPASS", "AUTH", "alice", "p")
	waitEqual(t, list)
}

// wantLogged fails the test unless ACL LOG has an entry with the object, reason, context and user in want.
func wantLogged(t *testing.T, n *nodes.Node, want string) {
	t.Helper()
	got, err := n.Do("ACL", "LOG")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range got.([]any) {
		f := e.([]any)
		if strings.Join([]string{f[7].(string), f[3].(string), f[5].(string), f[9].(string)}, " ") == want {
			return
		}
	}
	t.Errorf("%s: no entry %q in %v", n.ID, want, got)
}

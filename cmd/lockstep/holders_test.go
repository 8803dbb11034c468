package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// holderOf returns what LOCK.INFO says of the only owner of a lock.
func holderOf(t *testing.T, at *nodes.Node, key string) map[string]any {
	t.Helper()
	reply, err := at.Do("LOCK.INFO", key)
	if err != nil {
		t.Fatal(err)
	}
	lock, _ := reply.([]any)
	for i := 0; i+1 < len(lock); i += 2 {
		if owners, _ := lock[i+1].([]any); lock[i] == "owners" && len(owners) == 1 {
			return pairsOf(owners[0])
		}
	}
	t.Fatalf("%s: %v", key, reply)
	return nil
}

func pairsOf(reply any) map[string]any {
	list, _ := reply.([]any)
	of := map[string]any{}
	for i := 0; i+1 < len(list); i += 2 {
		of[list[i].(string)] = list[i+1]
	}
	return of
}

// namedClient connects to a node, and gives the connection a name.
func namedClient(t *testing.T, at *nodes.Node, name string) (c *respclient.Conn, id int64, addr string) {
	t.Helper()
	c = at.Dial()
	ask := func(args ...string) any {
		reply, err := c.Do(args...)
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return reply
	}
	ask("CLIENT", "SETNAME", name)
	id, _ = ask("CLIENT", "ID").(int64)
	info, _ := ask("CLIENT", "INFO").(string)
	for _, field := range strings.Fields(info) {
		if rest, is := strings.CutPrefix(field, "addr="); is {
			addr = rest
		}
	}
	return c, id, addr
}

// TestClientOfALock: every node says which client of which node has taken a lock, also after the leader has died. Of a client that has left it says
// so, and of one whose node is dead it does not pretend to know.
func TestClientOfALock(t *testing.T) {
	list := nodes.Start(t, 3)
	leader := nodes.Leader(list)
	others := slices.DeleteFunc(slices.Clone(list), func(n *nodes.Node) bool { return n == leader })
	home, far := others[0], others[1]
	mine, id, addr := namedClient(t, home, "mine")
	const rlock = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0:7"
	takes := map[string][]string{
		"plain":    {"SET", "plain", "owner", "NX", "PX", "60000"},
		"script":   {"EVAL", "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 60000)", "1", "script", "owner"},
		"redisson": {"EVAL", "redis.call('hincrby', KEYS[1], ARGV[1], 1) return redis.call('pexpire', KEYS[1], 60000)", "1", "redisson", rlock},
		"native":   {"LOCK.ACQUIRE", "native", "owner", "PX", "60000"},
		"shared":   {"LOCK.ACQUIRE", "shared", "owner", "PX", "60000", "SHARED"},
	}
	for key, command := range takes {
		if _, err := mine.Do(command...); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	// A lock that is handed on belongs to the client that has waited, and not to the one that has released it.
	waiter, waiterID, waiterAddr := namedClient(t, far, "waiter")
	if _, err := leader.Do("SET", "handed", "first", "NX", "PX", "60000"); err != nil {
		t.Fatal(err)
	}
	if err := waiter.Send("LOCK.ACQUIRE", "handed", "second", "PX", "60000", "WAIT", "30000"); err != nil {
		t.Fatal(err)
	}
	await(t, "the client waits", func() bool {
		reply, err := leader.Do("LOCK.WAITERS", "handed")
		rows, _ := reply.([]any)
		return err == nil && len(rows) == 1
	})
	if _, err := home.Do("DEL", "handed"); err != nil {
		t.Fatal(err)
	}
	if _, err := waiter.Receive(); err != nil {
		t.Fatal(err)
	}
	check := func(when string, at *nodes.Node) {
		t.Helper()
		for key := range takes {
			h := holderOf(t, at, key)
			if h["node"] != home.ID || h["client"] != id || h["addr"] != addr || h["name"] != "mine" || h["age"].(int64) < 0 {
				t.Errorf("%s, %s asked for %s: %v, want %s %d %s", when, at.ID, key, h, home.ID, id, addr)
			}
		}
		if h := holderOf(t, at, "handed"); h["node"] != far.ID || h["client"] != waiterID || h["addr"] != waiterAddr || h["name"] != "waiter" {
			t.Errorf("%s, %s asked for handed: %v, want %s %d %s", when, at.ID, h, far.ID, waiterID, waiterAddr)
		}
	}
	for _, at := range list {
		check("at first", at)
	}
	for _, c := range []struct {
		options []string
		want    []string
	}{
		{[]string{"CLIENT", "mine"}, []string{"native", "plain", "redisson", "script", "shared"}},
		{[]string{"CLIENT", waiterAddr}, []string{"handed"}},
		{[]string{"CLIENT", fmt.Sprintf("%s:%d", far.ID, waiterID)}, []string{"handed"}},
		{[]string{"CLIENT", "nobody"}, nil},
		{[]string{"MINAGE", "600000"}, nil},
		{[]string{"SORT", "age", "COUNT", "1", "CLIENT", "waiter"}, []string{"handed"}},
	} {
		reply, err := home.Do(append([]string{"LOCK.LIST", "COUNT", "1000"}, c.options...)...)
		var keys []string
		if page, _ := reply.([]any); len(page) == 2 {
			for _, row := range page[1].([]any) {
				keys = append(keys, pairsOf(row)["key"].(string))
			}
		}
		if slices.Sort(keys); err != nil || !slices.Equal(keys, c.want) {
			t.Errorf("LOCK.LIST %q: %q, %v, want %q", c.options, keys, err, c.want)
		}
	}
	leader.Kill()
	nodes.Leader(others)
	for _, at := range others {
		check("after the leader's death", at)
	}
	mine.Close()
	await(t, "it is said that the client has left", func() bool {
		h := holderOf(t, far, "plain")
		return h["node"] == home.ID && h["client"] == id && h["addr"] == "" && h["name"] == ""
	})
	leader.Run()
	leader.WaitReady()
	home.Kill()
	nodes.Leader([]*nodes.Node{leader, far})
	if h := holderOf(t, far, "plain"); h["node"] != home.ID || h["client"] != id || h["addr"] != nil || h["name"] != nil {
		t.Errorf("after the death of the client's node: %v", h)
	}
}

// TestSortedLocks: the orders of LOCK.LIST, over several pages.
func TestSortedLocks(t *testing.T) {
	node := nodes.Start(t, 1)[0]
	c := node.Dial()
	const locks = 2500
	for i := range locks {
		if _, err := c.Do("SET", fmt.Sprintf("lock-%04d", (i*7919)%locks), "owner", "NX", "PX", fmt.Sprint(600_000+(i*104_729)%locks*100)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Do("SET", "endless", "owner", "NX"); err != nil {
		t.Fatal(err)
	}
	for order, field := range map[string]string{"ttl": "ttl", "age": "age"} {
		reply, err := c.Do("LOCK.LIST", "SORT", order, "COUNT", "300")
		page, _ := reply.([]any)
		if err != nil || len(page) != 2 || page[0] != "0" || len(page[1].([]any)) != 300 {
			t.Fatalf("%s: %v, %v", order, reply, err)
		}
		var last int64
		for i, row := range page[1].([]any) {
			n := pairsOf(row)[field].(int64)
			if i > 0 && (order == "ttl" && n < last-60 || order == "age" && n > last+60) { // pages are read one after the other
				t.Fatalf("%s: row %d has %d after %d", order, i, n, last)
			}
			last = n
			if n < 0 {
				t.Fatalf("%s: row %d has no end", order, i)
			}
		}
	}
	for _, bad := range [][]string{{"SORT", "name"}, {"SORT", "ttl", "CURSOR", "5"}, {"SORT", "ttl", "COUNT", "0"}, {"SORT", "ttl", "COUNT", "1001"}, {"SORT"}, {"MINAGE", "-1"}, {"MINAGE", "x"}} {
		if reply, err := c.Do(append([]string{"LOCK.LIST"}, bad...)...); err == nil || !strings.HasPrefix(err.Error(), "ERR ") {
			t.Errorf("%q: %v, %v", bad, reply, err)
		}
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 500 {
		if is() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("it does not come that %s", what)
}

package upgrade

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/nodes"
)

const (
	hour = "3600000"

	// Redisson takes a reentrant lock in this way.
	enter = `redis.call('hincrby',KEYS[1],ARGV[1],1) return redis.call('pexpire',KEYS[1],ARGV[2])`
	// The lock has two owners in one entry of the log.
	handOver = `redis.call('set',KEYS[1],'another') return redis.call('set',KEYS[1],ARGV[1])`
	unlock   = `if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end`
)

// kinds are the locks that version 0.1.0 knows. KEY stands for the key, and "me" is the owner.
var kinds = []struct {
	name          string
	take, release []string
}{
	{"plain", []string{"SET", "KEY", "me", "NX", "PX", hour}, []string{"EVAL", unlock, "1", "KEY", "me"}},
	{"endless", []string{"SET", "KEY", "me", "NX"}, []string{"DEL", "KEY"}},
	{"handed over", []string{"EVAL", handOver, "1", "KEY", "me"}, []string{"DEL", "KEY"}},
	{"reentrant", []string{"EVAL", enter, "1", "KEY", "me", hour}, []string{"HDEL", "KEY", "me"}},
	{"read-write", []string{"HSET", "KEY", "mode", "read", "me", "1"}, []string{"DEL", "KEY"}},
	{"permit", []string{"ZADD", "KEY", "1", "me"}, []string{"ZREM", "KEY", "me"}},
	{"member", []string{"SADD", "KEY", "me"}, []string{"SREM", "KEY", "me"}},
}

type lock struct {
	key           string
	take, release []string
	token         int64 // 0: nobody has been told it
}

// cluster is a group of nodes, and the locks that are held there.
type cluster struct {
	t     *testing.T
	nodes []*nodes.Node
	locks []*lock
	last  int64 // the largest token so far
}

func (c *cluster) do(n *nodes.Node, args ...string) any {
	c.t.Helper()
	reply, err := n.Do(args...)
	if err != nil {
		c.t.Fatalf("%s: %q: %v", n.ID, args, err)
	}
	return reply
}

// take takes a lock of each kind.
func (c *cluster) take(through *nodes.Node, group string) {
	c.t.Helper()
	for _, k := range kinds {
		key := group + ": " + k.name
		named := func(args []string) []string {
			args = slices.Clone(args)
			args[slices.Index(args, "KEY")] = key
			return args
		}
		l := &lock{key: key, take: named(k.take), release: named(k.release)}
		c.do(through, l.take...)
		c.locks = append(c.locks, l)
	}
}

// token returns the token of a lock; 0 if tokens are not counted, or if the lock is not held.
func (c *cluster) token(n *nodes.Node, key string) int64 {
	token, _ := n.Do("LOCK.TOKEN", key, "OWNER", "me")
	number, _ := token.(int64)
	return number
}

// uncounted checks that no node shows a token, and that each says why.
func (c *cluster) uncounted(when string, list ...*nodes.Node) {
	c.t.Helper()
	for _, n := range list {
		why := "upgrade all nodes"
		if n.Program != "" {
			why = "unknown command"
		}
		for _, args := range [][]string{{"LOCK.TOKEN", c.locks[0].key}, {"LOCK.CHECK", c.locks[0].key, "1"}, {"LOCK.ACQUIRE", "new", "me", "PX", hour}} {
			if reply, err := n.Do(args...); err == nil || !strings.Contains(err.Error(), why) {
				c.t.Errorf("%s: %s: %q: %v, %v; want an error with %q", when, n.ID, args, reply, err, why)
			}
		}
		if reply := c.do(n, "EXISTS", "new"); reply != int64(0) {
			c.t.Errorf("%s: a refused LOCK.ACQUIRE has taken the lock", when)
		}
	}
}

// kept checks that each lock has the token that it had, on all nodes.
func (c *cluster) kept(when string) {
	c.t.Helper()
	for _, l := range c.locks {
		for _, n := range c.nodes {
			token := c.token(n, l.key)
			if token == 0 || l.token != 0 && token != l.token {
				c.t.Errorf("%s: %s: %s has the token %d, and had %d", when, n.ID, l.key, token, l.token)
			}
			l.token = token
		}
		c.last = max(c.last, l.token)
	}
}

// rises checks that a token is larger than all before.
func (c *cluster) rises(when, key string, token int64) {
	c.t.Helper()
	if token <= c.last {
		c.t.Errorf("%s: %s has the token %d, and there was %d", when, key, token, c.last)
	}
	c.last = max(c.last, token)
}

// retaken releases each lock and takes it again: its token rises.
func (c *cluster) retaken(when string) {
	c.t.Helper()
	n := c.nodes[0]
	for _, l := range c.locks {
		if reply := c.do(n, l.release...); reply != int64(1) {
			c.t.Errorf("%s: %q: %v", when, l.release, reply)
		}
		c.do(n, l.take...)
		l.token = c.token(n, l.key)
		c.rises(when, l.key, l.token)
	}
}

// upgrade starts a node with the present program.
func upgrade(n *nodes.Node) {
	n.Program = ""
	n.Run()
	n.WaitReady()
}

// until waits for something that other processes do.
func (c *cluster) until(what string, done func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("no end of the wait for %s", what)
		}
	}
}

// program runs an administration command.
func program(t *testing.T, path string, args ...string) {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = environ.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", args, err, out)
	}
}

// commands returns the arity of each command and subcommand that a node knows.
func commands(t *testing.T, n *nodes.Node) map[string]int64 {
	t.Helper()
	all, err := n.Do("COMMAND")
	if err != nil {
		t.Fatal(err)
	}
	arities := map[string]int64{}
	var add func(list any)
	add = func(list any) {
		for _, row := range list.([]any) {
			fields := row.([]any)
			arities[fields[0].(string)] = fields[1].(int64)
			add(fields[9]) // its subcommands
		}
	}
	add(all)
	return arities
}

// newRefused checks that an upgraded node refuses each command that version 0.1.0 does not know. Otherwise the leader would end the link.
func (c *cluster) newRefused(upgraded, leader *nodes.Node) {
	c.t.Helper()
	refused := func(args ...string) bool {
		_, err := upgraded.Do(args...)
		return err != nil && strings.Contains(err.Error(), "upgrade all nodes")
	}
	c.until("news of version 0.1.0", func() bool { return refused("DELIFEQ", "key", "value") })
	known, count := commands(c.t, leader), 0
	for name, arity := range commands(c.t, upgraded) {
		if _, ok := known[name]; ok {
			continue
		}
		count++
		args := strings.Split(name, "|")
		for int64(len(args)) < max(arity, -arity) {
			args = append(args, "x")
		}
		if !refused(args...) {
			c.t.Errorf("%q is not refused", args)
		}
	}
	if count < 8 {
		c.t.Errorf("only %d new commands", count)
	}
}

// TestTokensThroughAnUpgrade: nodes with data directories of version 0.1.0 are upgraded, one after the other. Nobody sees a token before
// the last one. The locks of that time have tokens then, and each new owner has a larger token than anybody before: also when the
// databases have been swapped, in a restored cluster, and in one that begins from nothing.
func TestTokensThroughAnUpgrade(t *testing.T) {
	old := older(t)
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprint(size), func(t *testing.T) { throughAnUpgrade(t, old, size) })
	}
}

func throughAnUpgrade(t *testing.T, old string, size int) {
	c := &cluster{t: t, nodes: nodes.StartSetup(t, size, nodes.Setup{Program: old})}
	first := c.nodes[0]
	c.take(first, "in a snapshot")
	for _, n := range c.nodes {
		program(t, old, "snapshot", "--addr", n.Addr)
	}
	c.take(first, "in the log")
	c.uncounted("version 0.1.0", c.nodes...)
	early := filepath.Join(t.TempDir(), "early")
	program(t, old, "backup", "--addr", first.Addr, early)
	inEarly := copies(c.locks)

	leader := nodes.Leader(c.nodes)
	followers := slices.DeleteFunc(slices.Clone(c.nodes), func(n *nodes.Node) bool { return n == leader })
	for _, n := range followers {
		n.Terminate()
		upgrade(n)
		c.newRefused(n, leader)
		c.uncounted("upgraded: "+n.ID, c.nodes...)
		c.take(n, "through "+n.ID)
	}
	if size > 1 {
		next := followers[0]
		c.until("the leader "+next.ID, func() bool {
			next.Admin("transfer", next.ID)
			return nodes.Leader(c.nodes) == next
		})
		c.uncounted("an upgraded leader", c.nodes...)
		c.take(next, "from an upgraded leader")
		c.take(leader, "through the last node")
	}
	leader.Terminate()
	if size > 1 {
		c.take(followers[0], "without the last node")
		c.uncounted("the last node is away", followers...) // it may come back
	}
	upgraded := time.Now().UnixMicro()
	upgrade(leader)
	c.until("tokens", func() bool { // each node has to hear that the last one is upgraded, and tokens are counted from a write on
		c.do(first, "SET", "tick", "")
		return !slices.ContainsFunc(c.nodes, func(n *nodes.Node) bool { return c.token(n, c.locks[0].key) == 0 })
	})

	c.kept("after the upgrade")
	for _, l := range c.locks {
		c.do(first, "PEXPIRE", l.key, hour)
	}
	c.kept("renewed")
	c.last = max(c.last, upgraded) // the tokens begin above the time of day
	c.retaken("after the upgrade")
	c.swapped()
	c.kept("swapped")

	late := filepath.Join(t.TempDir(), "late")
	if code, out := first.Admin("backup", late); code != 0 {
		t.Fatal(out)
	}
	inLate := copies(c.locks)
	c.retaken("after the backup")
	for _, n := range c.nodes {
		n.Kill()
	}
	c.restored("restored", late, inLate)
	c.restored("restored from version 0.1.0", early, inEarly)
	c.nodes, c.locks = nodes.Start(t, size), nil
	c.take(c.nodes[0], "in a snapshot")
	for _, l := range c.locks {
		c.rises("from nothing", l.key, c.token(c.nodes[0], l.key))
	}
}

// copies returns the locks as they are now.
func copies(locks []*lock) (list []*lock) {
	for _, l := range locks {
		copied := *l
		list = append(list, &copied)
	}
	return list
}

// swapped swaps two databases twice. All locks have larger tokens then.
func (c *cluster) swapped() {
	c.t.Helper()
	conn := c.nodes[0].Dial()
	for _, db := range []string{"1", "0"} {
		for _, args := range [][]string{{"SWAPDB", "0", "1"}, {"SELECT", db}} {
			if _, err := conn.Do(args...); err != nil {
				c.t.Fatalf("%q: %v", args, err)
			}
		}
		least := c.last
		for _, l := range c.locks {
			token, err := conn.Do("LOCK.TOKEN", l.key)
			if l.token, _ = token.(int64); err != nil || l.token <= least {
				c.t.Errorf("swapped to database %s: %s has the token %v, and there was %d: %v", db, l.key, token, least, err)
			}
			c.last = max(c.last, l.token)
		}
	}
}

// restored begins a cluster with a backup. Its locks keep their tokens, and their next owners have larger ones than the old cluster gave
// after the backup.
func (c *cluster) restored(when, backup string, locks []*lock) {
	c.t.Helper()
	data := filepath.Join(c.t.TempDir(), "data")
	program(c.t, nodes.Binary(c.t), "restore", backup, "--data", data)
	c.nodes, c.locks = nodes.Start(c.t, 1, "--data", data), locks
	c.kept(when)
	c.retaken(when)
	c.nodes[0].Kill()
}

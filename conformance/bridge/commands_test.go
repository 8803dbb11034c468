package bridge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

const unlock = `if redis.call("get",KEYS[1])==ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
const extend = `if redis.call("get",KEYS[1])==ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end`

// redissonLock is what Redisson 3 sends to take a lock.
const redissonLock = `if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);`

// redissonUnlock is what it sends to release one.
const redissonUnlock = `if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil; end; local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); return 0; else redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); return 1; end; return nil;`

// side is where a command of a test goes.
type side string

const (
	moved side = "moved" // lockstep
	other side = "other" // the old Redis
)

// play runs commands and compares their replies. want is a reply as fmt shows it; a text that ends with … is its beginning.
func play(t *testing.T, old *redisServer, node *nodes.Node, steps []step) {
	t.Helper()
	for i, s := range steps {
		addr := node.Addr
		if s.at == other {
			addr = old.addr
		}
		reply, err := ask(addr, s.args...)
		got := fmt.Sprint(reply)
		if err != nil {
			got = err.Error()
		}
		if begin, cut := strings.CutSuffix(s.want, "…"); got != s.want && !(cut && strings.HasPrefix(got, begin)) {
			t.Errorf("step %d, %s: %q: got %s, want %s", i, s.at, s.args, got, s.want)
		}
	}
}

type step struct {
	at   side
	args []string
	want string
}

func do(at side, want string, args ...string) step { return step{at, args, want} }

func begin(t *testing.T) (*redisServer, *nodes.Node) {
	needs(t)
	old := startRedis(t, "redis-server", "--save", "")
	return old, nodes.Start(t, 1, "--bridge", "redis://"+old.addr)[0]
}

// TestCommandsOverABridge: both sides have a lock, and who has not moved excludes who has.
func TestCommandsOverABridge(t *testing.T) {
	old, node := begin(t)
	play(t, old, node, []step{
		do(moved, "OK", "SET", "a", "m1", "NX", "PX", "60000"),
		do(other, "m1", "GET", "a"),
		do(other, "<nil>", "SET", "a", "o1", "NX", "PX", "60000"),
		do(moved, "<nil>", "SET", "a", "m2", "NX", "PX", "60000"),
		do(moved, "0", "EVAL", unlock, "1", "a", "m2"),
		do(moved, "1", "EVAL", extend, "1", "a", "m1", "90000"),
		do(moved, "1", "EVAL", unlock, "1", "a", "m1"),
		do(other, "0", "EXISTS", "a"),
		do(moved, "<nil>", "LOCK.INFO", "a"),
		// A lock of who has not moved: it is not a lock here.
		do(other, "OK", "SET", "a", "o1", "NX", "PX", "60000"),
		do(moved, "<nil>", "SET", "a", "m1", "NX", "PX", "60000"),
		do(moved, "o1", "GET", "a"),
		do(moved, "<nil>", "LOCK.INFO", "a"),
		do(other, "1", "EVAL", unlock, "1", "a", "o1"),
		// An owner moves while it holds a lock, and renews it.
		do(other, "OK", "SET", "b", "o1", "NX", "PX", "60000"),
		do(moved, "1", "EVAL", extend, "1", "b", "o1", "80000"),
		do(moved, "[key b kind plain …", "LOCK.INFO", "b"),
		do(moved, "1", "EVAL", unlock, "1", "b", "o1"),
		do(moved, "<nil>", "LOCK.INFO", "b"),
		do(other, "0", "EXISTS", "b"),
		// Redisson.
		do(moved, "<nil>", "EVAL", redissonLock, "1", "r", "30000", "0a1b2c3d-1111-4222-8333-444455556666:7"),
		do(moved, "<nil>", "EVAL", redissonLock, "1", "r", "30000", "0a1b2c3d-1111-4222-8333-444455556666:7"),
		do(other, "[0a1b2c3d-1111-4222-8333-444455556666:7 2]", "HGETALL", "r"),
		do(other, "2…", "EVAL", redissonLock, "1", "r", "30000", "ffffffff-1111-4222-8333-444455556666:1"),
		do(moved, "0", "EVAL", redissonUnlock, "2", "r", "redisson_lock__channel:{r}", "0", "30000", "0a1b2c3d-1111-4222-8333-444455556666:7", "PUBLISH"),
		do(moved, "1", "EVAL", redissonUnlock, "2", "r", "redisson_lock__channel:{r}", "0", "30000", "0a1b2c3d-1111-4222-8333-444455556666:7", "PUBLISH"),
		do(other, "0", "EXISTS", "r"),
		do(moved, "<nil>", "LOCK.INFO", "r"),
		// Other data belongs to the old Redis.
		do(other, "41", "INCRBY", "n", "41"),
		do(moved, "42", "INCR", "n"),
		do(moved, "42", "GET", "n"),
		do(moved, "2", "RPUSH", "list", "x", "y"),
		do(moved, "x", "LPOP", "list"),
		do(moved, "[list y]", "BLPOP", "list", "1"),
		do(moved, "string", "TYPE", "n"),
		do(moved, "2", "EVAL", "return redis.call('DBSIZE') + 1", "0"),
		do(moved, "WRONGTYPE …", "LPUSH", "n", "x"),
		// What cannot work.
		do(moved, "ERR LOCK.ACQUIRE does not work while this node has --bridge…", "LOCK.ACQUIRE", "a", "m", "PX", "1000"),
		do(moved, "ERR LOCK.ACQUIRE does not work while this node has --bridge…", "LOCK.ACQUIRE", "a", "m", "PX", "1000", "WAIT", "1000"),
		do(moved, "ERR WATCH does not work while this node has --bridge…", "WATCH", "a"),
		do(moved, "ERR FLUSHALL does not work while this node has --bridge…", "FLUSHALL"),
		do(moved, "ERR this command cannot wait while this node has --bridge", "BLMPOP", "1", "1", "nothing", "LEFT"),
		do(moved, "PONG", "PING"),
	})
	c := node.Dial()
	for _, args := range [][]string{{"MULTI"}, {"SET", "in", "multi", "NX", "PX", "60000"}, {"INCR", "n"}, {"GET", "in"}} {
		if _, err := c.Do(args...); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.Do("EXEC"); err != nil || fmt.Sprint(got) != "[OK 43 multi]" {
		t.Errorf("EXEC: %v, %v", got, err)
	}
	play(t, old, node, []step{do(other, "multi", "GET", "in"), do(moved, "[key in kind plain …", "LOCK.INFO", "in")})
}

// TestLocksThatRedisLoses: the owner keeps its lock here, nobody else here gets it, and it comes back there, unless another owner has it.
func TestLocksThatRedisLoses(t *testing.T) {
	old, node := begin(t)
	list := []*nodes.Node{node}
	play(t, old, node, []step{
		do(moved, "OK", "SET", "a", "m1", "NX", "PX", "600000"),
		do(other, "1", "DEL", "a"),
		do(moved, "<nil>", "SET", "a", "m2", "NX", "PX", "600000"),
		do(other, "m1", "GET", "a"),
		do(other, "5…", "PTTL", "a"),
		// Its owner renews.
		do(other, "1", "DEL", "a"),
		do(moved, "1", "EVAL", extend, "1", "a", "m1", "800000"),
		do(other, "m1", "GET", "a"),
		do(other, "7…", "PTTL", "a"),
		// Its owner releases.
		do(other, "1", "DEL", "a"),
		do(moved, "1", "EVAL", unlock, "1", "a", "m1"),
		do(other, "0", "EXISTS", "a"),
	})
	if lost := figure(t, list, "bridge_lost_locks_total"); lost != 3 {
		t.Errorf("%d locks are called lost, not 3", lost)
	}
	// Somebody who has not moved gets it.
	play(t, old, node, []step{
		do(moved, "<nil>", "EVAL", redissonLock, "1", "r", "600000", "0a1b2c3d-1111-4222-8333-444455556666:7"),
		do(other, "1", "DEL", "r"),
		do(other, "<nil>", "EVAL", redissonLock, "1", "r", "600000", "ffffffff-1111-4222-8333-444455556666:1"),
	})
	until(t, "the loss is seen", func() bool { return figure(t, list, "bridge_lost_locks_total") == 4 })
	play(t, old, node, []step{
		do(moved, "5…", "EVAL", redissonLock, "1", "r", "600000", "eeeeeeee-1111-4222-8333-444455556666:1"),
		do(moved, "<nil>", "EVAL", redissonLock, "1", "r", "600000", "0a1b2c3d-1111-4222-8333-444455556666:7"),
		do(other, "[ffffffff-1111-4222-8333-444455556666:1 1]", "HGETALL", "r"),
		do(moved, "[0a1b2c3d-1111-4222-8333-444455556666:7 2]", "HGETALL", "r"),
		do(other, "1", "EVAL", redissonUnlock, "2", "r", "c", "0", "30000", "ffffffff-1111-4222-8333-444455556666:1", "PUBLISH"),
	})
	until(t, "the lock is put back", func() bool { return old.ask(t, "HGET", "r", "0a1b2c3d-1111-4222-8333-444455556666:7") == "2" })
	if lost := figure(t, list, "bridge_lost_locks_total"); lost != 4 {
		t.Errorf("%d locks are called lost, not 4", lost)
	}
	// A lock that has ended by itself, or by its owner, is none that was lost.
	play(t, old, node, []step{do(moved, "OK", "SET", "short", "m", "NX", "PX", "300"), do(moved, "1", "DEL", "r")})
	until(t, "nothing is compared any more", func() bool { return figure(t, list, "bridge_locks") == 0 })
	if lost := figure(t, list, "bridge_lost_locks_total"); lost != 4 {
		t.Errorf("%d locks are called lost, not 4", lost)
	}
}

// TestLocksOfBeforeTheBridge: who holds a lock when a node begins to bridge, or begins anew, keeps it.
func TestLocksOfBeforeTheBridge(t *testing.T) {
	needs(t)
	old := startRedis(t, "redis-server", "--save", "")
	node := nodes.Start(t, 1, "--bridge", "redis://"+old.addr)[0]
	play(t, old, node, []step{do(moved, "OK", "SET", "a", "m1", "NX", "PX", "600000"), do(moved, "OK", "SET", "b", "m1", "NX", "PX", "600000")})
	node.Terminate()
	node.Run()
	node.WaitReady()
	play(t, old, node, []step{
		do(other, "2", "DEL", "a", "b"),
		do(moved, "<nil>", "SET", "a", "m2", "NX", "PX", "600000"),
		do(other, "0", "EXISTS", "a"),
		do(moved, "1", "EVAL", extend, "1", "a", "m1", "900000"),
		do(other, "m1", "GET", "a"),
		do(moved, "0", "EVAL", unlock, "1", "b", "m2"),
		do(other, "m1", "GET", "b"),
		do(moved, "1", "EVAL", unlock, "1", "b", "m1"),
		do(other, "0", "EXISTS", "b"),
		do(moved, "<nil>", "LOCK.INFO", "b"),
		do(moved, "0", "EVAL", unlock, "1", "b", "m1"),
		// Redisson's scripts also name a channel, which is no key.
		do(moved, "<nil>", "EVAL", redissonLock, "1", "r", "600000", "0a1b2c3d-1111-4222-8333-444455556666:7"),
		do(other, "1", "DEL", "r"),
		do(moved, "1", "EVAL", redissonUnlock, "2", "r", "c", "0", "30000", "0a1b2c3d-1111-4222-8333-444455556666:7", "PUBLISH"),
		do(moved, "<nil>", "LOCK.INFO", "r"),
	})
}

// TestMessagesOverABridge: who has moved hears of what the others publish, once.
func TestMessagesOverABridge(t *testing.T) {
	old, node := begin(t)
	c := node.Dial()
	if err := c.Send("SUBSCRIBE", "news"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(); err != nil {
		t.Fatal(err)
	}
	until(t, "the node listens to the old Redis", func() bool { return old.ask(t, "PUBSUB", "NUMPAT") == int64(1) })
	play(t, old, node, []step{do(other, "1", "PUBLISH", "news", "one"), do(moved, "1", "PUBLISH", "news", "two")})
	for _, want := range []string{"one", "two"} {
		if got, err := c.Receive(); err != nil || !slices.Equal(got.([]any), []any{"message", "news", want}) {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// TestElementOfALeaverOverABridge: an element that was popped for a client that has left is put back.
func TestElementOfALeaverOverABridge(t *testing.T) {
	old, node := begin(t)
	for range 20 {
		c := node.Dial()
		if err := c.Send("BLPOP", "queue", "0"); err != nil {
			t.Fatal(err)
		}
		until(t, "the client waits", func() bool { return strings.Contains(fmt.Sprint(old.ask(t, "INFO", "clients")), "blocked_clients:1\r") })
		c.Close()
		until(t, "its node knows that it has left", func() bool { return !strings.Contains(fmt.Sprint(must(node.Do("CLIENT", "LIST"))), "cmd=blpop") })
		old.ask(t, "RPUSH", "queue", "x")
		until(t, "nobody waits any more", func() bool { return strings.Contains(fmt.Sprint(old.ask(t, "INFO", "clients")), "blocked_clients:0\r") })
		until(t, "the element is back", func() bool { return old.ask(t, "LPOP", "queue") == "x" })
	}
}

func must(reply any, err error) any {
	if err != nil {
		return err
	}
	return reply
}

// TestSilentRedis: while the old Redis does not answer, an owner may renew and release, and others learn what has become of their commands.
func TestSilentRedis(t *testing.T) {
	old, node := begin(t)
	play(t, old, node, []step{do(moved, "OK", "SET", "a", "m1", "NX", "PX", "600000"), do(moved, "OK", "SET", "b", "m1", "NX", "PX", "600000")})
	pauseProcess(t, old)
	play(t, old, node, []step{
		do(moved, "INDETERMINATE The old Redis of --bridge did not answer in time…", "SET", "c", "m1", "NX", "PX", "1000"),
		do(moved, "1", "EVAL", extend, "1", "a", "m1", "900000"),
		do(moved, "<nil>", "SET", "a", "m2", "NX", "PX", "600000"),
		do(moved, "1", "EVAL", unlock, "1", "b", "m1"),
		do(moved, "m1", "GET", "a"),
	})
	resumeProcess(t, old)
	until(t, "the old Redis knows of both", func() bool {
		ttl, _ := old.ask(t, "PTTL", "a").(int64)
		return ttl > int64(600*time.Second/time.Millisecond) && old.ask(t, "EXISTS", "b") == int64(0)
	})
	if lost := figure(t, []*nodes.Node{node}, "bridge_lost_locks_total"); lost != 0 {
		t.Errorf("%d locks are called lost", lost)
	}
	old.kill()
	play(t, old, node, []step{
		do(moved, "1", "EVAL", unlock, "1", "a", "m1"),
		do(moved, "CLUSTERDOWN The old Redis of --bridge cannot be reached…", "SET", "d", "m1", "NX", "PX", "1000"),
		do(moved, "CLUSTERDOWN The old Redis of --bridge cannot be reached…", "GET", "d"),
	})
}

package luavm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// full is a store whose data has reached its limit. Its methods run commands as a leader does.
type full struct {
	w *world
}

// do runs a command as a leader does: it refuses what adds data, and undoes what has written too much.
func (f *full) do(args ...string) store.Reply {
	w := f.w
	w.txn.BeginCall()
	c := &store.Ctx{Txn: w.txn, RESP: 2}
	for _, a := range args {
		c.Args = append(c.Args, []byte(a))
	}
	c.Cmd, _ = w.table.Resolve(c.Args)
	if refusal, denied := c.NoRoom(); denied {
		return refusal
	}
	save := w.txn.Savepoint()
	r := c.Cmd.Run(c)
	if err := c.Overrun(); err != "" {
		w.txn.Rollback(save)
		return store.Err(err)
	}
	w.txn.Release(save)
	return r
}

// TestReleasesAtFullMemory: clients of every kind can still renew and release their locks, however far the data exceeds its limit.
func TestReleasesAtFullMemory(t *testing.T) {
	const (
		owns    = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call("
		release = owns + "'del',KEYS[1]) else return 0 end"
		renew   = owns + "'pexpire',KEYS[1],ARGV[2]) else return 0 end"
		// Redisson stores the result of a release, for a client that has lost the reply.
		redisson = `local val = redis.call('get', KEYS[2]); if val ~= false then return tonumber(val); end;
if (redis.call('hexists', KEYS[1], ARGV[1]) == 0) then return nil; end;
local counter = redis.call('hincrby', KEYS[1], ARGV[1], -1);
redis.call('del', KEYS[1]); redis.call('set', KEYS[2], 1, 'px', 1000); return 1;`
		redissonRenew = "if (redis.call('hexists', KEYS[1], ARGV[1]) == 1) then redis.call('pexpire', KEYS[1], 30000); return 1; end; return 0;"
		// redlock-rb and node-redlock 5 renew a lock by setting its value again.
		again = owns + "'set',KEYS[1],ARGV[1],'px',ARGV[2]) else return 0 end"
		// python-redis-lock wakes those that wait, and then deletes the lock.
		signals = `if redis.call("get", KEYS[1]) ~= ARGV[1] then return 1 else
redis.call("del", KEYS[2]) redis.call("lpush", KEYS[2], 1) redis.call("pexpire", KEYS[2], ARGV[2]) redis.call("del", KEYS[1]) return 0 end`
		// Redisson releases a lock that its owner has taken twice.
		twice = `if (redis.call('hexists', KEYS[1], ARGV[1]) == 0) then return nil; end;
local counter = redis.call('hincrby', KEYS[1], ARGV[1], -1);
if (counter > 0) then redis.call('pexpire', KEYS[1], 30000); redis.call('set', KEYS[2], 0, 'px', 10000); return 0; end; return 1;`
	)
	// Redisson: a client that waits for a fair lock gives up.
	const givesUp = `local queue = redis.call('lrange', KEYS[1], 0, -1); local i = 1; while i <= #queue and queue[i] ~= ARGV[1] do i = i + 1; end; i = i + 1;
while i <= #queue do redis.call('zincrby', KEYS[2], -tonumber(ARGV[2]), queue[i]); i = i + 1; end;
redis.call('zrem', KEYS[2], ARGV[1]); redis.call('lrem', KEYS[1], 0, ARGV[1]); return 1;`
	const data = 40 << 20
	for _, over := range []int64{-100, 0, 100, 1000, 4 << 20, 8<<20 - 2000, 8<<20 + 100, 20 << 20, data} {
		f := &full{newWorld(t, Options{})}
		f.do("set", "lock", "me", "px", "30000")
		f.do("set", "plock", "me", "px", "30000")
		f.do("hset", "taken twice", "0b5c5b9e-6ad5-4a0e-8f1c-6f5a3a0e7a1f:1", "2")
		f.do("hset", "rlock", "0b5c5b9e-6ad5-4a0e-8f1c-6f5a3a0e7a1f:1", "1")
		f.do("rpush", "queue", "one", "two")
		f.do("zadd", "timeouts", "1700000000000", "one", "1700000300000", "two")
		for i := range 10 {
			f.do("set", fmt.Sprint("other", i), strings.Repeat("x", data/10))
		}
		s := store.New()
		if err := s.Apply(f.w.txn.Writes().Bytes(), 1, nil); err != nil {
			t.Fatal(err)
		}
		limit := s.DataSize() + 1<<20 - over
		f.w.txn = s.Begin(store.Time{Lease: 2, Wall: 1_700_000_000_000_000}, 2, store.Env{Limits: store.Limits{Memory: max(limit, 1)}})
		if r := f.do("set", "new", strings.Repeat("x", 200)); over > 0 && !r.IsError() {
			t.Errorf("over by %d: the memory is not full", over)
		}
		field := "0b5c5b9e-6ad5-4a0e-8f1c-6f5a3a0e7a1f:1"
		for _, script := range []string{renew, release} {
			sha := scriptSHA(script)
			if r := f.do("evalsha", sha, "1", "lock", "me", "60000"); !strings.HasPrefix(r.Str, "NOSCRIPT") {
				t.Errorf("over by %d: %v", over, r)
			}
			if r := f.do("script", "load", script); r.Str != sha {
				t.Errorf("over by %d: SCRIPT LOAD of %.80q: %q", over, script, r.Str)
			}
			if r := f.do("evalsha", sha, "1", "lock", "me", "60000"); r.Int != 1 {
				t.Errorf("over by %d: EVALSHA of %.80q: %+v", over, script, r)
			}
		}
		if r := f.do("eval", givesUp, "2", "queue", "timeouts", "one", "300000"); r.Int != 1 {
			t.Errorf("over by %d: EVAL of %.80q: %+v", over, givesUp, r)
		}
		for _, renewal := range [][]string{{"eval", again, "1", "plock", "me", "60000"}, {"set", "plock", "me", "xx", "px", "60000"}, {"psetex", "plock", "60000", "me"}} {
			if r := f.do(renewal...); r.Str != "OK" {
				t.Errorf("over by %d: %q: %+v", over, renewal, r)
			}
		}
		if over <= 8<<20 { // the reserve
			if r := f.do("eval", signals, "2", "plock", "lock-signal:plock", "me", "1000"); r.IsError() || r.Int != 0 {
				t.Errorf("over by %d: EVAL of %.80q: %+v", over, signals, r)
			}
			if r := f.do("eval", twice, "2", "taken twice", "redisson_unlock_latch:{twice}:d8f2b2d6a0b3c1f2a5b4c3d2e1f00f1e", field); r.IsError() || r.Int != 0 {
				t.Errorf("over by %d: EVAL of %.80q: %+v", over, twice, r)
			}
		}
		for _, script := range []string{redissonRenew, redisson} {
			if r := f.do("eval", script, "2", "rlock", "redisson_unlock_latch:{rlock}:d8f2b2d6a0b3c1f2a5b4c3d2e1f00f1e", field); r.Int != 1 {
				t.Errorf("over by %d: EVAL of %.80q: %+v", over, script, r)
			}
		}
	}
}

package store

import (
	"strings"
	"testing"
)

const (
	permitA = "0123456789abcdef"
	permitB = "0123456789abcdeg"
	hexA    = "30313233343536373839616263646566"
	hexB    = "30313233343536373839616263646567"
)

// TestLockOwnersOfLibraries: the owners, holds and times of locks whose libraries store them in shapes of their own. Holds whose time is over
// are not shown.
func TestLockOwnersOfLibraries(t *testing.T) {
	// The wall clock shows 1,700,000,000,000 ms.
	for made, want := range map[string]string{
		"SET k 1; ZADD {k}:timeout 1700000005000 " + permitA + " 922337203685477 " + permitB + " 1699999999999 0123456789abcdeh": `"holders" :2 "owners" [{"owner" "` + hexA + `" "holds" :1 "permits" :1 "token" :0 "ttl" :5000 "age" :-1 "node" nil "client" nil "addr" nil "name" nil} {"owner" "` + hexB + `" "holds" :1 "permits" :1 "token" :0 "ttl" :-1 "age" :-1 "node" nil "client" nil "addr" nil "name" nil}] "free" :1}`,
		"in script: GET k; SET k 3; PUBLISH redisson_sc:{k} 3":                                                                   `"kind" "redisson-semaphore" "token" :0 "ttl" :-1 "waiters" :0 "holders" :0 "owners" [] "free" :3}`,
		"in script: GET k; SET k 2; PUBLISH redisson_countdownlatch__channel__{k} 2; DECR k":                                     `"holders" :0 "owners" [] "count" :1}`,
		"HSET k v " + redissonA + " v:" + redissonA + ":lock_count 2 v:" + redissonA + ":expire_time 1700000007000 w " + redissonB + " w:" + redissonB + ":lock_count 1 w:" + redissonB + ":expire_time 1700000000000": `"holders" :1 "owners" [{"owner" "` + redissonA + `" "holds" :2 "permits" :1 "token" :1700000000000001 "ttl" :7000 "age" :-1 "node" nil "client" nil "addr" nil "name" nil}]}`,
		"ZADD k 1700000001000 " + symfonyA + " 1700000001000 __write__":   `"holders" :1 "owners" [{"owner" "` + symfonyA + `" "holds" :1 "permits" :1 "token" :1700000000000001 "ttl" :1000 "age" :-1 "node" nil "client" nil "addr" nil "name" nil}]}`,
		"ZADD k 1700000001000 " + symfonyA + " 1700000000000 " + symfonyB: `"holders" :1 "owners" [{"owner" "` + symfonyA + `" "holds" :1 "permits" :1 "token" :1700000000000001 "ttl" :1000 "age" :-1 "node" nil "client" nil "addr" nil "name" nil}]}`,
	} {
		d := newTokenDB(t)
		d.make(made)
		if got := d.do("LOCK.INFO", "k"); !strings.HasSuffix(got, want) {
			t.Errorf("%s:\n%s, want\n%s", made, got, want)
		}
	}
}

// TestLockForceOfLibraries: LOCK.FORCE ends what each library calls a lock, and publishes this library's own message, also for its Cluster
// clients.
func TestLockForceOfLibraries(t *testing.T) {
	permits := "in script: GET k; SET k 1; PUBLISH redisson_sc:{k} 1; ZADD {k}:timeout 1700000005000 " + permitA + " 922337203685477 " + permitB
	group := "HSET k v " + redissonA + " v:" + redissonA + ":lock_count 1 v:" + redissonA + ":expire_time 1700000007000 w " + redissonB + " w:" + redissonB + ":lock_count 1 w:" + redissonB + ":expire_time 1700000007000"
	for _, test := range []struct{ name, made, call, want, left, message string }{
		{"a permit", permits, "OWNER " + hexA, ":1", `"owner" "` + hexB + `" "holds" :1 "permits" :1 "token" :0 "ttl" :-1 "age" :-1 "node" nil "client" nil "addr" nil "name" nil}] "free" :2`, "redisson_sc:{k} 2"},
		{"all permits", permits, "", ":2", `"holders" :0 "owners" [] "free" :3`, "redisson_sc:{k} 3"},
		{"no permit of that name", permits, "OWNER 0011", ":0", `"free" :1`, ""},
		{"a semaphore that does not know its owners", "in script: GET k; SET k 1; PUBLISH redisson_sc:{k} 1", "", "-" + string(ErrLockAnonymous), `"free" :1`, ""},
		{"a latch", "in script: GET k; SET k 2; PUBLISH redisson_countdownlatch__channel__{k} 2", "", ":1", "nil", "redisson_countdownlatch__channel__{k} 0"},
		{"a latch has no owner", "in script: GET k; SET k 2; PUBLISH redisson_countdownlatch__channel__{k} 2", "OWNER a", ":0", `"count" :2`, ""},
		{"a fenced lock", "HSET k " + redissonA + " 1; SET redisson_lock_token:{k} 7", "", ":1", "nil", "redisson_lock__channel:{k} 0"},
		{"all values", group, "", ":2", "nil", "redisson_lock__channel:{k} 0"},
		{"an owner's values", group, "OWNER " + redissonA, ":1", `"holders" :1 "owners" [{"owner" "` + redissonB + `"`, "redisson_lock__channel:{k} 0"},
		{"a reader", "ZADD k 1700000001000 " + symfonyA + " 1700000001000 " + symfonyB, "OWNER " + symfonyA, ":1", `"holders" :1 "owners" [{"owner" "` + symfonyB + `"`, ""},
		{"a writer", "ZADD k 1700000001000 " + symfonyA + " 1700000001000 __write__", "OWNER " + symfonyA, ":1", "nil", ""},
		{"Spring's registry", "in script: GET a:k; SET a:k 0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0 PX 100", "", ":1", "nil", "a-channel:k a:k"},
	} {
		d := newTokenDB(t)
		d.make(test.made)
		var said []string
		d.sink = sinkFunc(func(kind PublishKind, channel, message string) { said = append(said, channel+" "+message) })
		key := "k"
		if strings.Contains(test.made, "a:k") {
			key = "a:k"
		}
		if got := d.do(words("LOCK.FORCE " + key + " REASON x " + test.call)...); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if got := d.do("LOCK.INFO", key); !strings.Contains(got, test.left) {
			t.Errorf("%s: %s is left, want %s", test.name, got, test.left)
		}
		all := strings.Join(said, "\n")
		times := 0
		if strings.Contains(test.message, "redisson") {
			times = 2
		} else if test.message != "" {
			times = 1
		}
		if test.message != "" && strings.Count(all, test.message) != times || test.message == "" && strings.Contains(all, "redisson") {
			t.Errorf("%s: messages %q, want %q", test.name, said, test.message)
		}
	}
}

// TestLockForceWakesPythonRedisLock: a client that is blocked on the signal of a lock of python-redis-lock gets one, and nobody else does.
func TestLockForceWakesPythonRedisLock(t *testing.T) {
	d := newTokenDB(t)
	waits := "lock-signal:a"
	d.env.Blocked = func(_ int, key string) int {
		if key == waits {
			return 1
		}
		return 0
	}
	d.script(`
		SET lock:a v NX => +OK
		LOCK.FORCE lock:a REASON x => :1
		LRANGE lock-signal:a 0 -1 => ["1"]
		PTTL lock-signal:a => :1000
		SET lock:b v NX => +OK
		LOCK.FORCE lock:b REASON x => :1
		EXISTS lock-signal:b => :0
		SET a v NX => +OK
		LOCK.FORCE a REASON x => :1
		LLEN lock-signal:a => :1
		SET lock:a v NX => +OK
		LOCK.FORCE lock:a REASON x => :1
		LLEN lock-signal:a => :1`)
}

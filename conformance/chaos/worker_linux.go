package main

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/conformance/chaos/history"
)

// worker is one client that uses the cluster until the epoch ends.
type worker struct {
	id     int
	c      *client
	e      *epoch
	rng    *rand.Rand
	serial int  // makes owners and values unique
	fresh  bool // the client has connected again since everything was healed
}

// These scripts are like those of lock libraries.
const (
	fencedScript = `if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end return 0`

	releaseScript = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

	renewScript = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`

	enterScript = `if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  local count = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return count
end
return 0`

	leaveScript = `if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -1 end
local count = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if count > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return count
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', 'left', KEYS[1])
return 0`

	prolongScript = `if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`
)

// run uses the cluster until the epoch is over.
func (w *worker) run() {
	defer w.c.drop()
	for !w.e.over() {
		switch n := w.rng.IntN(100); {
		case n < 30:
			w.useLock(w.e.keys.pick(history.Lock, w.rng))
		case n < 50:
			w.useHash(w.e.keys.pick(history.Hash, w.rng))
		case n < 62:
			w.often(history.Register, w.useRegister)
		case n < 76:
			w.often(history.Counter, w.useCounter)
		case n < 86:
			w.often(history.List, w.useList)
		case n < 90:
			w.publish()
		default:
			w.often(history.Queue, w.useQueue)
		}
		w.rest(20 * time.Millisecond)
	}
}

// often calls the function "use" from one to eight times, each time with a key for the given kind of history.
func (w *worker) often(kind history.Kind, use func(key string)) {
	for range 1 + w.rng.IntN(8) {
		if w.e.over() {
			return
		}
		use(w.e.keys.pick(kind, w.rng))
		w.rest(10 * time.Millisecond)
	}
}

// rest waits for a random time that is shorter than the duration most, or until the epoch is over.
func (w *worker) rest(most time.Duration) {
	select {
	case <-w.e.stop:
	case <-time.After(time.Duration(w.rng.Int64N(int64(most)))):
	}
}

func (w *worker) unique() string {
	w.serial++
	return fmt.Sprintf("w%d-%d", w.id, w.serial)
}

// lease returns a random time to live: some are shorter than an election, some longer.
func (w *worker) lease() time.Duration {
	if w.rng.IntN(4) == 0 {
		return time.Duration(1500+w.rng.IntN(4000)) * time.Millisecond
	}
	return time.Duration(150+w.rng.IntN(1000)) * time.Millisecond
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// call carries out and records an operation that is one command. It returns the reply, and whether there is one.
func (w *worker) call(op history.Op, args ...string) (string, bool) {
	return w.carryOut(op, func() (string, outcome, error) {
		reply, known, err := w.c.do(args...)
		if known == refused && strings.HasPrefix(err.Error(), "NOSCRIPT") {
			args[0], args[1] = "EVAL", scripts()[args[1]]
			return w.c.do(args...)
		}
		return reply, known, err
	})
}

// carryOut carries out one operation and records it.
func (w *worker) carryOut(op history.Op, how func() (string, outcome, error)) (string, bool) {
	op, reply, known := w.attempt(op, how)
	switch known {
	case done:
		op.Result = normal(op, reply)
		w.e.rec.Add(op)
		return op.Result, true
	case unknown:
		if changes(op.Call) {
			op.Unknown = true
			w.e.keys.lost(op.Key)
			w.e.rec.Add(op)
		}
	}
	w.rest(100 * time.Millisecond)
	return "", false
}

// attempt carries out one operation, returns it with its times, and says what is known of its outcome. After everything is healed,
// no operation may fail.
func (w *worker) attempt(op history.Op, how func() (string, outcome, error)) (_ history.Op, reply string, known outcome) {
	quiet := w.e.quiet.Load()
	if quiet && !w.fresh {
		// A connection may have been broken before everything was healed, and show that only at its next use. So the client
		// connects anew.
		w.c.drop()
		w.fresh = true
	}
	op.Client, op.Invoke = w.id, w.e.s.now()
	reply, known, err := how()
	op.Return, op.Via = w.e.s.now(), w.c.via()
	w.e.count(op, known)
	took := time.Duration(op.Return - op.Invoke)
	switch {
	case known == wrong:
		w.e.fail("%s: %s %s: error reply %v", op.Via, op.Key, op.String(), err)
	case quiet && known != done && known != aborted:
		w.e.fail("%s: %s %s: %v after %v, although everything was healed", op.Via, op.Key, op.Call, err, took)
	case quiet && took > hungAfter:
		w.e.fail("%s: %s %s: took %v, although everything was healed", op.Via, op.Key, op.Call, took)
	}
	return op, reply, known
}

// changes reports whether a call can change anything. If a call that only reads has no reply, it tells nothing.
func changes(call string) bool {
	switch call {
	case "read", "left", "count", "token", "get", "range":
		return false
	}
	return true
}

// normal converts a reply to the form that the models know.
func normal(op history.Op, reply string) string {
	switch {
	case op.Call == "acquire" && reply == "OK":
		return "1"
	case reply == "" && (op.Call == "acquire" || op.Call == "grant" || op.Call == "count"):
		return "0"
	}
	return reply
}

func scripts() map[string]string {
	m := map[string]string{}
	for _, s := range []string{fencedScript, releaseScript, renewScript, enterScript, leaveScript, prolongScript} {
		m[sha(s)] = s
	}
	return m
}

func sha(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// eval does what call does, for an operation that is one script.
func (w *worker) eval(op history.Op, script string, keys []string, args ...string) (string, bool) {
	command := append([]string{"EVALSHA", sha(script), strconv.Itoa(len(keys))}, keys...)
	return w.call(op, append(command, args...)...)
}

// useLock takes a lock, uses it for a while and releases it or lets it expire.
func (w *worker) useLock(key string) {
	ttl, owner := w.lease(), w.unique()
	op := history.Op{Kind: history.Lock, Key: key, Owner: owner, TTL: int64(ttl)}
	as := func(call string) history.Op { op.Call = call; return op }
	var got string
	set := []string{"SET", key, owner, "NX", "PX", millis(ttl)}
	switch w.rng.IntN(4) {
	case 0:
		got, _ = w.call(as("acquire"), set...)
	case 1:
		got, _ = w.eval(as("fenced"), fencedScript, []string{key, "{" + key + "}:token"}, owner, millis(ttl))
	case 2:
		got, _ = w.carryOut(as("grant"), func() (string, outcome, error) {
			reply, known, err := w.c.transaction("", func(string) [][]string {
				return [][]string{set, {"LOCK.TOKEN", key, "OWNER", owner}}
			})
			_, token, _ := strings.Cut(strings.TrimSuffix(reply, ","), ",")
			return token, known, err
		})
	default:
		got, _ = w.carryOut(as("grant"), func() (string, outcome, error) {
			reply, known, err := w.c.do("LOCK.ACQUIRE", key, owner, "PX", millis(ttl))
			token, _, _ := strings.Cut(reply, ",")
			return token, known, err
		})
	}
	for range 1 + w.rng.IntN(3) {
		w.rest(ttl / 4)
		if w.e.over() {
			return
		}
		switch n := w.rng.IntN(4); {
		case n == 0:
			w.call(history.Op{Kind: history.Lock, Key: key, Call: "read"}, "GET", key)
		case n == 1:
			w.call(history.Op{Kind: history.Lock, Key: key, Call: "left"}, "PTTL", key)
		case n == 2:
			w.call(as("token"), "LOCK.TOKEN", key, "OWNER", owner)
		case got != "0":
			w.eval(as("renew"), renewScript, []string{key}, owner, millis(ttl))
		}
	}
	// One client in five dies while it has the lock. A client that did not get the lock releases it, too: that must have no effect.
	if w.rng.IntN(5) > 0 {
		w.eval(as("release"), releaseScript, []string{key}, owner)
	}
}

// useHash enters a reentrant lock, in the form of Redisson's, up to three times and leaves it as often.
func (w *worker) useHash(key string) {
	ttl := w.lease()
	op := history.Op{Kind: history.Hash, Key: key, Owner: fmt.Sprintf("0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0:%d", w.id+1), TTL: int64(ttl)}
	as := func(call string) history.Op { op.Call = call; return op }
	entered := 0
	for range 1 + w.rng.IntN(3) {
		if n, ok := w.eval(as("lock"), enterScript, []string{key}, op.Owner, millis(ttl)); ok && n == "0" {
			break
		}
		entered++
		w.rest(ttl / 4)
	}
	switch w.rng.IntN(4) {
	case 0:
		w.call(as("count"), "HGET", key, op.Owner)
	case 1:
		w.call(as("token"), "LOCK.TOKEN", key, "OWNER", op.Owner)
	case 2:
		w.eval(as("renew"), prolongScript, []string{key}, op.Owner, millis(ttl))
	}
	if w.rng.IntN(6) == 0 {
		return // the client dies with the lock
	}
	for range entered {
		w.eval(as("unlock"), leaveScript, []string{key}, op.Owner, millis(ttl))
	}
}

func (w *worker) useRegister(key string) {
	op := history.Op{Kind: history.Register, Key: key}
	switch w.rng.IntN(4) {
	case 0:
		op.Call, op.Owner = "set", w.unique()
		w.call(op, "SET", key, op.Owner)
	case 1:
		op.Call, op.Owner = "swap", w.unique()
		w.call(op, "SET", key, op.Owner, "GET")
	default:
		op.Call = "get"
		w.call(op, "GET", key)
	}
}

func (w *worker) useCounter(key string) {
	op := history.Op{Kind: history.Counter, Key: key, Call: "incr"}
	switch w.rng.IntN(5) {
	case 0, 1:
		op.Call = "get"
		w.call(op, "GET", key)
	case 2:
		// This client increments the counter with WATCH, GET and SET.
		w.carryOut(op, func() (string, outcome, error) {
			next := ""
			_, known, err := w.c.transaction(key, func(value string) [][]string {
				n, err := strconv.ParseInt("0"+value, 10, 64)
				if err != nil {
					w.e.fail("%s is %q: %v", key, value, err)
				}
				next = strconv.FormatInt(n+1, 10)
				return [][]string{{"SET", key, next}}
			})
			return next, known, err
		})
	default:
		w.call(op, "INCR", key)
	}
}

func (w *worker) useList(key string) {
	op := history.Op{Kind: history.List, Key: key, Call: "push"}
	switch w.rng.IntN(5) {
	case 0, 1:
		op.Call = "range"
		w.call(op, "LRANGE", key, "0", "-1")
	case 2:
		// One transaction appends both elements, so nobody may see one without the other.
		first, second := w.unique(), w.unique()
		op.Owner = first + "," + second
		w.carryOut(op, func() (string, outcome, error) {
			reply, known, err := w.c.transaction("", func(string) [][]string {
				return [][]string{{"RPUSH", key, first}, {"RPUSH", key, second}}
			})
			_, length, _ := strings.Cut(strings.TrimSuffix(reply, ","), ",")
			return length, known, err
		})
	default:
		op.Owner = w.unique()
		w.call(op, "RPUSH", key, op.Owner)
	}
}

func (w *worker) useQueue(key string) {
	op := history.Op{Kind: history.Queue, Key: key, Call: "pop"}
	switch w.rng.IntN(6) {
	case 0, 1:
		w.call(op, "LPOP", key)
	case 2:
		timeout := time.Duration(50+w.rng.IntN(950)) * time.Millisecond
		w.carryOut(op, func() (string, outcome, error) {
			began := time.Now()
			reply, known, err := w.c.do("BLPOP", key, strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64))
			if took := time.Since(began); known == done && reply == "" && took < timeout {
				w.e.fail("%s: BLPOP %s waited %v, not %v", w.c.via(), key, took, timeout)
			}
			return strings.TrimSuffix(strings.TrimPrefix(reply, key+","), ","), known, err
		})
	default:
		op.Call, op.Owner = "push", w.unique()
		w.call(op, "RPUSH", key, op.Owner)
	}
}

package store

import (
	"fmt"
	"strings"
	"testing"
)

const (
	redissonA = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0:1"
	redissonB = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0:27"
)

const (
	symfonyA = "0123456789abcdefghijklmnopqrstuvwxyzABCDEF+="
	symfonyB = "0123456789abcdefghijklmnopqrstuvwxyzABCDEF/="
)

// make runs commands that are separated by semicolons; those after "in script: " as one script does.
func (d *testDB) make(made string) {
	d.t.Helper()
	alone, script, _ := strings.Cut(made, "in script: ")
	for _, line := range strings.Split(alone, "; ") {
		if line != "" {
			d.do(words(line)...)
		}
	}
	if script == "" {
		return
	}
	txn := d.begin()
	c := &Ctx{Txn: txn, DB: d.db, RESP: 2, InScript: true}
	for _, line := range strings.Split(script, "; ") {
		c.Args = nil
		for _, word := range words(line) {
			c.Args = append(c.Args, []byte(word))
		}
		c.Cmd, _ = d.table.Resolve(c.Args)
		if r := c.Cmd.Run(c); r.IsError() {
			d.t.Fatalf("%s: %s", line, render(r))
		}
	}
	d.apply(txn)
}

// TestLockKinds: the server recognises the locks of each library by what that library stores, and takes nothing else for a lock.
func TestLockKinds(t *testing.T) {
	for made, want := range map[string]string{
		"SET k v NX PX 100":                                                      "plain",
		"SET k v NX":                                                             "plain",
		"SETNX k v":                                                              "plain",
		"LOCK.ACQUIRE k a PX 100":                                                "plain",
		"SET k v NX PX 100; SET k v XX PX 200":                                   "plain",
		"SET k v NX PX 100; APPEND k w":                                          "plain",
		"SET k v NX PX 100; RENAME k l; RENAME l k":                              "plain",
		`SET k "ADDED:2026-11-30T10:00:00Z@host" NX PX 100`:                      "shedlock",
		"LOCK.ACQUIRE k a PX 100 REENTRANT":                                      "reentrant",
		"LOCK.ACQUIRE k a PX 100 SHARED":                                         "shared",
		"LOCK.ACQUIRE k a PX 100 LIMIT 3":                                        "limit",
		"LOCK.ACQUIRE k a PX 100 MAXHOLD 300":                                    "exclusive",
		"HSET k " + redissonA + " 2; PEXPIRE k 100":                              "redisson",
		"HSET k " + redissonA + " 1; RPUSH redisson_lock_queue:{k} " + redissonB: "redisson-fair",
		"HSET k mode read " + redissonA + " 1 " + redissonB + " 2":               "redisson-readwrite",
		"HSET k mode write " + redissonA + ":write 1":                            "redisson-readwrite",

		"HSET k " + redissonA + " 1; SET redisson_lock_token:{k} 7":                                                 "redisson-fenced",
		"HSET k v " + redissonA + " v:" + redissonA + ":lock_count 1 v:" + redissonA + ":expire_time 1700000001000": "redisson-group",
		"SET k 1; ZADD {k}:timeout 1700000001000 0123456789abcdef":                                                  "redisson-semaphore",
		"in script: GET k; SET k 3; PUBLISH redisson_sc:{k} 3":                                                      "redisson-semaphore",
		"in script: GET k; SET k 3; SPUBLISH redisson_sc:{k} 3; INCRBY k -3":                                        "redisson-semaphore",
		"in script: GET k; SET k 3 PX 100; PUBLISH redisson_sc:{k} 3":                                               "redisson-semaphore",
		"in script: EXISTS k; SET k 2; PUBLISH redisson_countdownlatch__channel__{k} 1":                             "redisson-latch",
		"ZADD k 1700000001000 " + symfonyA:                                                                          "symfony",
		"ZADD k 1700000001000 " + symfonyA + " 1700000002000 " + symfonyB:                                           "symfony",
		"ZADD k 1700000001000 " + symfonyA + " 1700000001000 __write__":                                             "symfony",
		"in script: GET k; SET k v PX 100":                                                                          "plain",
		"in script: EXISTS k; SET k v EX 100":                                                                       "plain",
		"in script: GET 1; GET 2; GET k; GET 3; GET 4; GET 5; GET 6; GET 7; GET 8; SET k v PX 100":                  "plain",

		"in script: SET k v PX 100":                                     "",
		"in script: GET k; SET k v":                                     "",
		"in script: GET l; SET k v PX 100":                              "",
		"in script: GET k; SELECT 1; SET k v PX 100; SELECT 0; SET k v": "",
		"GET k; SET k v PX 100":                                         "",
		"SET k v; in script: GET k; SET k w PX 100":                     "",
		"in script: SET k 3; PUBLISH redisson_sc:{k} 3":                 "",
		"in script: GET k; SET k v; PUBLISH redisson_sc:{k} v":          "",
		"in script: GET k; SET k 3; PUBLISH redisson_sc:{l} 3":          "",
		"in script: GET k; SET k 3; PUBLISH redisson_sc: 3":             "",
		"GET k; SET k 3; PUBLISH redisson_sc:{k} 3":                     "",
		"SET k 1; ZADD {k}:timeout 1 0123456789abcde":                   "",
		"SET k 1; SADD {k}:timeout 0123456789abcdef":                    "",
		"SET k v; ZADD {k}:timeout 1 0123456789abcdef":                  "",
		"ZADD k 1 " + symfonyA + " 1 other":                             "",
		"ZADD k 1 " + symfonyA + " 1 " + symfonyB + " 1 __write__":      "",
		"HSET k v " + redissonA + " other w":                            "",
		"HSET k v:" + redissonA + ":lock_count 1":                       "",
		"HSET k v " + redissonA + " v:" + redissonA + ":lock_count x":   "",

		"SET k v PX 100":              "",
		"SET k v NX; DEL k; SET k v":  "",
		"HSET k f 1":                  "",
		"HSET k mode read f 1":        "",
		"HSET k " + redissonA + " x":  "",
		"HSET k " + redissonA + "x 1": "",
		"RPUSH k v":                   "",
		"ZADD k 1 m":                  "",
	} {
		d := newTokenDB(t)
		d.make(made)
		got := d.do("LOCK.INFO", "k")
		if want == "" && got != "nil" || want != "" && !strings.Contains(got, `"kind" "`+want+`"`) {
			t.Errorf("%s: %s, want %q", made, got, want)
		}
		state := d.encode()
		s, err := Restore(strings.NewReader(string(state)))
		if err != nil {
			t.Fatal(err)
		}
		if d.s = s; d.do("LOCK.INFO", "k") != got {
			t.Errorf("%s: after a snapshot %s", made, d.do("LOCK.INFO", "k"))
		}
	}
}

// TestLockInfo: LOCK.INFO shows each owner with its holds, its token and its time to live.
func TestLockInfo(t *testing.T) {
	d := newTokenDB(t)
	d.env.Waiting = func(int, string) int { return 3 }
	d.script(`
		LOCK.INFO k => nil
		LOCK.ACQUIRE k a PX 100 LIMIT 5 PERMITS 2 => [:1700000000000001 :100 :1]
		LOCK.ACQUIRE k b PX 300 LIMIT 5 => [:1700000000000002 :300 :1]
		LOCK.ACQUIRE k b PX 300 LIMIT 5 REENTRANT => [:1700000000000002 :300 :2]
		@advance 50
		LOCK.INFO k => {"key" "k" "kind" "limit" "token" :1700000000000002 "ttl" :250 "waiters" :3 "holders" :2 "owners" [{"owner" "a" "holds" :1 "permits" :2 "token" :1700000000000001 "ttl" :50 "age" :-1 "node" nil "client" nil "addr" nil "name" nil} {"owner" "b" "holds" :2 "permits" :1 "token" :1700000000000002 "ttl" :250 "age" :-1 "node" nil "client" nil "addr" nil "name" nil}] "limit" :5 "free" :2}`)
}

// TestLockList: LOCK.LIST finds the locks by their names, kinds, owners and queues, and shows them to those who may read them.
func TestLockList(t *testing.T) {
	d := newTokenDB(t)
	d.env.Waiting = func(_ int, key string) int { return len(key) - 2 }
	for _, line := range []string{"SET l1 a NX", "SET l20 b NX PX 100", "SET no v", "HSET l3 " + redissonA + " 1", "LOCK.ACQUIRE l4 c PX 100 SHARED", "LOCK.ACQUIRE l4 d PX 100 SHARED"} {
		d.do(words(line)...)
	}
	keys := func(call string) string {
		var list []string
		reply := d.do(words("LOCK.LIST " + call)...)
		for _, key := range []string{"l1", "l20", "l3", "l4", "no"} {
			if strings.Contains(reply, `"key" "`+key+`"`) {
				list = append(list, key)
			}
		}
		return strings.Join(list, " ")
	}
	for call, want := range map[string]string{
		"": "l1 l20 l3 l4", "COUNT 1000": "l1 l20 l3 l4", "MATCH l*0": "l20", "KIND shared": "l4", "KIND redisson COUNT 9": "l3", "OWNER d": "l4", "OWNER ?": "l1 l20 l4",
		"WAITERS 1": "l20", "match l1 kind plain owner a": "l1", "MATCH no": "", "CURSOR 0 COUNT 99 MATCH l3": "l3",
		"KIND Plain": "l1 l20", "KIND SHARED": "l4",
	} {
		if got := keys(call); got != want {
			t.Errorf("%s: %q, want %q", call, got, want)
		}
	}
	for call, want := range map[string]string{
		"KIND x": string(ErrLockKind), "CURSOR x": string(ErrCursor), "COUNT 0": string(ErrSyntax), "COUNT": string(ErrSyntax), "WAITERS -1": string(ErrNotInteger), "TYPE hash": string(ErrSyntax),
	} {
		if got := d.do(words("LOCK.LIST " + call)...); got != "-"+want {
			t.Errorf("%s: %s", call, got)
		}
	}
	if got := d.do("LOCK.LIST", "OWNER", ""); got != `["0" []]` {
		t.Errorf("an empty pattern matches no owner here: %s", got)
	}
	seen, cursor := 0, "0"
	for i := 0; i == 0 || cursor != "0"; i++ {
		reply := d.do("LOCK.LIST", "CURSOR", cursor, "COUNT", "1")
		seen += strings.Count(reply, `"key"`)
		cursor = strings.Split(reply, `"`)[1]
		if i > 10 {
			t.Fatal("the cursor does not end")
		}
	}
	if seen != 4 {
		t.Errorf("%d locks by COUNT 1", seen)
	}
}

// TestEventsOfLockForce: the event del says that the key is gone, so it does not come while other owners hold the lock.
func TestEventsOfLockForce(t *testing.T) {
	d, h := newTokenDB(t), &heard{}
	for _, line := range []string{"SET plain a NX", "LOCK.ACQUIRE shared a PX 100 SHARED", "LOCK.ACQUIRE shared b PX 100 SHARED",
		"HSET rw mode read " + redissonA + " 1 " + redissonB + " 1", "LOCK.ACQUIRE again a PX 100 REENTRANT",
		"ZADD scores 1700000001000 " + symfonyA + " 1700000001000 " + symfonyB} {
		d.do(words(line)...)
	}
	d.setEvents("EA")
	d.sink = h
	for _, c := range []struct{ call, want string }{
		{"plain", "__keyevent@0__:del plain"},
		{"plain", ""},
		{"shared OWNER a", "__keyevent@0__:lock.release shared"},
		{"shared OWNER a", ""},
		{"shared OWNER b", "__keyevent@0__:del shared"},
		{"rw OWNER " + redissonA, "__keyevent@0__:hdel rw"},
		{"rw", "__keyevent@0__:del rw"},
		{"again OWNER a", "__keyevent@0__:del again"},
		{"scores OWNER " + symfonyA, "__keyevent@0__:zrem scores"},
		{"scores OWNER " + symfonyB, "__keyevent@0__:del scores"},
	} {
		key, rest, _ := strings.Cut(c.call, " ")
		d.do(append([]string{"LOCK.FORCE", key, "REASON", "x"}, strings.Fields(rest)...)...)
		var events []string
		for _, event := range strings.Split(h.take(), ", ") {
			if strings.HasPrefix(event, "__keyevent") {
				events = append(events, event)
			}
		}
		if got := strings.Join(events, ", "); got != c.want {
			t.Errorf("%s: %q, want %q", c.call, got, c.want)
		}
	}
}

// TestLockForceStaysWithTheLock: LOCK.FORCE of one owner leaves the places of the others, the mode of a writer that has read, too, and keys
// that only look like those of the lock; nobody sees the queue of a fair lock without the right to read it.
func TestLockForceStaysWithTheLock(t *testing.T) {
	d := newTokenDB(t)
	d.script(`
		LOCK.ACQUIRE k a PX 1000 LIMIT 2 => [:1700000000000001 :1000 :1]
		LOCK.ACQUIRE k b PX 1000 LIMIT 2 DELAY 60000 => [:1700000000000002 :1000 :1]
		LOCK.RELEASE k b LAPSE => :0
		LOCK.FORCE k REASON x OWNER a => :1
		LOCK.ACQUIRE k c PX 1000 LIMIT 2 PERMITS 2 => nil-array
		LOCK.FORCE k REASON x => :0
		LOCK.ACQUIRE k c PX 1000 LIMIT 2 PERMITS 2 => [:1700000000000003 :1000 :1]
		HSET w mode write ` + redissonA + `:write 1 ` + redissonA + ` 1 => :3
		LOCK.FORCE w REASON x OWNER ` + redissonA + `:write => :1
		HGET w mode => "read"`)
	args := []string{"HSET", "r", "mode", "read"}
	for i := range 80 {
		args = append(args, fmt.Sprintf("%s%d", redissonA, i), "1")
	}
	d.do(args...)
	d.do("HSET", "r", "secret:key", "5")
	d.do("SET", "{r}:secret:key:rwlock_timeout:3", "v")
	d.do("LOCK.FORCE", "r", "REASON", "x")
	if d.do("EXISTS", "{r}:secret:key:rwlock_timeout:3") != ":1" {
		t.Error("a key of somebody else is deleted")
	}
}

// TestLockForce: LOCK.FORCE ends a lock of any kind, or the hold of one owner, and publishes what that kind's clients wait for.
func TestLockForce(t *testing.T) {
	for _, test := range []struct{ made, call, want, left, message string }{
		{"SET k a NX", "", ":1", "nil", ""},
		{"SET k a NX", " OWNER b", ":0", `"plain"`, ""},
		{"SET k a NX", " TOKEN 5", ":0", `"plain"`, ""},
		{"SET k a NX", " OWNER a TOKEN 1700000000000001", ":1", "nil", ""},
		{"HSET k " + redissonA + " 2", "", ":1", "nil", "redisson_lock__channel:{k} 0"},
		{"LOCK.ACQUIRE k a PX 100 REENTRANT", "", ":1", "nil", "redisson_lock__channel:{k} 0"},
		{"HSET k " + redissonA + " 1; RPUSH redisson_lock_queue:{k} " + redissonB, "", ":1", "nil", "redisson_lock__channel:{k}:" + redissonB + " 0"},
		{"HSET k mode read " + redissonA + " 2 " + redissonB + " 1; SET {k}:" + redissonA + ":rwlock_timeout:2 1", " OWNER " + redissonA, ":1", redissonB, "redisson_rwlock:{k} 1"},
		{"HSET {k} mode write " + redissonA + ":write 1", "", ":1", "nil", "redisson_rwlock:{k} 1"},
		{"LOCK.ACQUIRE k a PX 100 SHARED; LOCK.ACQUIRE k b PX 100 SHARED", " OWNER a", ":1", `"owner" "b"`, ""},
		{"LOCK.ACQUIRE k a PX 100 SHARED; LOCK.ACQUIRE k b PX 100 SHARED", "", ":2", "nil", ""},
		{"SET k a", "", "-" + string(ErrNoLock), "nil", ""},
		{"", "", ":0", "nil", ""},
		{"SET k a NX", " OWNER", "-" + string(ErrSyntax), `"plain"`, ""},
		{"SET k a NX", " TOKEN x", "-" + string(ErrToken), `"plain"`, ""},
	} {
		d := newTokenDB(t)
		var said []string
		d.sink = sinkFunc(func(_ PublishKind, channel, message string) { said = append(said, channel+" "+message) })
		for _, line := range strings.Split(test.made, "; ") {
			if line != "" {
				d.do(words(line)...)
			}
		}
		key := "k"
		if strings.Contains(test.made, "{k} mode") {
			key = "{k}"
		}
		name := test.made + ", FORCE" + test.call
		if got := d.do(words("LOCK.FORCE " + key + ` REASON "it hangs"` + test.call)...); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if got := d.do("LOCK.INFO", key); !strings.Contains(got, test.left) {
			t.Errorf("%s: %s is left, want %s", name, got, test.left)
		}
		all := strings.Join(said, "\n")
		if !strings.Contains(all, test.message) || (test.want == ":1" || test.want == ":2") != strings.Contains(all, `__lock@0__:forced {"key":"`) {
			t.Errorf("%s: messages %q, want %q", name, said, test.message)
		}
		if strings.Contains(test.made, "rwlock_timeout") && d.do("EXISTS", "{k}:"+redissonA+":rwlock_timeout:2") != ":0" {
			t.Errorf("%s: the time of a hold is left", name)
		}
	}
}

package store

import (
	"fmt"
	"strings"
	"testing"
)

// waiterDB has clients that wait in all ways: for every key one owner asks again and again, and one client is blocked on each list; two have
// subscribed to each channel in channels.
func waiterDB(t *testing.T, channels ...string) *testDB {
	d := newTokenDB(t)
	d.env.Node = "n7"
	d.env.Blocked = func(int, string) int { return 1 }
	d.env.EachWaiter = func(_ int, key string, lock bool, fn func(Waiter) bool) {
		if !lock {
			fn(Waiter{User: "u", Age: int64(len(key))})
		}
	}
	d.env.EachPoller = func(_ int, _ string, _ uint64, fn func(Waiter) bool) {
		for _, owner := range []string{"poller", redissonA, "a"} {
			if !fn(Waiter{Owner: owner, Age: 3}) {
				return
			}
		}
	}
	d.env.Subscribers = counts(channels...)
	return d
}

// counts returns a count of subscribers: two for each channel in the list. A shard channel has the prefix "shard:".
func counts(channels ...string) func(kind PublishKind, channel string) int {
	return func(kind PublishKind, channel string) int {
		if kind == Shard {
			channel = "shard:" + channel
		}
		for _, c := range channels {
			if c == channel {
				return 2
			}
		}
		return 0
	}
}

// TestLockWaitersOfLibraries: LOCK.WAITERS says how each client waits; LOCK.INFO, LOCK.LIST and LOCK.WAITERS agree on the number.
func TestLockWaitersOfLibraries(t *testing.T) {
	for _, test := range []struct{ made, key, channel, want string }{
		{"SET k a NX", "k", "", "poller poller, poller " + redissonA},
		{"SET lock:k a NX", "lock:k", "", "blocked, poller poller, poller " + redissonA},
		{"HSET k " + redissonA + " 1", "k", "", "poller poller, poller a"},
		{"HSET k " + redissonA + " 1", "k", "redisson_lock__channel:{k}", "subscriber n7, subscriber n7"},
		{"HSET k " + redissonA + " 1", "k", "shard:redisson_lock__channel:{k}", "subscriber n7, subscriber n7"},
		{"HSET k " + redissonA + " 1; SET redisson_lock_token:{k} 1", "k", "redisson_lock__channel:{k}", "subscriber n7, subscriber n7"},
		{"HSET k mode read " + redissonA + " 1", "k", "redisson_rwlock:{k}", "subscriber n7, subscriber n7"},
		{"SET k 1; ZADD {k}:timeout 1700000001000 0123456789abcdef", "k", "redisson_sc:{k}", "subscriber n7, subscriber n7"},
		{"in script: GET k; SET k 1; PUBLISH redisson_countdownlatch__channel__{k} 1", "k", "redisson_countdownlatch__channel__{k}", "subscriber n7, subscriber n7"},
		{"HSET k " + redissonA + " 1; RPUSH redisson_lock_queue:{k} " + redissonB, "k", "", "redisson " + redissonB},
		{"ZADD k 1700000001000 " + symfonyA, "k", "", "poller poller, poller " + redissonA + ", poller a"},
		{"SET k v", "k", "", ""},
	} {
		d := waiterDB(t, test.channel)
		d.make(test.made)
		var got []string
		for _, row := range d.rows("LOCK.WAITERS", test.key) {
			got = append(got, strings.TrimSpace(row["queue"]+" "+row["owner"]+row["node"]))
		}
		if list := strings.Join(got, ", "); list != test.want {
			t.Errorf("%s: %q, want %q", test.made, list, test.want)
		}
		for _, call := range []string{"LOCK.INFO " + test.key, "LOCK.LIST COUNT 100"} {
			if reply := d.do(words(call)...); test.want != "" && !strings.Contains(reply, fmt.Sprintf(`"waiters" :%d`, len(got))) {
				t.Errorf("%s, %s: %s, want %d waiters", test.made, call, reply, len(got))
			}
		}
	}
}

// rows runs a command whose reply is a list of maps.
func (d *testDB) rows(args ...string) (rows []map[string]string) {
	d.t.Helper()
	for _, r := range d.run(d.begin(), args...).Elems {
		row := map[string]string{}
		for i := 0; i+1 < len(r.Elems); i += 2 {
			row[r.Elems[i].Str] = r.Elems[i+1].Str
		}
		rows = append(rows, row)
	}
	return rows
}

// TestSubscribersHere: the node that a client has asked adds its own subscribers to the leader's reply.
func TestSubscribersHere(t *testing.T) {
	d := waiterDB(t, "redisson_lock__channel:{k}")
	d.do("HSET", "k", redissonA, "1")
	here := func(call string, channels ...string) string {
		args := [][]byte{}
		for _, word := range words(call) {
			args = append(args, []byte(word))
		}
		cmd, _ := d.table.Resolve(args)
		return render(SubscribersHere(cmd, args, d.run(d.begin(), words(call)...), "n8", counts(channels...)))
	}
	packed := func(call string, channels ...string) string {
		args := [][]byte{}
		for _, word := range words(call) {
			args = append(args, []byte(word))
		}
		cmd, _ := d.table.Resolve(args)
		for levels := range 4 {
			r, _, err := ReadPacked(AppendReply(nil, d.run(d.begin(), words(call)...)), levels)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := render(SubscribersHere(cmd, args, r, "n8", counts(channels...))), here(call, channels...); got != want {
				t.Errorf("%s, as another node gets it, with %d levels: %s, want %s", call, levels, got, want)
			}
		}
		return here(call, channels...)
	}
	const mine = "redisson_lock__channel:{k}"
	if got := packed("LOCK.WAITERS k", mine); strings.Count(got, `"node" "n7"`) != 2 || strings.Count(got, `"node" "n8"`) != 2 {
		t.Error(got)
	}
	for _, call := range []string{"LOCK.INFO k", "LOCK.LIST COUNT 100"} {
		if got := packed(call, mine); !strings.Contains(got, `"waiters" :4`) {
			t.Errorf("%s: %s", call, got)
		}
		if got := packed(call, "redisson_sc:{k}"); !strings.Contains(got, `"waiters" :2`) {
			t.Errorf("%s, another kind's channel: %s", call, got)
		}
	}
	for call, want := range map[string]string{"LOCK.INFO none": "nil", "LOCK.WAITERS none": "[]", "LOCK.LIST KIND x": "-" + string(ErrLockKind)} {
		if got := packed(call, mine); got != want {
			t.Errorf("%s: %s", call, got)
		}
	}
}

// TestTaker: the server learns which argument of a script names the owner from a run that takes a lock, and notes later runs that get none.
func TestTaker(t *testing.T) {
	d := newTokenDB(t)
	var asked []string
	d.env.AskedInVain = func(_ int, key string, _ uint64, owner, _ string) { asked = append(asked, key+" "+owner) }
	var taker Taker
	run := func(taker *Taker, owner string, commands ...string) {
		txn := d.begin()
		before := txn.BeforeScript()
		for _, line := range commands {
			d.run(txn, words(line)...)
		}
		c := &Ctx{Txn: txn, Cmd: d.table.Lookup([]byte("eval")), DB: d.db}
		if c.Cmd == nil {
			c.Cmd = d.table.Lookup([]byte("get"))
		}
		c.AfterScript(taker, before, [][]byte{[]byte("k")}, [][]byte{[]byte("30000"), []byte(owner)})
		d.apply(txn)
	}
	run(&taker, "b", "GET k")
	run(&taker, "a", "SET k a NX PX 100000")
	run(&taker, "a", "SET k a XX PX 100000")
	run(&taker, "a", "GET k")
	if len(asked) > 0 {
		t.Errorf("asked in vain: %q", asked)
	}
	run(&taker, "b", "GET k")
	d.do("DEL", "k")
	run(&taker, "b", "GET k")
	d.do("HSET", "k", redissonA, "1")
	run(&taker, redissonB, "HGET k f")
	if got := strings.Join(asked, ", "); got != "k b, k "+redissonB {
		t.Errorf("asked in vain: %q", got)
	}
	asked = nil
	var other Taker // a script that only renews, and one that takes no lock, teach nothing
	run(&other, redissonA, "PEXPIRE k 1000")
	run(&other, "c", "HGET k f")
	d.do("DEL", "k")
	for i := range 2 * takerTries {
		run(&other, "c", fmt.Sprintf("SET k %d", i))
	}
	d.do("DEL", "k")
	run(&other, "c", "SET k c NX")
	run(&other, "d", "GET k")
	if len(asked) > 0 || other.owner != 0 {
		t.Errorf("asked in vain: %q, after %d tries", asked, other.tries)
	}
}

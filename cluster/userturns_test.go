package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/raftfsm"
	"lockstep/store"
)

var makeUser = store.Command{Name: "makeuser", Arity: 2, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
	u, wrong := store.NewUser(c.Cmd.Table(), string(c.Args[1]), true).WithRules([]string{"on", "nopass", "+@all", "~*"}, true)
	if wrong != "" {
		return store.Err(wrong)
	}
	c.Txn.SetUser(u)
	return store.OK
}}

// dawdle takes 3 ms, too little to be called heavy.
var dawdle = store.Command{Name: "dawdle", Flags: store.Write, Run: func(*store.Ctx) store.Reply {
	time.Sleep(3 * ms)
	return store.OK
}}

// A user who keeps the leader busy with work that is not heavy, by 300 clients, has others wait for a batch of it.
func TestUsersOfManyPieces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, by := leaderAnd(t, false, dawdle, makeUser)
		by.expect("OK", "MAKEUSER hog")
		as := func(user, line string) {
			calls := by.call(line)
			calls[0].User = user
			by.Submit(calls, nil)
		}
		stop := make(chan struct{})
		var all sync.WaitGroup
		for range 300 {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						as("hog", "DAWDLE")
					}
				}
			})
		}
		time.Sleep(200 * ms)
		for range 50 {
			at := time.Now()
			as("", "INCR lock")
			if took := time.Since(at); took > 60*ms {
				t.Errorf("a lock took %v", took)
			}
			time.Sleep(7 * ms)
		}
		close(stop)
		all.Wait()
		synctest.Wait()
		if waiting := len(n.routes.get().seq.users.waiting); waiting > 0 {
			t.Errorf("%d requests still wait", waiting)
		}
	})
}

// Forty clients of one user have work of 100 ms each waiting. Whoever takes a lock as another user waits for one piece of
// it. The work is run all the same, and in the order in which it came, also where others never let go.
func TestUsersTakeTurns(t *testing.T) {
	for name, remote := range map[string]bool{"leader": false, "follower": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, by := leaderAnd(t, remote, linger, makeUser)
				by.expect("OK", "MAKEUSER hog")
				as := func(user, line string) string {
					calls := by.call(line)
					calls[0].User = user
					return text(by.Submit(calls, nil))
				}
				const pieces = 40
				var all sync.WaitGroup
				var done atomic.Int32
				for i := range pieces {
					all.Go(func() {
						if got := as("hog", "LINGER"); got != "OK" {
							t.Errorf("%q", got)
						}
						if got := int(done.Add(1)) - 1; got != i {
							t.Errorf("piece %d was answered as number %d", i, got)
						}
					})
					synctest.Wait()
				}
				locks := 0
				for begin := time.Now(); done.Load() < pieces; locks++ {
					if time.Since(begin) > 3*pieces*100*ms {
						t.Fatalf("%d pieces of %d were run", done.Load(), pieces)
					}
					at := time.Now()
					if got := as("", "INCR lock"); got == "" || time.Since(at) > 220*ms {
						t.Errorf("a lock took %v", time.Since(at))
					}
					time.Sleep(ms) // or no time passes
				}
				all.Wait()
				if locks < pieces/2 {
					t.Errorf("%d locks beside %d pieces of work", locks, pieces)
				}
			})
		})
	}
}

// The entry of a large write takes its time on the way to the disks: who takes locks waits for one such entry at a time, not
// for those of all connections of a user, and small writes of the same command stay light.
func TestLargeWritesTakeTurns(t *testing.T) {
	for _, large := range []string{"SET %d " + strings.Repeat("v", 1<<20), "MULTI SET %d " + strings.Repeat("v", 1<<20)} {
		bubble(t, func(t *testing.T) {
			n := newTestNode(t, makeUser)
			n.lead()
			n.expect("OK", "MAKEUSER hog")
			n.log.decides(200*ms, func(e raftfsm.Entry) verdict {
				if len(e.Writes) > HeavyBytes {
					return commitSlowly
				}
				return commit
			})
			const pieces = 24
			var all sync.WaitGroup
			var done atomic.Int32
			for i := range pieces {
				line, multi := strings.CutPrefix(fmt.Sprintf(large, i), "MULTI ")
				calls := n.call(line)
				if multi {
					calls = n.txn(nil, line)
					calls[0].Txn.Calls[0].User = "hog"
				}
				calls[0].User = "hog"
				all.Go(func() {
					defer done.Add(1)
					if got := text(n.Submit(calls, nil)); got != "OK" && got != "[OK]" {
						t.Errorf("%.40q", got)
					}
				})
			}
			synctest.Wait()
			locks := 0
			for begin := time.Now(); done.Load() < pieces; locks++ {
				if time.Since(begin) > 3*pieces*200*ms {
					t.Fatalf("%d pieces of %d were run", done.Load(), pieces)
				}
				at := time.Now()
				if n.do("SET lock x", "DEL lock"); time.Since(at) > 420*ms {
					t.Errorf("a lock took %v", time.Since(at))
				}
				time.Sleep(ms) // or no time passes
			}
			all.Wait()
			if locks < pieces*50 {
				t.Errorf("%d locks beside %d large writes", locks, pieces)
			}
		})
	}
}

// TestLargeWritesOnASlowDisk: where every entry takes long, those of large writes are not heavy for that.
func TestLargeWritesOnASlowDisk(t *testing.T) {
	var turns userTurns
	now := time.Second
	large := []largeWrite{{"user", "set with large arguments", 100 << 10}}
	for range 100 {
		now += 40 * ms
		turns.noteCommit(nil, 100, 30*ms, now)
		turns.noteCommit(large, 101<<10, 33*ms, now)
	}
	if u := turns.used["user"].now(now); u.isHeavy() {
		t.Errorf("%v in %v pieces count as heavy", u.took, u.pieces)
	}
	for range 3 {
		turns.noteCommit(large, 101<<10, 300*ms, now)
	}
	if u := turns.kinds["set with large arguments"].now(now); !u.isHeavy() {
		t.Errorf("%v in %v pieces are not heavy", u.took, u.pieces)
	}
}

// Twenty users have two pieces of heavy work each waiting. Whoever takes locks waits for one piece at a time, and has as
// much time between two of them; all the work is run.
func TestManyUsersWithHeavyWork(t *testing.T) {
	for name, remote := range map[string]bool{"leader": false, "follower": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, by := leaderAnd(t, remote, linger, makeUser)
				const users = 20
				as := func(user, line string) string {
					calls := by.call(line)
					calls[0].User = user
					return text(by.Submit(calls, nil))
				}
				var all sync.WaitGroup
				var done atomic.Int32
				for i := range users {
					user := "hog" + strconv.Itoa(i)
					by.expect("OK", "MAKEUSER "+user)
					for range 2 {
						all.Go(func() {
							if got := as(user, "LINGER"); got != "OK" {
								t.Errorf("%q", got)
							}
							done.Add(1)
						})
					}
				}
				locks, waited := 0, time.Duration(0)
				for begin := time.Now(); done.Load() < 2*users; locks++ {
					if time.Since(begin) > 3*2*users*100*ms {
						t.Fatalf("%d pieces of %d were run", done.Load(), 2*users)
					}
					at := time.Now()
					if got := as("", "INCR lock"); got == "" || time.Since(at) > 220*ms {
						t.Errorf("a lock took %v", time.Since(at))
					}
					waited += time.Since(at)
					time.Sleep(5 * ms)
				}
				all.Wait()
				if mean := waited / time.Duration(locks); mean > 20*ms {
					t.Errorf("%d locks took %v each beside %d pieces of work", locks, mean, 2*users)
				}
			})
		})
	}
}

// Heavy work is known by its kind and by its user, and so is light work that came beside.
func TestHeavyWorkIsKnown(t *testing.T) {
	n := newTestNode(t)
	ask := func(user, line string) *request {
		r := &request{calls: n.call(line)}
		r.calls[0].User = user
		return r
	}
	var u userTurns
	now := time.Second
	show := func(q []*request) (text string) {
		for _, r := range q {
			text += r.calls[0].User + ":" + string(r.calls[0].Args[0]) + " "
		}
		return text
	}
	check := func(what string, want string, q ...*request) {
		t.Helper()
		if got := show(u.order(q, now)); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	u.note(ask("a", "ZUNIONSTORE z 1 y"), 500*ms, now)
	check("another user's work of that kind", "c:GET ", ask("b", "ZUNIONSTORE z 1 y"), ask("b", "GET k"), ask("c", "GET k"))
	now += 600 * ms
	check("it has been passed over once", "b:ZUNIONSTORE c:GET ", ask("c", "GET k"))
	check("what its user has sent after it", "b:GET ")
	u.note(ask("a", "DEL k"), 500*ms, now)
	for range 1000 {
		u.note(ask("c", "DEL k"), ms/10, now)
	}
	check("one long DEL among many", "c:DEL ", ask("c", "DEL k"), ask("a", "DEL k"))
	exec := &request{calls: n.txn(nil, "ZUNIONSTORE z 1 y", "GET k")}
	u.note(exec, 500*ms, now)
	light := &request{calls: n.txn(nil, "SET k v", "ZUNIONSTORE z 1 y")}
	if exec.calls[0].User, light.calls[0].User = "d", "e"; !u.isHeavy(exec, "x", now) || u.isHeavy(light, "e", now) {
		t.Errorf("%s and %s are kinds of transactions", exec.kind(), light.kind())
	}
	now += heavyMemory
	check("it is forgotten", "a:DEL b:ZUNIONSTORE c:GET ", ask("b", "ZUNIONSTORE z 1 y"), ask("c", "GET k"))
}

// What a user sends before heavy work is run before it, also where a batch has left it over, and where the heavy work's
// turn has come: a release must not be overtaken by what its client has sent later.
func TestHeavyWorkOvertakesNothingOfItsUser(t *testing.T) {
	n := newTestNode(t)
	ask := func(user, line string) *request {
		r := &request{calls: n.call(line)}
		r.calls[0].User = user
		return r
	}
	for _, overtaken := range []bool{false, true} {
		u := userTurns{overtaken: overtaken}
		now := time.Second
		u.note(ask("z", "ZUNIONSTORE z 1 y"), 500*ms, now)
		now += 600 * ms
		release, heavy, take := ask("x", "DEL lock"), ask("x", "ZUNIONSTORE z 1 y"), ask("x", "SET lock x")
		rest := []*request{ask("o", "GET k"), release, heavy, take}
		var ran []*request
		for range 20 {
			// A batch runs one request of those that are next.
			if next := u.order(rest, now); len(next) > 0 {
				ran = append(ran, next[0])
				rest = u.leftOver(next[1:], now)
			} else {
				rest = nil
			}
			now += 10 * ms
		}
		at := func(r *request) int { return slices.Index(ran, r) }
		if len(ran) != 4 || at(release) > at(heavy) || at(heavy) > at(take) {
			t.Errorf("overtaken %v: %d were run, the release as number %d, the heavy work %d, the lock %d", overtaken, len(ran), at(release), at(heavy), at(take))
		}
	}
}

// What a user does is forgotten, and what waited until then goes before what comes.
func TestUsersTurnsEnd(t *testing.T) {
	n := newTestNode(t)
	names := map[*request]string{}
	ask := func(user, name string) *request {
		r := &request{calls: n.call("SET " + name + " 1")}
		r.calls[0].User = user
		names[r] = name
		return r
	}
	order := func(q []*request) (text string) {
		for _, r := range q {
			text += names[r] + " "
		}
		return text
	}
	var u userTurns
	now := time.Second
	check := func(what string, q []*request, want string) {
		t.Helper()
		if got := order(q); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("nobody has done anything", u.order([]*request{ask("hog", "a"), ask("", "b")}, now), "a b ")
	for range 2 * turnShare / ms {
		u.note(ask("hog", "hog"), ms, now)
	}
	q := u.order([]*request{ask("hog", "a"), ask("", "b"), ask("hog", "c"), ask("x", "d")}, now)
	check("one has done much", q, "b d a c ")
	if rest := u.leftOver(q[2:], now); len(rest) > 0 {
		t.Errorf("%q is left over", order(rest))
	}
	if name, _ := ask(store.Anonymous, "x").user(); name != "" {
		t.Errorf("who has not said who it is counts as %q", name)
	}
	check("the last batch had none of its", u.order([]*request{ask("", "e"), ask("hog", "f")}, now), "a e c f ")
	u.leftOver(q[3:], now)
	u.waiting = q[3:]
	now += 2 * turnMemory
	check("it is forgotten", u.order([]*request{ask("", "g"), ask("hog", "h")}, now), "c g h ")
	if u.waiting != nil {
		t.Errorf("%q waits", order(u.waiting))
	}
	script := &store.Command{Name: "eval", Flags: store.Scripting}
	for i := range 2 * turnNames {
		r := ask(string(rune(i+1)), "x")
		if i%2 == 0 {
			r.calls[0].Cmd, r.calls[0].Args[1] = script, []byte(strings.Repeat("x", i))
		}
		u.note(r, heavyPiece, now)
	}
	if len(u.used) > turnNames || len(u.kinds) > turnNames {
		t.Errorf("%d users and %d kinds of work are known", len(u.used), len(u.kinds))
	}
}

// TestOnlyLargeRequestsEndWithTheirClients: a release of a client that was cut off is run, as one of a client whose
// connection was lost is; what holds much memory is not.
func TestOnlyLargeRequestsEndWithTheirClients(t *testing.T) {
	var told []string
	waits := func(name string, bytes int, gone bool) *request {
		c := &Client{}
		if gone {
			c.Gone()
		}
		return &request{client: c, calls: []Call{{Args: [][]byte{[]byte(name), make([]byte, bytes)}}}, finish: func(r *request) {
			told = append(told, name+" "+r.replies[0].Str)
		}}
	}
	q := refuseGone([]*request{waits("release", 10, true), waits("large", HeavyBytes+1, true), waits("stays", HeavyBytes+1, false)})
	if len(q) != 2 || string(q[0].calls[0].Args[0]) != "release" || string(q[1].calls[0].Args[0]) != "stays" {
		t.Errorf("%d requests are left", len(q))
	}
	if want := "[large " + string(errClientGone) + "]"; fmt.Sprint(told) != want {
		t.Errorf("told %q, want %q", fmt.Sprint(told), want)
	}
}

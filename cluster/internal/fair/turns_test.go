package fair

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/store"
)

const ms = time.Millisecond

// work is a request of a user.
type work struct {
	user, line string
	gone       bool
	ended      bool
}

func (w *work) User() (name string, any bool) {
	return w.user, w.user != store.SystemUser && w.user != "cluster"
}

func (w *work) Kind() call.Kind {
	name, _, _ := strings.Cut(w.line, " ")
	return call.Kind{Name: name}
}

func (w *work) KeepsPlace() bool { return w.Kind().Name == "SET" || w.Kind().Name == "DEL" }

func (w *work) Calls() int { return 1 }

func (w *work) IsGone() bool { return w.gone }

func (w *work) End() { w.ended = true }

func ask(user, line string) *work { return &work{user: user, line: line} }

// TestLargeWritesOnASlowDisk: where every entry takes long, the time of its entry does not make a large write heavy.
func TestLargeWritesOnASlowDisk(t *testing.T) {
	var turns Turns[*work]
	now := time.Second
	large := []LargeWrite{{"user", call.Kind{Name: "set with large arguments"}, 100 << 10, ms}}
	for range 100 {
		now += 40 * ms
		turns.NoteCommit(nil, 100, 30*ms, now)
		turns.NoteCommit(large, 101<<10, 33*ms, now)
	}
	if u := turns.used["user"].now(now); u.isHeavy() {
		t.Errorf("%v in %v pieces count as heavy", u.took, u.pieces)
	}
	for range 3 {
		turns.NoteCommit(large, 101<<10, 300*ms, now)
	}
	if u := turns.kinds[call.Kind{Name: "set with large arguments"}].now(now); !u.isHeavy() {
		t.Errorf("%v in %v pieces are not heavy", u.took, u.pieces)
	}
}

// The evaluation of a large write and its entry count as one piece of work, even if neither is heavy alone.
func TestEvaluationAndEntryAreOnePiece(t *testing.T) {
	var turns Turns[*work]
	now := time.Second
	turns.NoteCommit(nil, 100, ms, now)
	for range 10 {
		now += 40 * ms
		turns.NoteCommit([]LargeWrite{{"user", call.Kind{Name: "eval"}, 400 << 10, HeavyPiece * 3 / 4}}, 400<<10, HeavyPiece*3/4, now)
	}
	if u := turns.used["user"].now(now); !u.isHeavy() {
		t.Errorf("%v in %v pieces are not heavy", u.took, u.pieces)
	}
}

// Turns predicts heavy work by its kind and by its user. It does not take light work of other kinds and users for heavy.
func TestHeavyWorkIsKnown(t *testing.T) {
	var u Turns[*work]
	now := time.Second
	show := func(q []*work) (text string) {
		for _, r := range q {
			text += r.user + ":" + r.Kind().Name + " "
		}
		return text
	}
	check := func(what string, want string, q ...*work) {
		t.Helper()
		if got := show(u.Order(q, now)); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	u.Note(ask("a", "ZUNIONSTORE z 1 y"), 500*ms, now)
	check("another user's work of that kind", "c:GET ", ask("b", "ZUNIONSTORE z 1 y"), ask("b", "GET k"), ask("c", "GET k"))
	now += 600 * ms
	check("it has been passed over once", "b:ZUNIONSTORE c:GET ", ask("c", "GET k"))
	check("what its user has sent after it", "b:GET ")
	u.Note(ask("a", "DEL k"), 500*ms, now)
	for range 1000 {
		u.Note(ask("c", "DEL k"), ms/10, now)
	}
	check("one long DEL among many", "c:DEL a:DEL ", ask("c", "DEL k"), ask("a", "DEL k"))
	now += heavyMemory
	check("it is forgotten", "b:ZUNIONSTORE c:GET ", ask("b", "ZUNIONSTORE z 1 y"), ask("c", "GET k"))
}

// Heavy work overtakes no earlier request of its user. A later lock request overtakes the heavy work, but no release before both.
func TestHeavyWorkOvertakesNothingOfItsUser(t *testing.T) {
	for _, overtaken := range []bool{false, true} {
		u := Turns[*work]{overtaken: overtaken}
		now := time.Second
		u.Note(ask("z", "ZUNIONSTORE z 1 y"), 500*ms, now)
		now += 600 * ms
		release, heavy, take := ask("x", "DEL lock"), ask("x", "ZUNIONSTORE z 1 y"), ask("x", "SET lock x")
		rest := []*work{ask("o", "GET k"), release, heavy, take}
		var ran []*work
		for range 20 {
			// A batch runs one request of those that are next.
			if next := u.Order(rest, now); len(next) > 0 {
				ran = append(ran, next[0])
				rest = u.LeftOver(next[1:], now)
			} else {
				rest = nil
			}
			now += 10 * ms
		}
		at := func(r *work) int { return slices.Index(ran, r) }
		if len(ran) != 4 || at(release) > at(take) || at(take) > at(heavy) {
			t.Errorf("overtaken %v: %d were run, the release as number %d, the heavy work %d, the lock %d", overtaken, len(ran), at(release), at(heavy), at(take))
		}
	}
}

// Turns forgets in time what a user has done. The requests of the user that waited until then go before new ones.
func TestUsersTurnsEnd(t *testing.T) {
	order := func(q []*work) (text string) {
		for _, r := range q {
			text += r.line + " "
		}
		return text
	}
	var u Turns[*work]
	now := time.Second
	check := func(what string, q []*work, want string) {
		t.Helper()
		if got := order(q); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("nobody has done anything", u.Order([]*work{ask("hog", "a"), ask("", "b")}, now), "a b ")
	for range 2 * turnShare / ms {
		u.Note(ask("hog", "hog"), ms, now)
	}
	q := u.Order([]*work{ask("hog", "a"), ask("", "b"), ask("hog", "c"), ask("x", "d")}, now)
	check("one has done much", q, "b d a c ")
	if rest := u.LeftOver(q[2:], now); len(rest) > 0 {
		t.Errorf("%q is left over", order(rest))
	}
	check("the last batch had none of its", u.Order([]*work{ask("", "e"), ask("hog", "f")}, now), "a e c f ")
	u.LeftOver(q[3:], now)
	u.waiting = q[3:]
	now += 2 * turnMemory
	check("it is forgotten", u.Order([]*work{ask("", "g"), ask("hog", "h")}, now), "c g h ")
	if u.waiting != nil {
		t.Errorf("%q waits", order(u.waiting))
	}
	for i := range 2 * turnNames {
		u.Note(ask(string(rune(i+1)), strconv.Itoa(i/2)), HeavyPiece, now)
	}
	if len(u.used) > turnNames || len(u.kinds) > turnNames {
		t.Errorf("%d users and %d kinds of work are known", len(u.used), len(u.kinds))
	}
}

// After coarse work, users with much of it wait for as long as the work and its entry took, while others send requests.
func TestCoarseWorkPauses(t *testing.T) {
	const entry, took = 20 * ms, 40 * ms
	var u Turns[*work]
	now := time.Second
	show := func(q []*work) (text string) {
		for _, r := range q {
			text += r.user + ":" + r.line + " "
		}
		return text
	}
	u.NoteCommit(nil, 100, entry, now)
	for range 10_000 {
		u.Note(ask("busy", "GET k"), CoarsePiece-1, now)
	}
	u.Ended(now)
	now += time.Millisecond
	batch := func(pieces int) {
		for range pieces {
			u.Note(ask("hog", "SETRANGE"), ms, now)
		}
		u.NoteCommit(nil, 100, entry+took, now)
		u.Ended(now)
	}
	batch(100)
	ends := now + 100*ms + took
	if u.small != entry {
		t.Errorf("an entry of light work takes %v, but its commit takes %v", entry, u.small)
	}
	if got := show(u.Order([]*work{ask("hog", "a"), ask("hog", "b"), ask("busy", "c")}, now)); got != "busy:c " {
		t.Errorf("in the pause: %q", got)
	}
	for now += ms; now < ends; now += ms {
		if got := show(u.Order([]*work{ask("you", "lock")}, now)); got != "you:lock " || u.Due(now) {
			t.Fatalf("%v before the end of the pause: %q; the work is due: %t", ends-now, got, u.Due(now))
		}
	}
	if got := show(u.Order([]*work{ask("you", "lock"), ask("hog", "d")}, now)); got != "you:lock hog:a hog:b hog:d " {
		t.Errorf("after the pause: %q", got)
	}
	batch(2 * int(restFor/ms))
	u.LeftOver([]*work{ask("hog", "e")}, now)
	if now += restFor - ms; u.Due(now) {
		t.Error("it is due, but another has just sent a request")
	}
	if now += ms; !u.Due(now) {
		t.Error("it is not due, but nobody else sends requests")
	}
	if got := show(u.Order([]*work{ask("hog", "f")}, now)); got != "hog:e hog:f " {
		t.Errorf("nobody else sends requests: %q", got)
	}
}

// TestLocksOfUsersWithHeavyWork: a user has written large values a moment ago. Its requests for locks do not wait as heavy work
// does.
func TestLocksOfUsersWithHeavyWork(t *testing.T) {
	var u Turns[*work]
	now := time.Second
	for range 10 {
		u.Note(ask("bulk", "RPUSH"), 2*HeavyPiece, now)
		u.Note(ask("hog", "eval"), 500*ms, now)
	}
	later := now + turnMemory
	if q := u.Order([]*work{ask("hog", "eval"), ask("bulk", "SET lock"), ask("you", "SET lock")}, later); len(q) != 2 {
		t.Errorf("%d requests are run at once, want two locks", len(q))
	}
	u.Drain()
	u.overtaken, u.rest = false, later+ms
	if q := u.Order([]*work{ask("bulk", "RPUSH"), ask("bulk", "DEL lock"), ask("you", "SET lock")}, later); len(q) != 2 {
		t.Errorf("%d requests are run while heavy work waits, want two", len(q))
	}
}

// Requests of a kind known to be light keep their places, but no lock overtakes a release of an unknown or coarse kind.
func TestLocksBesideReports(t *testing.T) {
	var u Turns[*work]
	now := time.Second
	order := func(lines ...string) (got string) {
		var q []*work
		for _, line := range append(lines, "GET other") {
			user := "app"
			if line == "GET other" {
				user = "other"
			}
			q = append(q, ask(user, line))
		}
		u.Drain()
		u.pause = now + 10*ms
		for _, r := range u.Order(q, now) {
			got += r.line + ", "
		}
		return got
	}
	for range 100 {
		u.Note(ask("app", "report"), HeavyTime, now)
	}
	if got := order("report", "SET lock"); got != "GET other, " {
		t.Errorf("nothing is known of its locks: %q", got)
	}
	for range knownPieces {
		u.Note(ask("app", "SET lock"), CoarsePiece/10, now)
	}
	if got := order("report", "SET lock", "report"); got != "SET lock, GET other, " {
		t.Errorf("its locks are known to be light: %q", got)
	}
	if got := order("DEL lock", "SET lock"); got != "GET other, " {
		t.Errorf("a release of a kind that is not known, and a lock: %q", got)
	}
	for range knownPieces {
		u.Note(ask("app", "DEL lock"), 2*CoarsePiece, now)
	}
	if got := order("DEL lock", "SET lock"); got != "GET other, " {
		t.Errorf("a release of a coarse kind, and a lock: %q", got)
	}
}

// Many users with coarse work share turnShare, so each soon goes behind others. Who has used least goes first.
func TestManyUsersWithCoarseWork(t *testing.T) {
	const users = 20
	name := func(i int) string { return "user" + strconv.Itoa(i%users) }
	var u Turns[*work]
	now := time.Second
	spent := time.Duration(0)
	for i := range 1000 {
		q := u.Order([]*work{ask(name(i), "LREM"), ask("you", "lock")}, now)
		if len(q) == 0 || q[0].user == "you" {
			break
		}
		u.Note(q[0], 2*HeavyTime, now)
		u.Ended(now)
		spent += 2 * HeavyTime
		now += ms
	}
	if spent > turnShare+users*2*HeavyTime {
		t.Errorf("before a lock went first, their work took %v", spent)
	}
	u.Drain()
	for i := range users {
		u.Note(ask(name(i), "LREM"), time.Duration(users-i)*ms, now)
	}
	var q []*work
	for i := range 2 * users {
		q = append(q, ask(name(i), strconv.Itoa(i)))
	}
	var got []string
	for _, r := range u.Order(q, now+time.Second) {
		got = append(got, r.line)
	}
	for i, line := range got {
		want := users - 1 - i/2 + i%2*users
		if line != strconv.Itoa(want) {
			t.Fatalf("%v", got)
		}
	}
}

// TestLoginsAreOthers: heavy work gives way to clients that log in, but not to work of the cluster itself.
func TestLoginsAreOthers(t *testing.T) {
	for user, gives := range map[string]bool{store.SystemUser: true, "cluster": false} {
		var turns Turns[*work]
		now := time.Second
		turns.Note(ask("hog", "eval a"), 500*ms, now)
		if got := turns.AnyLight([]*work{ask(user, "login")}, now); got != gives {
			t.Errorf("%q: is light work: %t", user, got)
		}
		turns.Order([]*work{ask(user, "login"), ask("hog", "eval b")}, now)
		if got := len(turns.Order(nil, now+10*ms)) == 0; got != gives {
			t.Errorf("%q: heavy work waits behind it: %t", user, got)
		}
	}
}

// TestWorkOfClientsThatWereCutOff: work that waits ends if its client is cut off meanwhile.
func TestWorkOfClientsThatWereCutOff(t *testing.T) {
	var turns Turns[*work]
	now := time.Second
	turns.Note(ask("hog", "script 1"), 500*ms, now)
	q := []*work{ask("hog", "script 2"), ask("hog", "release"), ask("hog", "script 3"), ask("hog", "script 4")}
	if got := turns.Order(append([]*work{ask("you", "light")}, q...), now); len(got) != 1 {
		t.Fatalf("%d requests are run at once", len(got))
	}
	for _, w := range q[:3] {
		w.gone = true
	}
	run := turns.Order(nil, now+time.Second)
	for i, ends := range []bool{true, true, true, false} {
		if q[i].ended != ends || slices.Contains(run, q[i]) == ends {
			t.Errorf("%s: ended %t, run %t", q[i].line, q[i].ended, slices.Contains(run, q[i]))
		}
	}
}

// A user who has done much coarse work waits behind users who have done little, but only for a moment.
func TestUsersWithoutAPast(t *testing.T) {
	const users = 10
	var u Turns[*work]
	now := time.Second
	for range 200 {
		u.Note(ask("you", "lock"), ms, now)
	}
	var q []*work
	for i := range 60 * users {
		if r := ask("user"+strconv.Itoa(i%users), "EVAL"); i < users {
			for range 10 {
				u.Note(r, ms, now)
			}
		} else {
			q = append(q, r)
		}
	}
	u.Ended(now)
	q = append(q, ask("you", "lock"))
	asked := now
	for len(q) > 0 {
		order := u.Order(q, now)
		q = nil
		batch := now
		for len(order) > 0 && now-batch < 3*ms {
			if order[0].user == "you" {
				if now-asked > 300*ms {
					t.Errorf("you waited for %v", now-asked)
				}
				return
			}
			now += ms
			u.Note(order[0], ms, now)
			order = order[1:]
		}
		u.Ended(now)
		q = u.LeftOver(order, now)
		now += ms
		if q == nil {
			q = []*work{ask("other", "GET k")}
		}
	}
	t.Error("you were not served")
}

// A user with little coarse work goes before fifty users with much, even if they have waited longer.
func TestLittleWorkAmongMuch(t *testing.T) {
	const users = 50
	var u Turns[*work]
	now := time.Second
	var q []*work
	for i := range users {
		r := ask("user"+strconv.Itoa(i), "EVAL")
		for range 10 {
			now += ms
			u.Note(r, 10*ms, now)
		}
		q = append(q, r)
	}
	u.Note(ask("you", "lock"), 5*ms, now)
	u.Ended(now)
	now += 3 * time.Second
	u.Note(ask("you", "lock"), ms, now)
	q = append(q, ask("you", "lock"))
	if order := u.Order(q, now); len(order) != len(q) || order[0].user != "you" || order[1].user != "user0" {
		t.Errorf("%d requests, the first of %s and %s", len(order), order[0].user, order[1].user)
	}
}

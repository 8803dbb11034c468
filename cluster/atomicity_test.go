package cluster

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// exec submits a transaction to a node.
func (c *three) exec(i int, watched []Watched, lines ...string) string {
	c.t.Helper()
	return execOn(c.t, c.nodes[i], watched, lines...)
}

func callOf(t testing.TB, n *Node, line string) Call {
	tn := &testNode{Node: n, t: t, table: n.cfg.Table}
	return tn.call(line)[0]
}

func execOn(t testing.TB, n *Node, watched []Watched, lines ...string) string {
	t.Helper()
	txn := &Transaction{Watched: watched}
	for _, line := range lines {
		txn.Calls = append(txn.Calls, callOf(t, n, line))
	}
	return execText(n.Submit([]Call{{Cmd: call.Exec, RESP: 2, Txn: txn}}, nil))
}

func (c *three) expectExec(i int, want string, watched []Watched, lines ...string) {
	c.t.Helper()
	if got := c.exec(i, watched, lines...); got != want {
		c.t.Errorf("n%d: EXEC of %q: got %q, want %q", i+1, lines, got, want)
	}
}

// EXEC notices a change of a watched key, even after a change of leader, or on another node.
func TestWatchThroughAChangeOfLeader(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	c.do(0, "SET same x", "SET changed x", "SWAPDB 3 4", "SET back x")
	first := c.leader()
	same, changed, absent := watch(t, c.nodes[c.follower()], "same"), watch(t, c.nodes[first], "changed"), watch(t, c.nodes[first], "absent")
	back := watch(t, c.nodes[first], "back")
	c.do(first, "SWAPDB 0 1", "SWAPDB 0 1")
	next := (first + 1) % 3
	c.transfer(c.nodes[first], next)
	c.do(first, "SET changed x")
	for i := range c.nodes {
		c.expectExec(i, "changed", changed, "SET changed no")
		c.expectExec(i, "changed", back, "SET back no")
		c.expectExec(i, "[nil]", absent, "GET absent")
	}
	c.expectExec(first, "changed", same, "SET same no") // SWAPDB counts as a change
	same = watch(t, c.nodes[first], "same")
	c.crash(next)
	for _, i := range []int{first, (first + 2) % 3} {
		c.expectExec(i, "[x]", same, "GET same") // during the election
	}
	c.leader()
	c.expectExec(first, "[OK 0]", same, "SET same y", "PUBLISH a b")
	c.expectExec(first, "changed", same, "SET same z")
	c.start(next)
	c.expect(next, "y", "GET same")
	c.same()
}

// Transfers between accounts stay atomic while leadership moves: the sum never changes.
func TestTransactionsAreAtomic(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	const accounts, sum = 3, 300
	for i := range accounts {
		c.do(0, fmt.Sprintf("SET account:%d 100", i))
	}
	const each = 60
	var clients sync.WaitGroup
	committed := make([]atomic.Int64, 2)
	for i, n := range c.nodes {
		clients.Go(func() {
			for k := range each {
				if moveWatched(t, n, fmt.Sprintf("account:%d", (i+k)%accounts), fmt.Sprintf("account:%d", (i+k+1)%accounts)) {
					committed[0].Add(1)
				}
			}
		})
		clients.Go(func() {
			for k := range each {
				to := (i + k) % accounts
				got := execOn(t, n, nil, fmt.Sprintf("DECRBY account:%d 7", (to+1)%accounts), fmt.Sprintf("INCRBY account:%d 7", to))
				if strings.HasPrefix(got, "[") {
					committed[1].Add(1)
				}
			}
		})
		clients.Go(func() {
			for range each {
				checkSum(t, n, sum)
			}
		})
	}
	for i := range 3 {
		c.transfer(c.nodes[i], (c.leader()+1)%3)
	}
	clients.Wait()
	checkSum(t, c.nodes[0], sum)
	// Many transactions with WATCH fail, because others change the watched keys. How many succeed depends on timing, so one is
	// enough.
	if w, plain := committed[0].Load(), committed[1].Load(); w == 0 || plain < 3*each/2 {
		t.Errorf("%d watched and %d other transactions took place", w, plain)
	}
	c.same()
}

// moveWatched moves 5 from one account to another without a script: it watches and reads both accounts, and then sets both in a
// transaction.
func moveWatched(t *testing.T, n *Node, from, to string) (done bool) {
	w := watch(t, n, from, to)
	calls := []Call{callOf(t, n, "GET "+from), callOf(t, n, "GET "+to)}
	r := n.Submit(calls, nil)
	a, okA := redistext.ParseInt([]byte(r[0].Str))
	b, okB := redistext.ParseInt([]byte(r[1].Str))
	if !okA || !okB {
		t.Errorf("balances %q", text(r))
		return false
	}
	return execOn(t, n, w, fmt.Sprintf("SET %s %d", from, a-5), fmt.Sprintf("SET %s %d", to, b+5)) == "[OK OK]"
}

func checkSum(t *testing.T, n *Node, want int64) {
	txn := &Transaction{}
	for i := range 3 {
		txn.Calls = append(txn.Calls, callOf(t, n, fmt.Sprintf("GET account:%d", i)))
	}
	r := n.Submit([]Call{{Cmd: call.Exec, RESP: 2, Txn: txn}}, nil)[0]
	got := int64(0)
	for _, e := range r.Elems {
		balance, ok := redistext.ParseInt([]byte(e.Str))
		if !ok {
			t.Errorf("a balance of %q", e.Str)
		}
		got += balance
	}
	if got != want || len(r.Elems) != 3 {
		t.Errorf("the accounts hold %d in all (%s), want %d", got, text([]store.Reply{r}), want)
	}
}

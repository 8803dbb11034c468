package cluster

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// A transaction of many commands has the time limit of a script.
func TestTransactionOfManyCommandsIsStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		nap := store.Command{Name: "nap", Arity: 1, Flags: store.ReadOnly, Run: func(c *store.Ctx) store.Reply {
			time.Sleep(5 * ms)
			return store.OK
		}}
		n, l := newLimited(t, nap)
		naps := func(count int) []Call {
			return n.txn(nil, append(slices.Repeat([]string{"NAP"}, count), "SET done x")...)
		}
		start := time.Now()
		if got := text(n.Submit(naps(3000), nil)); got != "-EXECABORT" {
			t.Errorf("%.80s", got)
		}
		if took := time.Since(start); took > l.limit+commandsPerLook*5*ms {
			t.Errorf("it held everybody for %v", took)
		}
		n.expect("0", "EXISTS done")
		n.log.decides(10*ms, once(commitSlowly))
		blocker := n.start("SET a b")
		synctest.Wait()
		start = time.Now()
		before := n.start("INCR counter")
		synctest.Wait()
		long := make(chan string, 1)
		go func() { long <- text(n.Submit(naps(200), nil)) }()
		<-blocker
		if got, took := <-before, time.Since(start); got != "1" || took > 20*ms+companyTime+commandsPerLook*5*ms {
			t.Errorf("%s after %v", got, took)
		}
		if got := <-long; strings.HasPrefix(got, "-") {
			t.Errorf("%.80s", got)
		}
		n.expect("1", "EXISTS done")
	})
}

// A transaction whose commands are refused has the time limit of a script, too: checking rights takes time.
func TestTransactionOfManyRefusalsIsStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		find := func([][]byte) []int {
			time.Sleep(5 * ms)
			return []int{1}
		}
		slow := store.Command{Name: "slow", Arity: 2, Flags: store.ReadOnly, Keys: []store.KeySpec{{Find: find, Flags: store.KeyRO}},
			Run: func(*store.Ctx) store.Reply { return store.OK }}
		restrict := store.Command{Name: "restrict", Arity: 1, Flags: store.Write, Run: func(c *store.Ctx) store.Reply {
			u, _ := store.NewUser(c.Cmd.Table(), "u", true).WithRules([]string{"on", "nopass", "+@all", "~other"}, true)
			c.Txn.SetUser(u)
			return store.OK
		}}
		n, l := newLimited(t, slow, restrict)
		n.expect("OK", "RESTRICT")
		exec := func(count int) string {
			calls := n.txn(nil, slices.Repeat([]string{"SLOW key"}, count)...)
			calls[0].User = "u"
			for i := range calls[0].Txn.Calls {
				calls[0].Txn.Calls[i].User = "u"
			}
			replies := n.Submit(calls, nil)
			if replies[0].Kind == store.Noted { // the refusal comes with denials for the ACL log
				replies = replies[0].Elems[:1]
			}
			return text(replies)
		}
		if got := exec(1); !strings.Contains(got, "NOPERM") {
			t.Fatalf("%.80s", got)
		}
		start := time.Now()
		if got := exec(3000); !strings.Contains(got, "EXECABORT") {
			t.Errorf("%.80s", got)
		}
		if took := time.Since(start); took > l.limit+commandsPerLook*5*ms {
			t.Errorf("it held everybody for %v", took)
		}
	})
}

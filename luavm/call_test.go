package luavm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// TestLargeArgumentsAreLetGo: the engine keeps no large argument of a call that has ended.
func TestLargeArgumentsAreLetGo(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(2, "EVAL", "return redis.call('SET', KEYS[1], string.rep('x', 100) .. string.rep('y', 1000000)) and 1", "1", "k")
	for _, a := range w.e.args[:cap(w.e.args)] {
		if len(a) > keepBuffer {
			t.Errorf("%d bytes are kept", len(a))
		}
	}
}

// TestUndecidedRightsOfAScript: an error text may already begin with an error code. The script gets the text with this one code:
// the engine adds no second one.
func TestUndecidedRightsOfAScript(t *testing.T) {
	w := newWorld(t, Options{})
	rules := []string{"+@all"}
	for i := range 10_000 {
		rules = append(rules, fmt.Sprintf("~[a-c]pp?%d", i))
	}
	u, refusal := store.NewUser(w.table, "u", false).WithRules(rules, false)
	if refusal != "" {
		t.Fatal(refusal)
	}
	c := &store.Ctx{Txn: w.txn, RESP: 2, User: u}
	for _, word := range []string{"eval", "local keys = {} for i = 1, 100 do keys[i] = 'appx9999' end return redis.pcall('mget', unpack(keys))", "0"} {
		c.Args = append(c.Args, []byte(word))
	}
	c.Cmd = w.table.Lookup(c.Args[0])
	if got := c.Cmd.Run(c); got.Kind != store.Failure || !strings.HasPrefix(got.Str, string(store.ErrUndecided)) {
		t.Errorf("%q", got.Str)
	}
}

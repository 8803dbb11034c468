package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// TestACLCommandsAreWatched: a long command about users calls Ctx.Watch from time to time, because all other commands wait for it.
func TestACLCommandsAreWatched(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	rule := "~*" + strings.Repeat("[a]", 63) + "[b]"
	slow := []string{"ACL", "SETUSER", "slow", "+@all"}
	for i := range 90 {
		slow = append(slow, fmt.Sprint(rule, i))
	}
	c.send(array(slow...))
	c.expect("+OK\r\n")
	c.do("ACL SETUSER rich "+strings.Repeat("(~a) ", 1000), "+OK\r\n")
	ts.fake.mu.Lock()
	defer ts.fake.mu.Unlock()
	for _, words := range [][]string{
		{"ACL", "DRYRUN", "slow", "GET", strings.Repeat("a", 2000)},
		{"ACL", "LIST"},
		{"ACL", "GETUSER", "rich"},
		append([]string{"ACL", "DELUSER"}, strings.Fields(strings.Repeat("none ", 5000))...),
		{"ACL", "SETUSER", "x", "(" + strings.Repeat("-@geo ", 100_000) + ")"},
	} {
		args := [][]byte{}
		for _, w := range words {
			args = append(args, []byte(w))
		}
		cmd, _ := ts.table.Resolve(args)
		looks := 0
		ctx := store.Ctx{Txn: ts.fake.store.Begin(store.Time{}, 1000, store.Env{ACL: ts.hub.ACL("", nil), Limits: store.Limits{Reply: 1 << 20, Entry: 8 << 20}}), Cmd: cmd, Args: args, Watch: func() { looks++ }}
		if cmd.Run(&ctx); looks == 0 {
			t.Errorf("%.60s: nothing looked", strings.Join(words, " "))
		}
	}
}

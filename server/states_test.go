package server

import (
	"os"
	"strings"
	"testing"
)

// TestEveryCommandHasAState: no command of redis-server 7.0.15 (its own COMMAND
// LIST) is unknown here without a reason.
func TestEveryCommandHasAState(t *testing.T) {
	list, err := os.ReadFile("testdata/redis-7.0.15-commands.txt")
	if err != nil {
		t.Fatal(err)
	}
	ts := newTestServer(t, nil)
	count := map[State]int{}
	real := map[string]bool{}
	for _, name := range strings.Fields(string(list)) {
		real[name] = true
		s, known := StateOf(ts.table, name)
		if !known {
			if why := builtElsewhere(name); why != "" {
				continue
			}
			t.Errorf("%s: nobody says what becomes of it", name)
			continue
		}
		if s.State != Done && s.Why == "" {
			t.Errorf("%s is %s without a reason", name, s.State)
		}
		count[s.State]++
	}
	t.Logf("%v of %d", count, len(real))
	for name := range exceptions {
		if !real[name] && name != "waitaof" {
			t.Errorf("%s is not a command of Redis 7.0", name)
		}
		if named(ts.table, []byte(name)) == nil {
			t.Errorf("%s is not in the table", name)
		}
	}
}

// builtElsewhere names what other packages bring; it must shrink to nothing.
func builtElsewhere(name string) string {
	for prefix, why := range map[string]string{
		"client|": "tracking", "cluster|": "the cluster listener",
		"multi": "transactions", "exec": "transactions", "discard": "transactions", "watch": "transactions", "unwatch": "transactions",
		"function": "functions", "fcall": "functions",
	} {
		if strings.HasPrefix(name, prefix) {
			return why
		}
	}
	return ""
}

// TestAbsentCommands: to a client they are unknown, to a reader there is a
// reason.
func TestAbsentCommands(t *testing.T) {
	c := newTestServer(t, nil).dial(t)
	c.do("XADD s * a b", "-ERR unknown command 'XADD', with args beginning with: 's' '*' 'a' 'b' ("+noStreams+")\r\n")
	c.do("geoadd k", "-ERR unknown command 'geoadd', with args beginning with: 'k' ("+noGeo+")\r\n")
	c.do("NOSUCH k", "-ERR unknown command 'NOSUCH', with args beginning with: 'k' \r\n")
	for _, name := range []string{"xadd", "geoadd", "pfcount"} {
		if newTestServer(t, nil).table.Lookup([]byte(name)) != nil {
			t.Errorf("%s is in the table", name)
		}
	}
}

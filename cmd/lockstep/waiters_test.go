package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// A client that runs the script of its library again and again counts as one that waits for the lock. Both ways in which the server runs scripts
// are used: one script has a loop, as node-redlock's has.
func TestPollersOfScripts(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	for name, script := range map[string]string{
		"plain": "if redis.call('exists', KEYS[1]) == 0 then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end",
		"loop":  "for _, key in ipairs(KEYS) do if redis.call('exists', key) == 1 then return 0 end end for _, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS",
	} {
		ask := func(owner string) {
			if got, err := n.Do("EVAL", script, "1", name, owner, "600000"); err != nil {
				t.Fatal(got, err)
			}
		}
		ask("a")
		until(t, "LOCK.WAITERS shows a client that asks again", func() bool {
			ask("b")
			ask("a")
			list, err := n.Do("LOCK.WAITERS", name)
			rows, _ := list.([]any)
			if err != nil || len(rows) == 0 {
				return false
			}
			if row := fmt.Sprint(rows[0]); len(rows) > 1 || !strings.Contains(row, "owner b queue poller") {
				t.Errorf("%s: %v", name, rows)
			}
			return true
		})
	}
}

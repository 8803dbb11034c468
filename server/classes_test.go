package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// Class J8 of mistakes: an error leaves the connection in MULTI. Here, whatever step fails, EXEC and DISCARD end MULTI.
func TestJ8NoErrorLeavesMulti(t *testing.T) {
	const queued = "+QUEUED\r\n"
	for _, test := range []struct{ name, send, want string }{
		{"MULTI twice", "MULTI\r\nMULTI\r\nEXEC\r\n", "+OK\r\n-" + string(errNestedMulti) + "\r\n*0\r\n"},
		{"an unknown command", "MULTI\r\nNONSENSE\r\nSET a 1\r\nEXEC\r\n", "+OK\r\n-ERR unknown command 'NONSENSE', with args beginning with: \r\n" + queued + "-" + string(errExecAborted) + "\r\n"},
		{"a wrong number of arguments", "MULTI\r\nGET\r\nEXEC\r\n", "+OK\r\n-ERR wrong number of arguments for 'get' command\r\n-" + string(errExecAborted) + "\r\n"},
		{"WATCH inside", "MULTI\r\nWATCH k\r\nEXEC\r\n", "+OK\r\n-" + string(errWatchInMulti) + "\r\n*0\r\n"},
		{"DISCARD after an error", "MULTI\r\nGET\r\nDISCARD\r\n", "+OK\r\n-ERR wrong number of arguments for 'get' command\r\n+OK\r\n"},
		{"a command that fails when it runs", "MULTI\r\nSET s x\r\nINCR s\r\nEXEC\r\n", "+OK\r\n" + queued + queued + "*2\r\n+OK\r\n-ERR value is not an integer or out of range\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bothPaths(t, func(t *testing.T, ts *testServer) {
				c := ts.dial(t)
				c.send(test.send + "SET plain 1\r\nGET plain\r\n")
				c.expect(test.want + "+OK\r\n$1\r\n1\r\n")
			})
		})
	}
	// The leader refuses EXEC, or this node cannot reach the leader.
	for _, refusal := range []store.Error{cluster.ErrClusterDown, cluster.ErrIndeterminate, store.ErrBusyScript, cluster.ErrInternal} {
		t.Run(fmt.Sprint("EXEC is told ", strings.Fields(string(refusal))[0]), func(t *testing.T) {
			bothPaths(t, func(t *testing.T, ts *testServer) {
				c := ts.dial(t)
				ts.fake.refusal.Store(refusal)
				c.send("MULTI\r\nSET k 1\r\nEXEC\r\n")
				c.expect("+OK\r\n" + queued + "-" + string(refusal) + "\r\n")
				ts.fake.refusal.Store(store.Error(""))
				c.send("GET k\r\nSET k 2\r\nGET k\r\nEXEC\r\n")
				c.expect("$-1\r\n+OK\r\n$1\r\n2\r\n-" + string(errExecWithoutMulti) + "\r\n")
			})
		})
	}
	// This node refuses EXEC, because EXEC has one argument too many.
	bothPaths(t, func(t *testing.T, ts *testServer) {
		c := ts.dial(t)
		c.send("MULTI\r\nSET k 1\r\nEXEC now\r\nGET k\r\n")
		c.expect("+OK\r\n" + queued + "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n$-1\r\n")
	})
}

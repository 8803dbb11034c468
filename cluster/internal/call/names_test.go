package call

import (
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// TestCallsInANodesName: what a node sends in its own name runs only if a node sends it: the leader must not take more from a follower that
// strangers have taken over.
func TestCallsInANodesName(t *testing.T) {
	table := store.NewTable(store.Commands(), []store.Command{{Name: "acl", Sub: []store.Command{{Name: "load", Run: func(*store.Ctx) store.Reply { return store.OK }}}}})
	for _, c := range []struct {
		words []string
		runs  bool
	}{
		{[]string{"ACL", "LOAD", "version"}, true},
		{[]string{"ACL", "LOAD"}, false},
		{[]string{"PUBLISH", "__lock@0__:granted:owner", "{}"}, true}, // the end of a ticket (server/lock_tickets.go)
		{[]string{"PUBLISH", "news", "x"}, false},
		{[]string{"SET", "key", "value"}, false},
		{[]string{LookName, "key"}, true},
		{[]string{AdoptName, "key", "none", "-1", "0"}, true},
	} {
		sent := Call{RESP: 2, User: store.SystemUser}
		for _, w := range c.words {
			sent.Args = append(sent.Args, []byte(w))
		}
		sent.Cmd, _ = table.Resolve(sent.Args)
		got, err := Read(Append(nil, []Call{sent}, 1), table)
		if err != nil || len(got) != 1 {
			t.Fatalf("%q: %v", c.words, err)
		}
		if runs := !got[0].OfAnotherNode() && got[0].Cmd != Unknown; runs != c.runs {
			t.Errorf("%q: it runs: %v", c.words, runs)
		}
	}
}

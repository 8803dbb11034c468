package bridge

import (
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/server"
	"github.com/lockstep-io/lockstep/store"
)

// TestURLs: a URL that cannot be used is an error that says what is wanted, and no error shows a password.
func TestURLs(t *testing.T) {
	for _, bad := range []string{"", "redis", "localhost:6379", "http://host:6379", "redis://:secret@host:6379/1", "redis://user:secret@host:port", "redis://:se%zzcret@host",
		"redis://:secret@host?master_name=m&nonsense=1", "redis://host?master_name=m&password=secret&nonsense=1", "redis://:secret@host?addr=h:1&nonsense=1", "rediss://:secret@host?nonsense=1"} {
		_, err := openOld(bad)
		if err == nil {
			t.Errorf("%s is accepted", bad)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "cret@") {
			t.Errorf("%s: the error shows the password: %v", bad, err)
		}
	}
	for _, good := range []string{"redis://host", "redis://:secret@host:6379", "rediss://user:secret@host", "redis://:secret@host?master_name=m&addr=other:26379", "redis://host?master_name=m&password=secret", "redis://:secret@host?addr=other:6379"} {
		o, err := openOld(good)
		if err != nil {
			t.Errorf("%s: %v", good, err)
		} else if strings.Contains(o.target, "secret") {
			t.Errorf("%s: the log would show the password: %s", good, o.target)
		}
	}
}

func TestChanged(t *testing.T) {
	held := state{kind: "string", content: []string{"me"}, deadline: 10_000, expires: true}
	for _, c := range []struct {
		name   string
		after  state
		change bool
	}{
		{"nothing", held, false},
		{"clocks that were read at different times", state{kind: "string", content: []string{"me"}, deadline: 10_000 - stillDeadline, expires: true}, false},
		{"a renewed lease", state{kind: "string", content: []string{"me"}, deadline: 10_000 + stillDeadline + 1, expires: true}, true},
		{"a shorter lease", state{kind: "string", content: []string{"me"}, deadline: 9000, expires: true}, true},
		{"no lease any more", state{kind: "string", content: []string{"me"}}, true},
		{"another owner", state{kind: "string", content: []string{"you"}, deadline: 10_000, expires: true}, true},
		{"another type", state{kind: "hash", content: []string{"me", "1"}, deadline: 10_000, expires: true}, true},
		{"gone", state{kind: "none"}, true},
	} {
		if got := changed(held, c.after); got != c.change {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestHas: a lock is lost if one of its owners is, and not if other owners have come.
func TestHas(t *testing.T) {
	str := func(v string) state { return state{kind: "string", content: []string{v}} }
	hash := func(fields ...string) state {
		s := state{kind: "hash"}
		for _, f := range fields {
			s.content = append(s.content, f, "1")
		}
		return s
	}
	for _, c := range []struct {
		there, here state
		has         bool
	}{
		{str("a"), str("a"), true}, {str("b"), str("a"), false}, {state{kind: "none"}, str("a"), false}, {hash("a"), str("a"), false},
		{hash("a"), hash("a"), true}, {hash("a", "b"), hash("a"), true}, {hash("a"), hash("a", "b"), false}, {hash("mode", "a"), hash("a"), true},
		{hash("a"), hash("mode", "a"), true}, {state{kind: "none"}, state{kind: "none"}, true},
	} {
		if got := c.there.has(&c.here); got != c.has {
			t.Errorf("%v has %v: %v", c.there.content, c.here.content, got)
		}
	}
}

// TestHoldsAreBounded: neither their number nor their bytes grow without limit, and what was dropped counts no more.
func TestHoldsAreBounded(t *testing.T) {
	var h holds
	long := strings.Repeat("x", maxHoldBytes/4)
	kept := 0
	for i := range 8 {
		if h.put(0, long+string(rune('a'+i)), hold{}) {
			kept++
		}
	}
	if kept != 3 {
		t.Errorf("%d of the long keys are kept", kept)
	}
	for i := range 8 {
		h.drop(0, long+string(rune('a'+i)))
	}
	if h.len() != 0 || h.bytes != 0 {
		t.Errorf("%d locks and %d bytes are left", h.len(), h.bytes)
	}
}

// oneByOne is a node that runs one command of a submission at a time.
type oneByOne struct{ server.Backend }

func (oneByOne) SubmitPart(_ *cluster.Client, calls []cluster.Call, dst []store.Reply) []store.Reply {
	return append(dst[:0], store.Str(string(calls[0].Args[0])))
}

// TestSubmitRunsAll: Submit has a reply for each call, in order, although a part may have fewer.
func TestSubmitRunsAll(t *testing.T) {
	b := &Bridge{Backend: oneByOne{}}
	var calls []cluster.Call
	for _, name := range []string{"a", "b", "c"} {
		calls = append(calls, cluster.Call{Cmd: &store.Command{Name: name}, Args: [][]byte{[]byte(name)}, User: store.SystemUser})
	}
	replies := b.Submit(calls, nil)
	if len(replies) != 3 || replies[0].Str != "a" || replies[1].Str != "b" || replies[2].Str != "c" {
		t.Errorf("%v", replies)
	}
}

func TestReadStates(t *testing.T) {
	row := []any{"string", "10", "5", []any{"v"}}
	if _, ok := readStates([]any{row}, 1); !ok {
		t.Error("a good reply is refused")
	}
	for _, bad := range []any{nil, "x", []any{}, []any{row, row}, []any{"x"}, []any{[]any{"string", "10", "5"}}, []any{[]any{"string", int64(10), "5", []any{}}},
		[]any{[]any{"string", "ten", "5", []any{}}}, []any{[]any{"string", "10", "5", []any{int64(1)}}}, []any{[]any{"hash", "10", "5", []any{"odd"}}}} {
		if s, ok := readStates(bad, 1); ok {
			t.Errorf("%v is read as %v", bad, s)
		}
	}
}

package luavm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// TestWhichCommandsRunLua names the commands that run Lua: the leader itself watches the time of all other commands.
func TestWhichCommandsRunLua(t *testing.T) {
	want := strings.Fields("eval eval_ro evalsha evalsha_ro fcall fcall_ro function|load function|restore script|load")
	var got []string
	for _, cmd := range newWorld(t, Options{}).table.All() {
		if cmd.RunsLua() {
			got = append(got, cmd.FullName())
		}
		for i := range cmd.Sub {
			if cmd.Sub[i].RunsLua() {
				got = append(got, cmd.Sub[i].FullName())
			}
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestListsAreWork: the scripting commands that run no Lua count their work. So a leader can end them.
func TestListsAreWork(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range 20 {
		name := fmt.Sprint(strings.Repeat("a", 100_000), i)
		w.txn.LoadLibrary(&store.Library{Name: name, Code: strings.Repeat("#", 100_000), Functions: make([]store.Function, 5000)})
	}
	sha := strings.Repeat("a", shaSize)
	for _, command := range [][]string{
		{"function", "list", "libraryname", "*" + strings.Repeat("[a-c]", 40) + "b"},
		{"function", "list"},
		{"function", "dump"},
		append([]string{"script", "exists"}, slices.Repeat([]string{sha}, 10_000)...),
		{"script", "exists", strings.Repeat("a", 1<<20)},
	} {
		watched := 0
		c := &store.Ctx{Txn: w.txn, Watch: func() { watched++ }}
		for _, arg := range command {
			c.Args = append(c.Args, []byte(arg))
		}
		c.Cmd, _ = w.table.Resolve(c.Args)
		if r := c.Cmd.Run(c); r.IsError() || watched == 0 {
			t.Errorf("%.40q: %.80q, watched %d times", command, r.Str, watched)
		}
	}
}

package server

import (
	"math"
	"strings"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// curiousRows are LOLWUT, MODULE and MIGRATE, which change nothing here.
func curiousRows() []row {
	const load = store.Admin | store.NoScript | store.NoAsyncLoading
	module := func(name string, arity int, flags store.Flags, since, usage, summary string, do handler, tips ...string) row {
		return row{Command: store.Command{Name: name, Arity: arity, Flags: flags, Since: since, Usage: usage, Summary: summary, Tips: tips}, do: do}
	}
	moved := store.KeyRW | store.KeyAccess | store.KeyDelete
	return []row{
		{Command: store.Command{
			Name: "lolwut", Arity: -1, Flags: store.ReadOnly | store.Fast, Group: "server", Since: "5.0.0",
			Summary: "Draws something, and says which Redis this is like.", Usage: "[VERSION version]", Run: runLolwut,
		}, do: func(s *session, args [][]byte) store.Reply { return lolwut(args) }},
		{
			Command: store.Command{Name: "module", Arity: -2, Group: "server", Since: "4.0.0", Summary: "Commands about modules; there are none."},
			sub: []row{
				helpRow("module", "5.0.0", 0),
				module("list", 2, store.Admin|store.NoScript, "4.0.0", "", "Lists the modules.", doEmptyList, "nondeterministic_output_order"),
				module("load", -3, load, "4.0.0", "path [arg [arg ...]]", "Loads a module; not allowed.", doNoModules),
				module("loadex", -3, load, "7.0.0", "path [CONFIG name value [name value ...]] [ARGS args [args ...]]", "Loads a module; not allowed.", doNoModules),
				module("unload", 3, load, "4.0.0", "name", "Unloads a module; not allowed.", doNoModules),
			},
		},
		{Command: store.Command{
			Name: "migrate", Arity: -6, Flags: store.Write | store.MovableKeys | store.Dangerous, Group: "generic", Since: "2.6.0",
			Keys: []store.KeySpec{
				{Begin: 3, Step: 1, Flags: moved, Find: keyToMigrate},
				{Flags: moved | store.KeyIncomplete, Find: keysToMigrate},
			},
			Summary: "Carries keys to another Redis; refused.", Tips: []string{"nondeterministic_output"},
			Usage: `host port <key | ""> destination-db timeout [COPY] [REPLACE] [AUTH password | AUTH2 username password] [KEYS key [key ...]]`,
			Run:   func(*store.Ctx) store.Reply { return store.Err(errNoMigrate) },
		}, do: func(*session, [][]byte) store.Reply { return store.Err(errNoMigrate) }},
	}
}

// keyToMigrate returns the index of the one key that MIGRATE names before its options, unless keys follow the word KEYS.
func keyToMigrate(args [][]byte) (places []int) {
	if wordKeys(args) == 0 && len(args) > 3 {
		places = []int{3}
	}
	return places
}

// keysToMigrate returns the indexes of the keys after KEYS. As in Redis, the key before the options must then be empty.
func keysToMigrate(args [][]byte) (places []int) {
	if at := wordKeys(args); at > 0 && len(args[3]) == 0 {
		for i := at + 1; i < len(args); i++ {
			places = append(places, i)
		}
	}
	return places
}

// wordKeys returns the index of the option KEYS of MIGRATE, or 0. It skips passwords and user names.
func wordKeys(args [][]byte) int {
	for i := 6; i+1 < len(args); i++ {
		switch strings.ToLower(string(args[i])) {
		case "keys":
			return i
		case "auth":
			i++
		case "auth2":
			i += 2
		}
	}
	return 0
}

func doEmptyList(*session, [][]byte) store.Reply { return store.List() }

func doNoModules(*session, [][]byte) store.Reply { return store.Err(errModules) }

func runLolwut(c *store.Ctx) store.Reply { return lolwut(c.Args) }

// lolwut returns a text that ends as Redis's does, because clients read the version from its end.
func lolwut(args [][]byte) store.Reply {
	last := "Redis ver. " + store.RedisVersion + "\n"
	if len(args) < 3 || !strings.EqualFold(string(args[1]), "version") {
		return store.Text(last)
	}
	size := []int64{0, 60, 8}
	for i, arg := range args[2:min(len(args), 5)] {
		n, ok := redistext.ParseInt(arg)
		if !ok {
			return store.Err(store.ErrNotInteger)
		}
		size[i] = n
	}
	width, height := min(max(size[1], 1), 160), min(max(size[2], 1), 40)
	var b strings.Builder
	for y := range height {
		for x := range width {
			crest := (1 + math.Sin(float64(x)/4)) / 2 * float64(height)
			if int64(crest) >= height-1-y {
				b.WriteByte('~')
			} else {
				b.WriteByte(' ')
			}
		}
		b.WriteByte('\n')
	}
	return store.Text(b.String() + "\nIn step, wave by wave. " + last)
}

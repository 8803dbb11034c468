package luavm

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// listGlobals is a script that names everything that scripts can reach.
const listGlobals = `
local t = {}
for k, v in pairs(_G) do
  t[#t+1] = k .. ':' .. type(v)
  if type(v) == 'table' and k ~= '_G' then
    for a, b in pairs(v) do t[#t+1] = k .. '.' .. a .. ':' .. type(b) end
  end
end
table.sort(t)
return table.concat(t, ' ')`

// TestGlobals compares the globals with those of a real server, recorded by
// -record like the corpus.
func TestGlobals(t *testing.T) {
	const golden = "testdata/globals.json"
	if *record != "" {
		cases := []corpusCase{{Script: listGlobals, Resp: 2}}
		recordCases(t, cases, golden)
	}
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var recorded []corpusCase
	if err := json.Unmarshal(data, &recorded); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, Options{})
	got := strings.Fields(w.eval(listGlobals).Str)
	_, body, _ := strings.Cut(recorded[0].Reply, "\r\n")
	want := strings.Fields(body)
	for _, name := range difference(want, got) {
		t.Error("missing:", name)
	}
	for _, name := range difference(got, want) {
		t.Error("not in Redis:", name)
	}
}

func difference(a, b []string) []string {
	in := map[string]bool{}
	for _, x := range b {
		in[x] = true
	}
	var only []string
	for _, x := range a {
		if !in[x] {
			only = append(only, x)
		}
	}
	return only
}

// TestVersion: the version is that of lockstep, so Redis's version was not recorded.
func TestVersion(t *testing.T) {
	w := newWorld(t, Options{})
	if r := w.eval("return redis.REDIS_VERSION"); r.Str != store.RedisVersion {
		t.Error(r)
	}
	if r := w.eval("return redis.REDIS_VERSION_NUM"); r.Int != store.RedisVersionNum {
		t.Error(r)
	}
}

// TestNothingSurvives: the changes that a script makes to what scripts share end with the script.
func TestNothingSurvives(t *testing.T) {
	w := newWorld(t, Options{})
	for _, script := range []string{
		"redis.setresp(3)",
		"cjson.encode_sparse_array(true) cjson.encode_number_precision(3)",
		"KEYS[5]='x' setmetatable(KEYS,{__index=function() return 'stale' end})",
		"getmetatable(redis) coroutine.wrap(function() coroutine.yield() end)()",
		"local t=setmetatable({},{__index=string}) t.x=1",
	} {
		w.eval(script, "k")
	}
	for script, want := range map[string]string{
		"return true":                           ":1\r\n",
		"return cjson.encode(math.pi)":          "$15\r\n3.1415926535898\r\n",
		"return pcall(cjson.encode,{[1000]=1})": "$-1\r\n",
		"return KEYS[5]":                        "$-1\r\n",
		"return coroutine.running()":            "$-1\r\n",
		"return tostring(redis.x)":              "$3\r\nnil\r\n",
	} {
		if got := wire(w.eval(script), 2); got != want {
			t.Errorf("%s: got %q, want %q", script, got, want)
		}
	}
}

func TestDeepReply(t *testing.T) {
	w := newWorld(t, Options{})
	r := w.eval("local t={} t[1]=t return t")
	// A client of another node gets the reply in encoded form. The reply may also be an element of a transaction's reply, or have
	// notes.
	around := store.Reply{Kind: store.Noted, Elems: []store.Reply{store.List(r)}}
	if back, rest, err := store.ReadReply(store.AppendReply(nil, around)); err != nil || len(rest) > 0 || !reflect.DeepEqual(back, around) {
		t.Error("the reply does not reach a follower's client:", err)
	}
	depth := 0
	for r.Kind == store.Array {
		r = r.Elems[0]
		depth++
	}
	if r.Str != string(errReplyDepth) || depth != replyDepth {
		t.Fatal(depth, r)
	}
}

func TestLog(t *testing.T) {
	var got []string
	w := newWorld(t, Options{Log: func(level int, msg string) { got = append(got, string(rune('0'+level))+msg) }})
	w.eval("redis.log(redis.LOG_WARNING,'a',1,{},'b') redis.log(0,'')")
	if strings.Join(got, "|") != "3a 1 b|0" {
		t.Fatalf("%q", got)
	}
}

func TestLocalCommands(t *testing.T) {
	row := []store.Command{{Name: "role", Arity: 1, Flags: store.Local, Group: "server"}}
	for _, withLocal := range []bool{true, false} {
		opts := Options{}
		if withLocal {
			opts.Local = func(c *store.Ctx) store.Reply { return store.Str("local " + c.Cmd.Name) }
		}
		w := newWorld(t, opts)
		w.table = store.NewTable(store.Commands(), w.e.Commands(), testCommands(), row)
		w.e.Bind(w.table)
		r := w.eval("return redis.call('role')")
		if withLocal && r.Str != "local role" || !withLocal && !strings.Contains(r.Str, msgNotAllowed) {
			t.Error(withLocal, r)
		}
	}
}

package luavm

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// canary describes what scripts share in a Lua state: the contents of the objects (shape) and their identities (objects).
type canary struct {
	shape   strings.Builder
	objects []lua.LValue
	seen    map[lua.LValue]int
}

func newCanary(e *Engine) *canary {
	c := &canary{seen: map[lua.LValue]int{}}
	roots := []lua.LValue{
		e.globals, e.gmeta, e.protect, e.libEnv, e.libMeta, e.libRun, e.libLoad, e.loadingRedis,
		e.guard, e.ext.Null, e.keyList, e.argList, e.L.Env, e.L.G.Global,
	}
	// gopher-lua does not export the metatables of strings, numbers and so on.
	field := reflect.ValueOf(e.L.G).Elem().FieldByName("builtinMts")
	shared := *(*map[int]lua.LValue)(unsafe.Pointer(field.UnsafeAddr()))
	for kind := range int(lua.LTChannel) + 1 {
		if mt, ok := shared[kind]; ok {
			roots = append(roots, mt)
		}
	}
	for _, v := range roots {
		fmt.Fprintf(&c.shape, "\nroot %s", c.describe(v))
	}
	for i := 0; i < len(c.objects); i++ {
		fmt.Fprintf(&c.shape, "\n#%d", i)
		c.visit(c.objects[i])
	}
	fmt.Fprintf(&c.shape, "\ncjson %+v, top %d, running %d, libraries %d", e.ext.JSON, e.L.GetTop(), e.state.Load(), len(e.libs))
	return c
}

func (c *canary) describe(v lua.LValue) string {
	switch v.(type) {
	case *lua.LTable, *lua.LFunction, *lua.LUserData:
		n, ok := c.seen[v]
		if !ok {
			n = len(c.objects)
			c.seen[v], c.objects = n, append(c.objects, v)
		}
		return fmt.Sprintf("%s#%d", v.Type(), n)
	}
	return fmt.Sprintf("%s %v", v.Type(), v)
}

func (c *canary) visit(v lua.LValue) {
	switch v := v.(type) {
	case *lua.LTable:
		fmt.Fprintf(&c.shape, " metatable %s", c.describe(v.Metatable))
		var pairs [][2]lua.LValue
		v.ForEach(func(k, x lua.LValue) { pairs = append(pairs, [2]lua.LValue{k, x}) })
		slices.SortFunc(pairs, func(a, b [2]lua.LValue) int { return strings.Compare(a[0].String(), b[0].String()) })
		for _, pair := range pairs {
			fmt.Fprintf(&c.shape, "\n  %s = %s", c.describe(pair[0]), c.describe(pair[1]))
		}
	case *lua.LFunction:
		fmt.Fprintf(&c.shape, " go %v env %s", v.IsG, c.describe(v.Env))
		for _, up := range v.Upvalues {
			fmt.Fprintf(&c.shape, " upvalue %s", c.describe(up.Value()))
		}
	}
}

// check compares a Lua state with its earlier description c, and with the description of a fresh state.
func (c *canary) check(t *testing.T, w *world, state *lua.LState, fresh, script string) (next *canary) {
	t.Helper()
	if *interp.OpenPlace(w.e.L) != nil {
		t.Fatalf("a variable of this script is still in its register:\n%.500s", script)
	}
	w.eval("local t = {} return 1") // empties KEYS and ARGV, as every script does first
	now := newCanary(w.e)
	if now.shape.String() != fresh {
		t.Fatalf("something remains of this script:\n%.500s\n%s", script, firstDifference(fresh, now.shape.String()))
	}
	if w.e.L == state && !slices.Equal(now.objects, c.objects) {
		t.Fatalf("an object was replaced by this script:\n%.500s", script)
	}
	return now
}

func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d was %q and is %q", i, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines were %d", len(b), len(a))
}

// TestCanary: after every script, the next one finds the same shared objects, with the contents of a fresh engine.
func TestCanary(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	fresh := newCanary(New(Options{})).shape.String()
	w := newWorld(t, Options{Now: tick(), MemoryLimit: 16 << 20})
	w.e.SetTimeLimit(1e9)
	last := newCanary(w.e)
	for _, file := range files {
		for _, c := range readCases(t, file) {
			w.reset()
			for _, cmd := range c.Before {
				w.do(2, cmd...)
			}
			state := w.e.L
			w.do(c.Resp, c.command()...)
			last = last.check(t, w, state, fresh, c.Script)
		}
	}
}

// TestCanaryOfFunctions: library code that tries to change shared objects changes none, neither while the library loads nor when
// its functions run.
func TestCanaryOfFunctions(t *testing.T) {
	fresh := newCanary(New(Options{})).shape.String()
	w := newWorld(t, Options{})
	last := newCanary(w.e)
	play := func(code string) {
		state := w.e.L
		w.do(2, "function", "load", "#!lua name=l\n"+code)
		if r := w.do(2, "fcall", "f", "0"); r.Str != "Attempt to modify a readonly table" {
			t.Errorf("%s\n got %q", code, r.Str)
		}
		w.do(2, "function", "flush")
		clear(w.e.libs)
		last = last.check(t, w, state, fresh, code)
	}
	for _, target := range []string{"_G", "redis", "string", "getmetatable('')", "getmetatable(_G)"} {
		for _, write := range []string{
			"setmetatable({},{__newindex=T}).x=1", "setmetatable({},{__newindex=T}).tostring=1", "T.x=1", "T.call=1",
			"rawset(T,'x',1)", "setmetatable(T,{})", "setmetatable(T,nil)", "table.insert(T,1)", "setmetatable({},{__newindex=T})[1]=1",
			"setmetatable({},{__newindex=setmetatable({},{__newindex=T})}).x=1", "setmetatable({},{__newindex=function() T.x=1 end}).x=1",
		} {
			play("redis.register_function('f', function() local T = " + target + " local ok, e = pcall(function() " +
				write + " end) return (e:gsub('^.*: ','')) end)")
		}
	}
	for _, write := range []string{"x=1", "redis.call=1", "redis.register_function=nil", "function redis.log() end"} {
		if r := w.do(2, "function", "load", "#!lua name=l\n"+write); !strings.Contains(r.Str, "Attempt to modify a readonly table") {
			t.Errorf("%s\n got %q", write, r.Str)
		}
		last = last.check(t, w, w.e.L, fresh, write)
	}
}

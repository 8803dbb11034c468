package luavm

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// emptyLocal returns the name of a variable that holds nothing, not even nil. The variable is in scope in the running function.
func emptyLocal(L *lua.LState) string {
	f := interp.TopFrame(L)
	if f == nil || f.Fn.IsG {
		return ""
	}
	registers, n := *interp.Registers(L), 0
	for _, l := range f.Fn.Proto.DbgLocals {
		if pc := f.Pc - 1; l.StartPc <= pc && pc < l.EndPc {
			if registers[f.LocalBase+n] == nil {
				return fmt.Sprintf("%s on line %d", l.Name, f.Line())
			}
			n++
		}
	}
	return ""
}

// TestLocalsHoldValues: before every instruction of a script, each variable in scope holds a value.
func TestLocalsHoldValues(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	w := newWorld(t, Options{})
	looks, now, found := 0, time.Duration(0), map[string]bool{}
	w.e.opts.Now = func() time.Duration {
		looks++
		if name := emptyLocal(w.e.running()); name != "" {
			found[name] = true
		}
		now += 2 * slowLook // so that every instruction is looked at
		return now
	}
	for _, file := range files {
		if filepath.Base(file) == "depth.txt" {
			continue // this script takes long, and does nothing but nest
		}
		for _, c := range readCases(t, file) {
			clear(found)
			w.reset()
			for _, cmd := range c.Before {
				w.do(2, cmd...)
			}
			c.Script = "for i=1,1000 do end " + c.Script
			w.do(c.Resp, c.command()...)
			for name := range found {
				t.Errorf("%s\nnothing is in %s", c.Script, name)
			}
		}
	}
	if looks < 50000 {
		t.Errorf("%d looks: it tests nothing", looks)
	}
}

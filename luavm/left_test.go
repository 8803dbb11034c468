package luavm

import (
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// TestScriptsLeaveNoValues: when a script or function has ended, the engine refers to none of its values.
func TestScriptsLeaveNoValues(t *testing.T) {
	w := newWorld(t, Options{})
	w.mustLoad(t, "#!lua name=l\nredis.register_function('f', function(k, a) return a[1] end)"+
		" redis.register_function('e', function(k, a) loadstring('error(1)', '='..a[1])() end)")
	large := strings.Repeat("x", 1<<10)
	many := make([]string, 300)
	for _, args := range [][]string{
		{"eval", "return ARGV[1]", "1", large, large},
		{"eval", "local a = ARGV[1] .. 'y' return #a", "1", large, large},
		{"eval", "for i = 1, 3 do ARGV[i] = string.rep('x', 2^20) end ARGV.a = ARGV[1] KEYS[ARGV[1]] = 1 return 1", "0"},
		{"eval", "setmetatable(KEYS, {__index = ARGV}) table.remove(ARGV) return 1", "0", "a", large},
		{"eval", "loadstring('error(1)', '='..string.rep('n', 2^20))()", "0"},
		{"eval", "pcall(loadstring('error(1)', '='..string.rep('n', 2^20))) return 1", "0"},
		{"eval", "local s = string.rep('x', 2^20) while true do s = s .. s end", "1", "k", large},
		{"eval", "redis.call('set', 'k', ARGV[1]) redis.call('nosuch', ARGV[1])", "0", large},
		append([]string{"eval", "local a = ARGV[1] .. '' return redis.call('exists', unpack(ARGV))", "0"}, many...),
		{"fcall", "f", "1", large, large},
		{"fcall", "e", "0", large},
		{"function", "load", "#!lua name=m\nlocal n = 'n' while #n < 2^12 do n = n .. n end\nerror(n)"},
	} {
		w.do(2, args...)
		for name, list := range map[string]*lua.LTable{"KEYS": w.e.keyList, "ARGV": w.e.argList} {
			elems := interp.ArrayPart(list)
			for _, v := range elems[:cap(elems)] {
				if v != nil {
					t.Errorf("%.80q leaves %.20q in %s", args, v, name)
					break
				}
			}
			if interp.Slots(list) > 0 || list.Metatable != lua.LNil || cap(elems) > keepList {
				t.Errorf("%.80q leaves %d slots in %s", args, interp.Slots(list), name)
			}
		}
		if len(w.e.errSource) > 64 || len(w.e.sha) > 64 {
			t.Errorf("%.80q leaves %d bytes of a chunk's name", args, len(w.e.errSource))
		}
		if n, bytes := cap(w.e.args), cap(w.e.argBuf); n > keepList || bytes > keepBuffer {
			t.Errorf("%.80q leaves room for %d arguments of %d bytes", args, n, bytes)
		}
		regs := *interp.Registers(w.e.L)
		for i, v := range regs[:cap(regs)] {
			if s, ok := v.(lua.LString); ok {
				t.Errorf("%.80q leaves %.20q in register %d", args, s, i)
				break
			}
		}
		if w.e.present.args != nil || w.e.present.shown != nil {
			t.Errorf("%.80q leaves its call for FUNCTION STATS", args)
		}
	}
}

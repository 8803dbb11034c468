package compile

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

func nobody(Progress) {}

// TestLimits: the compiler refuses sources that are too long or too deeply nested, or whose compiling takes too long.
func TestLimits(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(32 << 20)) // nothing here needs more of Go's stack
	for _, c := range [][2]string{
		{"return " + strings.Repeat("(", 1e5), "too many syntax levels"},
		{"return " + strings.Repeat("{", 1e5), "too many syntax levels"},
		{"return " + strings.Repeat("- ", 1e5) + "1", "too many syntax levels"},
		{"return " + strings.Repeat("not ", 1e5) + "1", "too many syntax levels"},
		{"return 1" + strings.Repeat("..1", 1e5), "malformed number"},
		{"return ''" + strings.Repeat("..''", 1e5), "too many syntax levels"},
		{"local a return a" + strings.Repeat(" or a", 1e5), "too complex"},
		{strings.Repeat("do ", 1e5), "too many syntax levels"},
		{"local a if a then " + strings.Repeat("elseif a then ", 3e4) + " end", "too complex"},
		{"local a=1 while a do " + strings.Repeat("a=a+1 ", 1.4e5) + "end", "control structure too long"},
		{strings.Repeat("local function f() ", 3e4), "too many syntax levels"},
		{strings.Repeat("x", maxSourceBytes+1), "longer than"},
	} {
		if _, err := Chunk(c[0], "@x", 0, nobody); err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%.100s\n got %v\nwant an error with %q", c[0], err, c[1])
		}
	}
	const deep = "do do do end end end"
	for nested, fits := range map[int]bool{0: true, maxLevels - 4: true, maxLevels - 3: false} {
		if _, err := Chunk(deep, "@x", nested, nobody); (err == nil) != fits {
			t.Errorf("within %d calls: %v", nested, err)
		}
	}
}

// TestWorkGrowsWithTheText: each token costs only a few steps, even in sources that make the compiler search much.
func TestWorkGrowsWithTheText(t *testing.T) {
	var names []string
	for i := range maxLocals - maxUpvalues - 5 {
		names = append(names, fmt.Sprintf("v%03d", i))
	}
	many := "local " + strings.Join(names, ",") + " local f=function() "
	few := "local " + strings.Join(names[:maxUpvalues-1], ",") + " "
	uses := strings.Join(names[:maxUpvalues-1], "=1 ") + "=1 "
	for _, c := range []struct {
		head, body, tail string
		nested           int
	}{
		{many, "w=w ", "end ", 90},
		{"local function f() ", "v=v ", "end ", 190},
		{"do ", "f(function() v=1 end)", "end ", 190},
		{"do ", "function f() " + uses + "end ", "end ", 1},
	} {
		head, tail := few+"local v "+strings.Repeat(c.head, c.nested), strings.Repeat(c.tail, c.nested)
		n := (maxSourceBytes - len(head) - len(tail)) / len(c.body)
		source := head + strings.Repeat(c.body, n) + tail
		steps := 0
		if _, err := Chunk(source, "@x", 0, func(p Progress) { steps += p.Steps }); err != nil {
			t.Errorf("%.50s: %v", c.body, err)
		}
		if steps < len(source)/5 || steps > 2*len(source) {
			t.Errorf("%.50s: %d steps for %d bytes", c.body, steps, len(source))
		}
	}
}

// TestWatchEndsTheCompiling: Chunk passes on the panic of watch.
func TestWatchEndsTheCompiling(t *testing.T) {
	defer func() {
		if p := recover(); p != "enough" {
			t.Errorf("%v", p)
		}
	}()
	_, err := Chunk(strings.Repeat("a=1 ", watchSteps), "@x", 0, func(Progress) { panic("enough") })
	t.Errorf("went on: %v", err)
}

// TestNames: errors name a source as C Lua does.
func TestNames(t *testing.T) {
	long := strings.Repeat("n", 200)
	for name, want := range map[string]string{
		"@user_script":        "user_script:1: ",
		"=(load)":             "(load):1: ",
		"x =":                 `[string "x ="]:1: `,
		"one\ntwo":            `[string "one..."]:1: `,
		"@" + long:            "..." + long[:syntaxIDSize-len(" '...' ")-1] + ":1: ",
		"=" + long:            long[:syntaxIDSize-1] + ":1: ",
		long + " and further": `[string "` + long[:syntaxIDSize-len(` [string "..."] `)-1] + `..."]:1: `,
	} {
		if _, err := Chunk("x =", name, 0, nobody); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

// FuzzChunk: the compiler refuses a text with an error of one line, or makes instructions that stay within their function.
func FuzzChunk(f *testing.F) {
	for _, source := range []string{
		"local a, b, c = 1, 'x', nil a, b = b, a return a, b, c",
		"local t = {1, 2, x = 3, [4] = {}} t.x, t[1] = t[1], t.x return #t, -t[1], not t.x",
		"for i = 1, 10, 2 do if i % 3 == 0 then break end end",
		"for k, v in pairs(KEYS) do local function f(...) k = v return ..., f end end",
		"local n = 0 repeat local m = n + 1 n = m until m >= 3 or function() return m end",
		"while a and (b or c) do a = b == c and a ~= nil or b < c end",
		"function a.b:c(x, ...) local arg = {...} return self, x, select('#', ...) end",
		"return ('x'):rep(3) .. 1 .. [[\nlong]] .. \"\\065\\n\", 0x10, 1e3, 2 ^ 3 ^ 2",
		"local a, b = 1, 2 a = ... local c = (...) a, b = b, ... return a, ..., b % c ^ a",
		"local a <", "x = ]]", "--[==[ open", "return '\\300'", "goto = 1 return goto", "\x1bLua", "x\x00y",
		"return {" + strings.Repeat("f(),", 60) + "...}",
	} {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		p, err := Chunk(source, "@x", 0, nobody)
		if err != nil {
			if line, rest, ok := strings.Cut(strings.TrimPrefix(err.Error(), "x:"), ": "); !ok || line == "" || strings.Trim(line, "0123456789") != "" || rest == "" {
				t.Errorf("%q", err)
			}
			return
		}
		checkFunction(t, p)
		for fault := range checkRegisters(p) {
			t.Error(fault)
		}
	})
}

// checkFunction checks the instructions of a function: the registers, constants and so on that they name must exist.
func checkFunction(t *testing.T, p *lua.FunctionProto) {
	register := func(x int) bool { return x < int(p.NumUsedRegisters) }
	constant := func(x int) bool { return x < len(p.Constants) }
	operand := func(x int) bool {
		if x&interp.RKConst != 0 {
			return constant(x &^ interp.RKConst)
		}
		return register(x)
	}
	if n := len(p.Code); n == 0 || interp.OpOf(p.Code[n-1]) != lua.OP_RETURN || len(p.DbgSourcePositions) != n ||
		len(interp.StringConstants(p)) != len(p.Constants) || len(p.DbgUpvalues) != int(p.NumUpvalues) {
		t.Fatalf("%d instructions, %d lines, %d constants, %d of them strings", n, len(p.DbgSourcePositions), len(p.Constants), len(interp.StringConstants(p)))
	}
	for pc := 0; pc < len(p.Code); pc++ {
		inst, at := p.Code[pc], pc
		a, b, c := interp.ArgA(inst), interp.ArgB(inst), interp.ArgC(inst)
		ok := register(a)
		switch interp.OpOf(inst) {
		case lua.OP_JMP, lua.OP_FORLOOP, lua.OP_FORPREP:
			to := pc + 1 + interp.ArgSbx(inst)
			ok = ok && to >= 0 && to < len(p.Code)
		case lua.OP_LOADK, lua.OP_GETGLOBAL, lua.OP_SETGLOBAL:
			ok = ok && constant(interp.ArgBx(inst))
		case lua.OP_GETUPVAL, lua.OP_SETUPVAL:
			ok = ok && b < int(p.NumUpvalues)
		case lua.OP_MOVE, lua.OP_LOADNIL, lua.OP_NOT, lua.OP_TESTSET:
			ok = ok && register(b)
		case lua.OP_GETTABLE, lua.OP_GETTABLEKS, lua.OP_SELF:
			ok = ok && register(b) && operand(c)
		case lua.OP_CONCAT:
			ok = ok && register(b) && register(c) && b < c
		case lua.OP_EQ, lua.OP_LT, lua.OP_LE:
			ok = operand(b) && operand(c) && pc+1 < len(p.Code) && interp.OpOf(p.Code[pc+1]) == lua.OP_JMP
		case lua.OP_SETTABLE, lua.OP_SETTABLEKS, lua.OP_ADD, lua.OP_SUB, lua.OP_MUL, lua.OP_DIV, lua.OP_MOD, lua.OP_POW:
			ok = ok && operand(b) && operand(c)
		case lua.OP_UNM, lua.OP_LEN:
			ok = ok && operand(b)
		case lua.OP_CALL, lua.OP_TAILCALL:
			ok = ok && (b == 0 || register(a+b-1))
		case lua.OP_CLOSURE:
			if ok = ok && interp.ArgBx(inst) < len(p.FunctionPrototypes); ok {
				pc += int(p.FunctionPrototypes[interp.ArgBx(inst)].NumUpvalues) // words that say where they are
			}
		case lua.OP_SETLIST:
			if c == 0 {
				pc++ // a word that counts
			}
		}
		if !ok || pc >= len(p.Code) {
			t.Fatalf("instruction %d of %d: %#x, operation %d", at, len(p.Code), inst, interp.OpOf(inst))
		}
	}
	for _, inner := range p.FunctionPrototypes {
		checkFunction(t, inner)
	}
}

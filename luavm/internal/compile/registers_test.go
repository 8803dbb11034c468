package compile

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// registers says which registers surely hold a value, and where an open list of results begins (or -1). gopher-lua clears some registers.
type registers struct {
	held map[int]bool
	open int
}

func (r registers) clone() registers { return registers{maps.Clone(r.held), r.open} }

func (r registers) set(from, to int) {
	for i := from; i <= to; i++ {
		r.held[i] = true
	}
}

// top clears the registers from n on.
func (r registers) top(n int) {
	maps.DeleteFunc(r.held, func(i int, _ bool) bool { return i >= n })
}

// meet keeps only the registers that hold a value in both r and other, and reports whether r has changed.
func (r *registers) meet(other registers) (changed bool) {
	for i := range r.held {
		if !other.held[i] {
			delete(r.held, i)
			changed = true
		}
	}
	return changed
}

// flow follows the instructions of a function on all paths.
type flow struct {
	p      *lua.FunctionProto
	before map[int]*registers
	todo   []int
	faults map[string]bool
}

// checkRegisters reports each register that an instruction reads although the register may hold no value.
func checkRegisters(p *lua.FunctionProto) (faults map[string]bool) {
	f := &flow{p: p, before: map[int]*registers{}, faults: map[string]bool{}}
	start := registers{map[int]bool{}, -1}
	start.set(0, int(p.NumParameters)-1)
	if p.IsVarArg&lua.VarArgHasArg != 0 {
		start.set(0, int(p.NumParameters)) // arg
	}
	f.to(0, start)
	for len(f.todo) > 0 {
		pc := f.todo[len(f.todo)-1]
		f.todo = f.todo[:len(f.todo)-1]
		f.step(pc, f.before[pc].clone())
	}
	for _, inner := range p.FunctionPrototypes {
		maps.Copy(f.faults, checkRegisters(inner))
	}
	return f.faults
}

func (f *flow) to(pc int, r registers) {
	if at := f.before[pc]; at == nil {
		first := r.clone()
		f.before[pc] = &first
		f.todo = append(f.todo, pc)
	} else if at.meet(r) {
		f.todo = append(f.todo, pc)
	}
}

// variables returns how many variables are in scope at an instruction. They have the lowest registers.
func (f *flow) variables(pc int) (n int) {
	for _, v := range f.p.DbgLocals {
		if v.StartPc <= pc && pc < v.EndPc {
			n++
		}
	}
	return n
}

// step runs the instruction at pc, and goes on with those that may follow.
func (f *flow) step(pc int, r registers) {
	inst := f.p.Code[pc]
	a, b, c := interp.ArgA(inst), interp.ArgB(inst), interp.ArgC(inst)
	reads := func(from, to int) {
		for i := from; i <= to; i++ {
			if !r.held[i] {
				f.faults[fmt.Sprintf("line %d: instruction %d (operation %d) reads register %d", f.p.DbgSourcePositions[pc], pc, interp.OpOf(inst), i)] = true
			}
		}
	}
	operand := func(x int) {
		if x&interp.RKConst == 0 {
			reads(x, x)
		}
	}
	list := func(from, n int) { // of n values, or all up to the end of an open list
		if n < 0 {
			n = r.open - from
		}
		reads(from, from+n-1)
		r.open = -1
	}
	results := func(from, n int) { // of a call or vararg
		r.top(from)
		if r.open = from; n >= 0 {
			r.set(from, from+n-1)
			r.open = -1
		}
	}
	next := pc + 1
	switch interp.OpOf(inst) {
	case lua.OP_MOVE:
		reads(b, b)
		r.set(a, a)
	case lua.OP_LOADNIL:
		r.set(a, b)
	case lua.OP_LOADBOOL:
		r.set(a, a)
		if c != 0 {
			next++
		}
	case lua.OP_GETTABLE, lua.OP_GETTABLEKS:
		reads(b, b)
		operand(c)
		r.set(a, a)
	case lua.OP_SETGLOBAL, lua.OP_SETUPVAL:
		reads(a, a)
	case lua.OP_SETTABLE, lua.OP_SETTABLEKS:
		reads(a, a)
		operand(b)
		operand(c)
	case lua.OP_SELF:
		reads(b, b)
		operand(c)
		r.set(a, a+1)
	case lua.OP_MOD, lua.OP_POW:
		if variables := f.variables(pc); min(b, c) < variables || max(b, c) >= interp.RKConst || b == c {
			f.faults[fmt.Sprintf("line %d: the hook would change an operand of instruction %d", f.p.DbgSourcePositions[pc], pc)] = true
		}
		reads(b, b)
		reads(c, c)
		r.set(a, a)
	case lua.OP_ADD, lua.OP_SUB, lua.OP_MUL, lua.OP_DIV:
		operand(b)
		operand(c)
		r.set(a, a)
	case lua.OP_LEN:
		if b < f.variables(pc) || b >= interp.RKConst {
			f.faults[fmt.Sprintf("line %d: the hook would change the operand of instruction %d", f.p.DbgSourcePositions[pc], pc)] = true
		}
		reads(b, b)
		r.set(a, a)
	case lua.OP_UNM, lua.OP_NOT:
		operand(b)
		r.set(a, a)
	case lua.OP_CONCAT:
		reads(b, c)
		r.set(a, a)
	case lua.OP_JMP:
		next += interp.ArgSbx(inst)
	case lua.OP_EQ, lua.OP_LT, lua.OP_LE:
		operand(b)
		operand(c)
		f.to(pc+2, r)
	case lua.OP_TEST:
		reads(a, a)
		f.to(pc+2, r)
	case lua.OP_TESTSET:
		reads(b, b)
		f.to(pc+2, r)
		r.set(a, a)
	case lua.OP_CALL, lua.OP_TAILCALL:
		reads(a, a)
		list(a+1, b-1)
		results(a, c-1)
	case lua.OP_VARARG:
		results(a, b-1)
	case lua.OP_RETURN:
		list(a, b-1)
		return
	case lua.OP_FORPREP:
		reads(a, a+2)
		next += interp.ArgSbx(inst)
	case lua.OP_FORLOOP:
		reads(a, a+2)
		again := r.clone()
		again.set(a+3, a+3)
		f.to(next+interp.ArgSbx(inst), again)
		r.top(a + 1)
	case lua.OP_TFORLOOP:
		reads(a, a+2)
		r.top(a + 3)
		r.set(a+3, a+2+c)
		f.to(pc+2, r)
	case lua.OP_SETLIST:
		reads(a, a)
		list(a+1, map[bool]int{true: -1, false: b}[b == 0])
		if c == 0 {
			next++
		}
	case lua.OP_CLOSURE:
		r.set(a, a)
		for range f.p.FunctionPrototypes[interp.ArgBx(inst)].NumUpvalues {
			if word := f.p.Code[next]; interp.OpOf(word) == lua.OP_MOVE {
				reads(interp.ArgB(word), interp.ArgB(word))
			}
			next++
		}
	case lua.OP_CLOSE, lua.OP_NOP:
	default: // LOADK, GETGLOBAL, GETUPVAL, NEWTABLE
		r.set(a, a)
	}
	f.to(next, r)
}

// programs returns all programs of the tests of luavm.
func programs(t *testing.T) (list []string) {
	files, err := filepath.Glob("../../testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no programs", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var cases []struct{ Script string }
		if err := json.Unmarshal(data, &cases); err != nil {
			continue // it holds something else
		}
		for _, c := range cases {
			list = append(list, c.Script)
		}
	}
	return list
}

// TestInstructionsReadWhatIsThere: on no path does an instruction read a register that an instruction before it has cleared.
func TestInstructionsReadWhatIsThere(t *testing.T) {
	all := programs(t)
	if len(all) < 1000 {
		t.Errorf("only %d programs", len(all))
	}
	// These programs take one value of many in every way, and put it into every place where it can go.
	for _, value := range []string{"...", "(...)", "f()", "(f())", "t:f(...)", "f(...)", "not ...", "-(...)", "#...", "... + 1", "... .. c", "... and c",
		"c or ...", "(...).x", "(...)[1]", "({...})[1]", "(function(...) return ... end)(...)", "... == c", "... % a", "a ^ ...", "a % b ^ c", "'5' % a", "2 ^ f()", "..., 1", "1, ...", "..., ...", "f(), ..."} {
		for _, place := range []string{"a = %s", "a, b = %s", "t.x = %s", "t[b] = %s", "t.x, a = %s", "a, t[a] = %s", "g = %s", "u = %s", "local d = %s", "local d, e = %s", "t = {%s}",
			"t = {1, %s, x = 2}", "t = {x = (%s), %[1]s}", "a = f(b, %s)", "if (%s) then b = a end", "while (%s) do a = b break end",
			"repeat a = (%s) until (%[1]s)", "for i = (%s), 2 do a = %[1]s b = i end", "for k, v in %s do a = %[1]s b = k end", "do local d = b a = %s b = d end",
			"b = function() return a, b end a = %s", "a = (%s) or (%[1]s)", "a = (%s) and b"} {
			all = append(all, "local f, t, u = f, {}, 1 local function m(...) local a, b, c = 1, 2, 3 "+fmt.Sprintf(place, value)+" return a, b, c, t, f, u end return m(...)")
		}
	}
	compiled := 0
	for _, source := range all {
		p, err := Chunk(source, "@x", 0, nobody)
		if err != nil {
			continue
		}
		compiled++
		for fault := range checkRegisters(p) {
			t.Errorf("%s\n%s", source, fault)
		}
	}
	if compiled < len(all)*2/3 {
		t.Errorf("of %d programs %d were compiled", len(all), compiled)
	}
}

// The check finds this fault: the vararg of `a = ...` goes directly into the register of a, and so clears b above it.
func TestClearedRegistersAreFound(t *testing.T) {
	p, err := Chunk("local a, b = 1, 2 a = ... return b", "@x", 0, nobody)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Code {
		if interp.OpOf(p.Code[i]) == lua.OP_VARARG {
			interp.SetA(&p.Code[i], 0)
		}
	}
	var found []string
	for fault := range checkRegisters(p) {
		found = append(found, fault)
	}
	if all := strings.Join(found, "\n"); !strings.HasSuffix(all, "reads register 1") && !strings.Contains(all, "reads register 1\n") {
		t.Errorf("found %q", found)
	}
}

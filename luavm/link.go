package luavm

import (
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// Globals such as redis.call and KEYS never change (sandbox.go), so link makes them constants when it links a script with a Lua state.
// The instructions keep their number and order, because error texts find lines and names by index.

// link returns a copy of p in which constants replace reads of globals and of fields of library tables.
func (e *Engine) link(p *lua.FunctionProto) *lua.FunctionProto {
	l := *p
	l.Code = slices.Clone(p.Code)
	l.Constants = slices.Clip(p.Constants)
	names := slices.Clip(interp.StringConstants(p))
	type linked struct {
		v    lua.LValue
		name string
	}
	known := map[linked]int{}
	put := func(at int, v lua.LValue, kind, name string) {
		switch v.(type) {
		case *lua.LTable, *lua.LFunction:
			name = kind + " " + name
			i, ok := known[linked{v, name}]
			if !ok {
				if i = len(l.Constants); i > interp.MaxBx {
					return
				}
				known[linked{v, name}] = i
				l.Constants = append(l.Constants, v)
				names = append(names, name)
			}
			l.Code[at] = interp.InstABx(lua.OP_LOADK, interp.ArgA(l.Code[at]), i)
		}
	}
	targets := jumpTargets(p)
	// Operands of CLOSURE and SETLIST in p.Code look like a MOVE or GETUPVAL, so the loop leaves them alone.
	for at, inst := range p.Code {
		switch interp.OpOf(inst) {
		case lua.OP_GETGLOBAL:
			name := constString(p, interp.ArgBx(inst))
			put(at, e.globals.RawGetString(name), "global", name)
		case lua.OP_GETTABLEKS:
			if lib := e.libraryOf(p, at); lib != nil && !targets[at] {
				name := constString(p, interp.ArgC(inst)&^interp.RKConst)
				put(at, lib.RawGetString(name), "field", name)
			}
		}
	}
	interp.SetStringConstants(&l, names)
	l.FunctionPrototypes = make([]*lua.FunctionProto, len(p.FunctionPrototypes))
	for i, inner := range p.FunctionPrototypes {
		l.FunctionPrototypes[i] = e.link(inner)
	}
	return &l
}

// libraryOf returns the library table from which the instruction p.Code[at] reads a field, if
// the instruction before it loads that table; nil otherwise.
func (e *Engine) libraryOf(p *lua.FunctionProto, at int) *lua.LTable {
	if at == 0 {
		return nil
	}
	before := p.Code[at-1]
	if interp.OpOf(before) != lua.OP_GETGLOBAL || interp.ArgA(before) != interp.ArgB(p.Code[at]) || interp.ArgC(p.Code[at])&interp.RKConst == 0 {
		return nil
	}
	lib, ok := e.globals.RawGetString(constString(p, interp.ArgBx(before))).(*lua.LTable)
	if !ok || !e.isReadonly(lib) {
		return nil
	}
	return lib
}

// linkedName returns how the script names a constant that link has added: kind is "global" or "field".
func linkedName(p *lua.FunctionProto, i int) (kind, name string) {
	switch p.Constants[i].(type) {
	case *lua.LTable, *lua.LFunction:
		kind, name, _ = strings.Cut(interp.StringConstants(p)[i], " ")
	}
	return kind, name
}

// jumpTargets returns the instructions that may run without the instruction before them.
func jumpTargets(p *lua.FunctionProto) []bool {
	targets := make([]bool, len(p.Code)+2)
	for at, inst := range p.Code {
		switch interp.OpOf(inst) {
		case lua.OP_JMP, lua.OP_FORLOOP, lua.OP_FORPREP:
			targets[at+1+interp.ArgSbx(inst)] = true
		case lua.OP_EQ, lua.OP_LT, lua.OP_LE, lua.OP_TEST, lua.OP_TESTSET, lua.OP_TFORLOOP, lua.OP_LOADBOOL:
			targets[at+2] = true
		}
	}
	return targets
}

const (
	// plainLength is how many instructions a script without the hook may have.
	plainLength = lookEvery
	// plainComparisons and plainOrders bound a plain script's comparisons: without the hook, nothing counts the time of comparing long
	// texts.
	plainComparisons, plainOrders = 32, 4
	// plainGlobals has the globals that a plain script may use: their functions run no Lua.
	plainGlobals = " ARGV KEYS cjson math redis tonumber tostring type "
)

// isPlain reports whether a script needs no hook. Most scripts of locks are plain.
//
// A plain script is short and has no jump back, so it soon ends. It has no opcode of watched (hook.go), calls no Lua function, has no
// long text, looks up fields only by constant keys, and compares little.
func isPlain(p *lua.FunctionProto) bool {
	long := func(v lua.LValue) bool { text, ok := v.(lua.LString); return ok && len(text) >= longText }
	if len(p.Code) > plainLength || slices.ContainsFunc(p.Constants, long) {
		return false
	}
	comparisons, orders := 0, 0
	for _, inst := range p.Code {
		op := interp.OpOf(inst)
		switch op {
		case lua.OP_EQ:
			comparisons++
		case lua.OP_LT, lua.OP_LE:
			orders++
		}
		switch {
		case watched>>op&1 != 0, op == lua.OP_SELF, op == lua.OP_GETTABLE && interp.ArgC(inst)&interp.RKConst == 0,
			op == lua.OP_JMP && interp.ArgSbx(inst) < 0,
			op == lua.OP_GETGLOBAL && !strings.Contains(plainGlobals, " "+constString(p, interp.ArgBx(inst))+" "):
			return false
		}
	}
	return comparisons <= plainComparisons && orders <= plainOrders
}

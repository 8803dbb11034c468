package luavm

import (
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"lockstep/luavm/internal/interp"
)

// Scripts look the same globals up in every run: redis, its call, KEYS and ARGV.
// None of them ever changes (sandbox.go), so they become constants of a script when
// it is linked with a Lua state. The instructions keep their number and order, by
// which errors find their lines and the names of variables.

// link returns a function of scripts with what it takes from the globals put in.
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
	// Words that belong to the instruction before them look like MOVE or GETUPVAL.
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
	l.FunctionPrototypes = nil
	for _, inner := range p.FunctionPrototypes {
		l.FunctionPrototypes = append(l.FunctionPrototypes, e.link(inner))
	}
	return &l
}

// libraryOf returns the library that the instruction before has loaded for the one
// at a place, which reads a field of it.
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

// linkedName is how a script calls a constant that was put in by link.
func linkedName(p *lua.FunctionProto, i int) (kind, name string) {
	switch p.Constants[i].(type) {
	case *lua.LTable, *lua.LFunction:
		kind, name, _ = strings.Cut(interp.StringConstants(p)[i], " ")
	}
	return kind, name
}

// jumpTargets are the instructions that may run without the one before.
func jumpTargets(p *lua.FunctionProto) map[int]bool {
	targets := map[int]bool{}
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
	// plainLength is how many instructions run unwatched: between two looks at the
	// limits there are as many.
	plainLength = lookEvery
	// plainGlobals are what such a script may use: functions that run no Lua.
	plainGlobals = " ARGV KEYS cjson math redis tonumber tostring type "
)

// isPlain reports whether a script needs no hook: it has no instruction that the hook
// would look at, among which are those that make functions and begin a numeric for, and
// no jump back, so it ends after as many steps. Nor has it methods of strings, which make
// long ones. Most scripts of locks are plain.
func isPlain(p *lua.FunctionProto) bool {
	if len(p.Code) > plainLength {
		return false
	}
	for _, inst := range p.Code {
		op := interp.OpOf(inst)
		switch {
		case watched>>op&1 != 0, op == lua.OP_SELF, op == lua.OP_JMP && interp.ArgSbx(inst) < 0,
			op == lua.OP_GETGLOBAL && !strings.Contains(plainGlobals, " "+constString(p, interp.ArgBx(inst))+" "):
			return false
		}
	}
	return true
}

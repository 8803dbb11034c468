package luavm

import (
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"
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
	names := slices.Clip(stringConstants(p))
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
				if i = len(l.Constants); i > maxBx {
					return
				}
				known[linked{v, name}] = i
				l.Constants = append(l.Constants, v)
				names = append(names, name)
			}
			l.Code[at] = instABx(lua.OP_LOADK, argA(l.Code[at]), i)
		}
	}
	targets := jumpTargets(p)
	// Words that belong to the instruction before them look like MOVE or GETUPVAL.
	for at, inst := range p.Code {
		switch opOf(inst) {
		case lua.OP_GETGLOBAL:
			name := constString(p, argBx(inst))
			put(at, e.globals.RawGetString(name), "global", name)
		case lua.OP_GETTABLEKS:
			if lib := e.libraryOf(p, at); lib != nil && !targets[at] {
				name := constString(p, argC(inst)&^rkConst)
				put(at, lib.RawGetString(name), "field", name)
			}
		}
	}
	setStringConstants(&l, names)
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
	if opOf(before) != lua.OP_GETGLOBAL || argA(before) != argB(p.Code[at]) || argC(p.Code[at])&rkConst == 0 {
		return nil
	}
	lib, ok := e.globals.RawGetString(constString(p, argBx(before))).(*lua.LTable)
	if !ok || !e.isReadonly(lib) {
		return nil
	}
	return lib
}

// linkedName is how a script calls a constant that was put in by link.
func linkedName(p *lua.FunctionProto, i int) (kind, name string) {
	switch p.Constants[i].(type) {
	case *lua.LTable, *lua.LFunction:
		kind, name, _ = strings.Cut(stringConstants(p)[i], " ")
	}
	return kind, name
}

// jumpTargets are the instructions that may run without the one before.
func jumpTargets(p *lua.FunctionProto) map[int]bool {
	targets := map[int]bool{}
	for at, inst := range p.Code {
		switch opOf(inst) {
		case lua.OP_JMP, lua.OP_FORLOOP, lua.OP_FORPREP:
			targets[at+1+argSbx(inst)] = true
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
		op := opOf(inst)
		switch {
		case watched>>op&1 != 0, op == lua.OP_SELF, op == lua.OP_JMP && argSbx(inst) < 0,
			op == lua.OP_GETGLOBAL && !strings.Contains(plainGlobals, " "+constString(p, argBx(inst))+" "):
			return false
		}
	}
	return true
}

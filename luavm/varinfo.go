package luavm

import (
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// reword turns an error text of gopher-lua's interpreter into C Lua 5.1's text for
// the same error. It returns unknown texts unchanged.
func (e *Engine) reword(L *lua.LState, msg string) string {
	f := interp.TopFrame(L)
	if f == nil {
		return msg
	}
	if f.Fn.IsG {
		return e.rewordInFunction(L, f, msg)
	}
	pos := e.where(L, 0)
	text := strings.TrimPrefix(msg, pos)
	switch {
	case strings.HasPrefix(text, "attempt to index a non-table object("):
		return pos + e.indexError(L, f, text)
	case text == "attempt to call a non-function object":
		return pos + e.callError(L, f)
	case strings.HasPrefix(text, "cannot perform concat"):
		return pos + e.concatError(L, f, text)
	case strings.HasPrefix(text, "cannot perform "), text == "__unm undefined":
		return pos + e.arithError(L, f)
	case text == "__len undefined":
		b := interp.ArgB(f.Inst())
		return pos + e.typeError(f, b, f.Operand(L, b), "get length of")
	case strings.HasPrefix(text, "attempt to compare "):
		return pos + compareText(text)
	case text == "registry overflow":
		return pos + "stack overflow"
	case text == "too many recursions in gettable":
		return pos + "loop in gettable"
	case text == "too many recursions in settable":
		return pos + "loop in settable"
	}
	return msg
}

// rewordInFunction does the work of reword while a Go function runs. C Lua puts no position before such an error.
func (e *Engine) rewordInFunction(L *lua.LState, f *interp.Frame, msg string) string {
	switch {
	case strings.HasSuffix(msg, "attempt to call a non-function object"):
		v := L.Get(1)
		if f.Fn != e.guard {
			v = lua.LNil
		}
		return "attempt to call a " + auxlib.TypeName(v) + " value"
	case strings.HasSuffix(msg, "registry overflow"):
		return "stack overflow"
	}
	return msg
}

// indexError returns the error for a value that cannot be indexed. The error names the variable, unless the value came from the
// variable's metatable.
func (e *Engine) indexError(L *lua.LState, f *interp.Frame, text string) string {
	inst := f.Inst()
	reg := interp.ArgB(inst)
	switch interp.OpOf(inst) {
	case lua.OP_SETTABLE, lua.OP_SETTABLEKS:
		reg = interp.ArgA(inst)
	}
	_, rest, _ := strings.Cut(text, "(")
	kind, _, _ := strings.Cut(rest, ")")
	if v := L.Get(reg + 1); auxlib.TypeName(v) == kind {
		return e.typeError(f, reg, v, "index")
	}
	return "attempt to index a " + kind + " value"
}

func (e *Engine) callError(L *lua.LState, f *interp.Frame) string {
	inst := f.Inst()
	switch interp.OpOf(inst) {
	case lua.OP_CALL, lua.OP_TAILCALL:
		return e.typeError(f, interp.ArgA(inst), L.Get(interp.ArgA(inst)+1), "call")
	case lua.OP_TFORLOOP:
		// C Lua calls a copy of the iterator in the register A+3, but names what A+3 held before the loop.
		return e.typeError(f, interp.ArgA(inst)+3, L.Get(interp.ArgA(inst)+1), "call")
	}
	return "attempt to call a nil value"
}

func (e *Engine) arithError(L *lua.LState, f *interp.Frame) string {
	inst := f.Inst()
	reg := interp.ArgB(inst)
	if interp.OpOf(inst) != lua.OP_UNM {
		// If the first operand is a number, the error is about the second one.
		if _, ok := e.arg.ToNumber(f.Operand(L, reg)); ok {
			reg = interp.ArgC(inst)
		}
	}
	return e.typeError(f, reg, f.Operand(L, reg), "perform arithmetic on")
}

// concatError returns the error for a failed concatenation. C Lua blames the left value, unless that is a string or a number.
func (e *Engine) concatError(L *lua.LState, f *interp.Frame, text string) string {
	inst := f.Inst()
	left, right, _ := strings.Cut(strings.TrimPrefix(text, "cannot perform concat operation between "), " and ")
	returned := false // a metamethod was called: the right value is not the one in the register
	for reg := interp.ArgC(inst); reg > interp.ArgB(inst); reg-- {
		a, b := L.Get(reg), L.Get(reg+1)
		switch joined := lua.LVCanConvToString(a); {
		case hasConcat(L, a), !returned && hasConcat(L, b):
			returned = true
		case returned && (auxlib.TypeName(a) != left || joined && (right == "string" || right == "number")),
			!returned && joined && lua.LVCanConvToString(b):
		case !joined:
			return e.typeError(f, reg-1, a, "concatenate")
		case returned:
			return e.namedError(f, reg, right, "concatenate")
		default:
			return e.typeError(f, reg, b, "concatenate")
		}
	}
	return e.typeError(f, interp.ArgB(inst), L.Get(interp.ArgB(inst)+1), "concatenate")
}

func hasConcat(L *lua.LState, v lua.LValue) bool {
	return L.GetMetaField(v, "__concat").Type() == lua.LTFunction
}

// compareText rewords "attempt to compare x with y" for equal types. C Lua compares
// only the third letter of the names of types.
func compareText(text string) string {
	a, b, ok := strings.Cut(strings.TrimPrefix(text, "attempt to compare "), " with ")
	if ok && len(a) > 2 && len(b) > 2 && a[2] == b[2] {
		return "attempt to compare two " + a + " values"
	}
	return text
}

// typeError does what luaG_typeerror does: it names the variable if there is one.
func (e *Engine) typeError(f *interp.Frame, rk int, v lua.LValue, what string) string {
	return e.namedError(f, rk, auxlib.TypeName(v), what)
}

// nameCopies is how many copies of a name are made until the text of an error is complete.
const nameCopies = 3

func (e *Engine) namedError(f *interp.Frame, rk int, t, what string) string {
	if rk&interp.RKConst == 0 {
		e.workName(f)
		if kind, name := objectName(f.Fn.Proto, f.Pc-1, rk); kind != "" {
			e.charge(nameCopies * int64(len(name)))
			return "attempt to " + what + " " + kind + " '" + name + "' (a " + t + " value)"
		}
	}
	return "attempt to " + what + " a " + t + " value"
}

// workName counts the work of objectName, which reads the code of the function up to the running instruction.
func (e *Engine) workName(f *interp.Frame) { e.work((f.Pc + len(f.Fn.Proto.DbgLocals)) / inStep) }

// objectName does what C Lua's getobjname does: it returns the kind and the name of the variable in register reg.
func objectName(p *lua.FunctionProto, pc, reg int) (kind, name string) {
	if name, ok := localName(p, reg, pc); ok {
		return "local", name
	}
	at := lastWrite(p, pc, reg)
	if at < 0 {
		return "", ""
	}
	inst := p.Code[at]
	switch interp.OpOf(inst) {
	case lua.OP_GETGLOBAL:
		return "global", constString(p, interp.ArgBx(inst))
	case lua.OP_LOADK:
		return linkedName(p, interp.ArgBx(inst))
	case lua.OP_MOVE:
		if interp.ArgB(inst) < interp.ArgA(inst) {
			return objectName(p, at, interp.ArgB(inst))
		}
	case lua.OP_GETTABLE, lua.OP_GETTABLEKS:
		if c := interp.ArgC(inst); c&interp.RKConst != 0 {
			return "field", constString(p, c&^interp.RKConst)
		}
		return "field", "?"
	case lua.OP_GETUPVAL:
		if b := interp.ArgB(inst); b < len(p.DbgUpvalues) {
			return "upvalue", p.DbgUpvalues[b]
		}
	case lua.OP_SELF:
		if c := interp.ArgC(inst); c&interp.RKConst != 0 {
			return "method", constString(p, c&^interp.RKConst)
		}
	}
	return "", ""
}

func constString(p *lua.FunctionProto, i int) string {
	if s, ok := p.Constants[i].(lua.LString); ok {
		return string(s)
	}
	return "?"
}

// localName returns the name of the local variable in a register at an instruction.
func localName(p *lua.FunctionProto, reg, pc int) (string, bool) {
	n := reg
	for _, l := range p.DbgLocals {
		if l.StartPc >= pc+1 {
			break
		}
		if pc < l.EndPc {
			if n == 0 {
				return l.Name, !strings.HasPrefix(l.Name, "(")
			}
			n--
		}
	}
	return "", false
}

// lastWrite returns the last instruction before pc that set reg. Like C Lua's symbexec, it ignores code that a jump may skip.
func lastWrite(p *lua.FunctionProto, pc, reg int) int {
	last := -1
	for i := 0; i < pc; i++ {
		inst := p.Code[i]
		a := interp.ArgA(inst)
		switch interp.OpOf(inst) {
		case lua.OP_JMP, lua.OP_FORPREP:
			if to := i + 1 + interp.ArgSbx(inst); to > i && to <= pc {
				i = to - 1
			}
		case lua.OP_LOADNIL:
			if a <= reg && reg <= interp.ArgB(inst) {
				last = i
			}
		case lua.OP_CALL, lua.OP_TAILCALL, lua.OP_VARARG:
			if reg >= a {
				last = i
			}
		case lua.OP_TFORLOOP:
			if reg >= a+2 {
				last = i
			}
		case lua.OP_FORLOOP:
			if reg >= a && reg <= a+3 {
				last = i
			}
		case lua.OP_SELF:
			if reg == a || reg == a+1 {
				last = i
			}
		case lua.OP_MOVEN:
			if a == reg {
				last = i
			}
			for n := interp.ArgC(inst); n > 0; n-- {
				i++
				if interp.ArgA(p.Code[i]) == reg {
					last = i
				}
			}
		case lua.OP_CLOSURE:
			if a == reg {
				last = i
			}
			i += int(p.FunctionPrototypes[interp.ArgBx(inst)].NumUpvalues)
		case lua.OP_SETGLOBAL, lua.OP_SETUPVAL, lua.OP_SETTABLE, lua.OP_SETTABLEKS, lua.OP_EQ, lua.OP_LT,
			lua.OP_LE, lua.OP_RETURN, lua.OP_SETLIST, lua.OP_CLOSE, lua.OP_NOP:
			if interp.OpOf(inst) == lua.OP_SETLIST && interp.ArgC(inst) == 0 {
				i++
			}
		default: // this includes TEST, because symbexec, too, takes TEST to set its register
			if a == reg {
				last = i
			}
		}
	}
	return last
}

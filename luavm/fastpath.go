package luavm

import (
	"fmt"
	"strings"
	"unsafe"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/clib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
	"github.com/lockstep-io/lockstep/store"
)

// gopher-lua spends half of the time of a lock's script on frames, tables and allocations. This file runs plain scripts (link.go) without
// them, if fastOps has all of the script's instructions.
//
// Everything unusual, above all every error, is left to gopher-lua: the writes are rolled back, and gopher-lua runs the script from its
// beginning. The result is the same, because a script sees only its transaction, and the fast path runs no command with random replies.
//
// --without fast-scripts turns the fast path off (docs/performance-history.md).

// valueKind is the type of the value in a register.
type valueKind uint8

const (
	// The first two are false in a condition.
	kindNil valueKind = iota
	kindFalse
	kindTrue
	kindNumber
	kindConstant // a string of the script's text
	kindInput    // a string of the request
	kindString   // a string of a reply
	kindStatus   // a status: the table {ok=...}
	kindKeys     // KEYS
	kindArgs     // ARGV
	kindCall     // redis.call or redis.pcall, which differ only in errors
	kindToNumber // tonumber
	kindLibrary  // a library table such as redis, from which no field is read: link has made redis.call itself a constant
)

// value is a value in a register; the zero value is nil.
type value struct {
	kind   valueKind
	number float64
	text   string
	cmd    *store.Command // the command that a constant names; nil if it names none, or one with subcommands or random replies
}

func (v *value) truth() bool    { return v.kind > kindFalse }
func (v *value) isString() bool { return v.kind >= kindConstant && v.kind <= kindString }

func truthOf(b bool) value {
	if b {
		return value{kind: kindTrue}
	}
	return value{kind: kindFalse}
}

// fastScript is a script that the fast path can run.
type fastScript struct {
	code      []uint32
	constants []value
	registers int
	regret    int // tells whether too many runs are left to gopher-lua, see regretLimit
}

const (
	// fastScript.regret grows by regretStep with a run left to gopher-lua, and falls by one with any other. Above regretLimit, gopher-lua
	// runs the script.
	regretStep  = 8
	regretLimit = 64
)

// fastOps has a bit for each instruction that the fast path runs.
const fastOps uint64 = 1<<lua.OP_MOVE | 1<<lua.OP_LOADK | 1<<lua.OP_LOADBOOL | 1<<lua.OP_LOADNIL | 1<<lua.OP_GETTABLE |
	1<<lua.OP_EQ | 1<<lua.OP_LT | 1<<lua.OP_LE | 1<<lua.OP_NOT | 1<<lua.OP_TEST | 1<<lua.OP_TESTSET | 1<<lua.OP_JMP |
	1<<lua.OP_CALL | 1<<lua.OP_TAILCALL | 1<<lua.OP_RETURN

// drawsLots has the commands with random replies: if such a command runs again, its reply differs.
var drawsLots = map[string]bool{"spop": true, "srandmember": true, "hrandfield": true, "zrandmember": true, "randomkey": true}

// fast returns the fast path's form of a plain, linked script; nil if the fast path cannot run it.
func (e *Engine) fast(p *lua.FunctionProto) *fastScript {
	for _, inst := range p.Code {
		if fastOps>>interp.OpOf(inst)&1 == 0 {
			return nil
		}
	}
	constants := make([]value, len(p.Constants))
	for i, c := range p.Constants {
		var ok bool
		if constants[i], ok = e.fastConstant(c); !ok {
			return nil
		}
	}
	return &fastScript{code: p.Code, constants: constants, registers: int(p.NumUsedRegisters) + 1}
}

func (e *Engine) fastConstant(c lua.LValue) (v value, ok bool) {
	switch c := c.(type) {
	case *lua.LNilType:
		return value{}, true
	case lua.LBool:
		return truthOf(bool(c)), true
	case lua.LNumber:
		return value{kind: kindNumber, number: float64(c)}, true
	case lua.LString:
		cmd := e.table.Lookup([]byte(c))
		if cmd != nil && (len(cmd.Sub) > 0 || drawsLots[cmd.Name]) {
			cmd = nil
		}
		return value{kind: kindConstant, text: string(c), cmd: cmd}, true
	case *lua.LTable:
		switch c {
		case e.keyList:
			return value{kind: kindKeys}, true
		case e.argList:
			return value{kind: kindArgs}, true
		}
		return value{kind: kindLibrary}, true
	case *lua.LFunction:
		switch redis := e.lib("redis"); c {
		case redis.RawGetString("call"), redis.RawGetString("pcall"):
			return value{kind: kindCall}, true
		case e.globals.RawGetString("tonumber"):
			return value{kind: kindToNumber}, true
		}
	}
	return value{}, false
}

// evalFast evaluates a script on the fast path. Without ok, gopher-lua must run the script: its writes are rolled back, but its time
// counts.
func (e *Engine) evalFast(ctx *store.Ctx, c *chunk, keys, args [][]byte, readOnly, cached bool) (reply store.Reply, ok bool) {
	save := e.open(ctx, c, readOnly, cached)
	reply, ok = e.runFast(c.fast, keys, args)
	if ok {
		e.lastLook()
		e.call, e.told = store.Ctx{}, 0
		c.fast.regret = max(c.fast.regret-1, 0)
		if e.stop != "" {
			ctx.Rollback(save)
			return e.stopped(ctx), true
		}
		ctx.Release(save)
		return reply, true
	}
	ctx.Rollback(save)
	e.unwrite()
	if c.fast.regret += regretStep; c.fast.regret > regretLimit {
		c.fast = nil
	}
	return reply, false
}

// runFast runs the instructions of a script; ok is false if gopher-lua has to run them.
func (e *Engine) runFast(s *fastScript, keys, args [][]byte) (reply store.Reply, ok bool) {
	regs := e.registers[:s.registers]
	e.inFast = true
	defer func() {
		e.inFast = false
		clear(regs)
		clear(e.args[:cap(e.args)])
		if p := recover(); p != nil {
			if !isStopped(p) {
				e.tell(firstLine(fmt.Sprint(p)))
			}
			ok = false
		}
	}()
	code, constants := s.code, s.constants
	operand := func(x int) *value {
		if x&interp.RKConst != 0 {
			return &constants[x&^interp.RKConst]
		}
		return &regs[x]
	}
	top := 0 // the register behind the results of the last call with an open number of results
	for pc := 0; ; {
		inst := code[pc]
		pc++
		a := interp.ArgA(inst)
		switch op := interp.OpOf(inst); op {
		case lua.OP_MOVE:
			regs[a] = regs[interp.ArgB(inst)]
		case lua.OP_LOADK:
			regs[a] = constants[interp.ArgBx(inst)]
		case lua.OP_LOADBOOL:
			regs[a] = truthOf(interp.ArgB(inst) != 0)
			if interp.ArgC(inst) != 0 {
				pc++
			}
		case lua.OP_LOADNIL:
			clear(regs[a : interp.ArgB(inst)+1])
		case lua.OP_GETTABLE:
			list := keys
			switch regs[interp.ArgB(inst)].kind {
			case kindKeys:
			case kindArgs:
				list = args
			default:
				return reply, false
			}
			i := operand(interp.ArgC(inst))
			n := int(i.number)
			if i.kind != kindNumber || float64(n) != i.number {
				return reply, false
			}
			if n < 1 || n > len(list) {
				regs[a] = value{}
			} else {
				b := list[n-1]
				regs[a] = value{kind: kindInput, text: unsafe.String(unsafe.SliceData(b), len(b))}
			}
		case lua.OP_EQ, lua.OP_LT, lua.OP_LE:
			is, known := e.compareFast(op, operand(interp.ArgB(inst)), operand(interp.ArgC(inst)))
			if !known {
				return reply, false
			}
			if is != (a != 0) {
				pc++
			}
		case lua.OP_NOT:
			regs[a] = truthOf(!regs[interp.ArgB(inst)].truth())
		case lua.OP_TEST:
			if regs[a].truth() != (interp.ArgC(inst) != 0) {
				pc++
			}
		case lua.OP_TESTSET:
			if v := regs[interp.ArgB(inst)]; v.truth() == (interp.ArgC(inst) != 0) {
				regs[a] = v
			} else {
				pc++
			}
		case lua.OP_JMP:
			pc += interp.ArgSbx(inst)
		case lua.OP_CALL, lua.OP_TAILCALL:
			end := a + interp.ArgB(inst)
			if interp.ArgB(inst) == 0 {
				end = top
			}
			result, known := e.callFast(&regs[a], regs[a+1:end])
			if !known {
				return reply, false
			}
			if op == lua.OP_TAILCALL {
				return result.reply()
			}
			switch wanted := interp.ArgC(inst) - 1; wanted {
			case lua.MultRet:
				top = a + 1
				regs[a] = result
			case 0:
			default:
				regs[a] = result
				clear(regs[a+1 : a+wanted])
			}
		case lua.OP_RETURN:
			if interp.ArgB(inst) == 1 || interp.ArgB(inst) == 0 && top == a {
				return store.Nil, true
			}
			return regs[a].reply()
		}
	}
}

// compareFast returns a == b, a < b or a <= b; known is false if the fast path cannot
// decide that from the two values.
func (e *Engine) compareFast(op int, a, b *value) (is, known bool) {
	switch {
	case a.kind == kindNumber && b.kind == kindNumber:
		switch op {
		case lua.OP_EQ:
			return a.number == b.number, true
		case lua.OP_LT:
			return a.number < b.number, true
		}
		return a.number <= b.number, true
	case op != lua.OP_EQ || a.kind >= kindStatus && b.kind >= kindStatus:
		return false, false
	case a.isString() && b.isString():
		if len(a.text) == len(b.text) {
			e.pass(len(a.text))
		}
		return a.text == b.text, true
	}
	return a.kind == b.kind, true
}

// callFast calls a function; known is false if gopher-lua has to call it.
func (e *Engine) callFast(fn *value, params []value) (result value, known bool) {
	switch {
	case fn.kind == kindCall:
		return e.commandFast(params)
	case fn.kind != kindToNumber || len(params) != 1:
		return value{}, false
	}
	switch v := &params[0]; {
	case v.kind == kindNumber:
		return *v, true
	case v.isString():
		n, ok := e.arg.ParseNumber(v.text)
		if !ok {
			return value{}, true
		}
		return value{kind: kindNumber, number: float64(n)}, true
	}
	return value{}, true
}

// commandFast is redisCall on the fast path. known is false if the command is left to gopher-lua.
func (e *Engine) commandFast(params []value) (result value, known bool) {
	args, ok := e.argumentsFast(params)
	if !ok {
		return value{}, false
	}
	cmd, named := params[0].cmd, true
	if cmd == nil {
		cmd, named = e.table.Resolve(args)
		named = named && !drawsLots[cmd.Name]
	}
	// Commands that the server answers itself (cmd.Run is nil) may have effects outside the transaction, so they must not run
	// twice.
	if !named || cmd.Run == nil || e.refusal(cmd, args) != "" || e.mayNot(cmd) || e.denied(cmd, args) {
		return value{}, false
	}
	if e.call.User != nil {
		if why, _ := e.call.User.Check(cmd, args); why != store.Allowed {
			return value{}, false
		}
	}
	r := e.runCommand(cmd, args)
	switch r.Kind {
	case store.Null:
		return value{kind: kindFalse}, true
	case store.Integer:
		return value{kind: kindNumber, number: float64(r.Int)}, true
	case store.Bulk:
		e.charge(int64(len(r.Str)) + 16)
		return value{kind: kindString, text: r.Str}, true
	case store.Double:
		return value{kind: kindString, text: store.FormatFloat(r.Float())}, true
	case store.Simple:
		return value{kind: kindStatus, text: r.Str}, true
	}
	return value{}, false
}

// argumentsFast does what the method arguments does, on the fast path. It does not copy constants and
// the strings of KEYS and ARGV.
func (e *Engine) argumentsFast(params []value) (args [][]byte, ok bool) {
	size, named := 0, int64(0)
	for i := range params {
		switch v := &params[i]; v.kind {
		case kindConstant, kindInput:
			named += int64(len(v.text))
		case kindString:
			size += len(v.text)
		case kindNumber:
			size += numberSize
		}
	}
	args, buf := e.room(len(params), size)
	for i := range params {
		v := &params[i]
		from := len(buf)
		switch v.kind {
		case kindConstant, kindInput:
			args = append(args, unsafe.Slice(unsafe.StringData(v.text), len(v.text)))
			continue
		case kindString:
			buf = append(buf, v.text...)
		case kindNumber:
			buf = clib.FormatArgument(buf, lua.LNumber(v.number))
		default:
			return nil, false
		}
		args = append(args, buf[from:len(buf):len(buf)])
	}
	e.charge(named)
	e.keepArguments(args, buf)
	return args, len(args) > 0
}

// reply returns the reply of a script that returns v; ok is false if gopher-lua has to make it.
func (v *value) reply() (r store.Reply, ok bool) {
	switch v.kind {
	case kindNil, kindFalse:
		return store.Nil, true
	case kindTrue:
		return store.One, true
	case kindNumber:
		return store.Int(clib.ToInt64(lua.LNumber(v.number))), true
	case kindInput:
		return store.Str(strings.Clone(v.text)), true // the reply may outlive the request's memory
	case kindConstant, kindString:
		return store.Str(v.text), true
	case kindStatus:
		return store.Status(oneLine(v.text)), true
	}
	return store.Reply{}, false
}

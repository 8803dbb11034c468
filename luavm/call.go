package luavm

import (
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/clib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
	"github.com/lockstep-io/lockstep/store"
)

const (
	// For each command that a script calls, the engine charges callCost bytes besides the arguments, and callSteps
	// instructions.
	callCost  = 256
	callSteps = 16
	// keepBuffer is the size in bytes of the largest argument buffer that is kept for the next call.
	keepBuffer = 64 << 10
)

// redisCall implements redis.call, which raises errors, and redis.pcall, which returns them. Its checks have the order of Redis's
// scriptCall.
func (e *Engine) redisCall(L *lua.LState, raises bool) int {
	if L.GetTop() == 0 {
		return e.refuse(L, raises, e.errorTable(L, msgNoArguments))
	}
	args, ok := e.arguments(L)
	if !ok {
		return e.refuse(L, raises, e.errorTable(L, msgArgumentTypes))
	}
	cmd, text := e.verify(args)
	if text != "" {
		return e.refuse(L, raises, markCounted(e.errorTable(L, text)))
	}
	r := e.runCommand(cmd, args)
	if r.IsError() {
		return e.refuse(L, raises, markCounted(e.errorTable(L, "-"+r.Str)))
	}
	if interp.TopFrame(L).NRet == 0 {
		return 0 // the call is a statement: nobody reads the result
	}
	L.Push(e.toLua(L, &r))
	return 1
}

// runCommand runs a command that verify has permitted.
func (e *Engine) runCommand(cmd *store.Command, args [][]byte) store.Reply {
	e.work(callSteps)
	if cmd.Is(store.Write) {
		e.wrote()
		if e.state.Load()&stateKilled != 0 {
			e.halt(msgKilled)
		}
	}
	e.call.Cmd, e.call.Args, e.call.RESP = cmd, args, e.resp
	run := cmd.Run
	if run == nil || cmd.Is(store.NoScript) {
		run = e.opts.Local
	}
	r := e.call.Call(run)
	if overrun := e.call.OverrunSoFar(); overrun != "" {
		e.halt(strings.TrimPrefix(string(overrun), "ERR "))
	}
	if e.spent += int64(e.call.Txn.TakeCopied()); e.spent >= e.nextHeap {
		e.checkHeap(0)
	}
	e.trace()
	return r
}

// trace passes a command to Options.Trace. When gopher-lua repeats a script, trace skips the e.told commands of the fast path.
func (e *Engine) trace() {
	switch {
	case e.opts.Trace == nil:
	case e.inFast:
		e.told++
		e.opts.Trace(&e.call)
	case e.told > 0:
		e.told--
	default:
		e.opts.Trace(&e.call)
	}
}

// refuse raises the error t if raises is true. Otherwise it returns t to the script.
func (e *Engine) refuse(L *lua.LState, raises bool, t *lua.LTable) int {
	if raises {
		e.throwValue(L, t)
	}
	L.Push(t)
	return 1
}

// markCounted sets a field by which Redis marks errors that its statistics have counted: scripts can see it.
func markCounted(t *lua.LTable) *lua.LTable {
	t.RawSetString("ignore_error_stats_update", lua.LTrue)
	return t
}

// verify finds the command that args names. If the running script may not call it, cmd is nil and the result text is the error.
func (e *Engine) verify(args [][]byte) (cmd *store.Command, text string) {
	cmd, known := e.table.Resolve(args)
	switch {
	case cmd == nil:
		return nil, e.refusalOfAbsent(args)
	case !known && len(args) > 1:
		return nil, msgUnknownCommand
	case !known:
		return nil, msgCommandArity
	}
	if text := e.refusal(cmd, args); text != "" {
		return nil, text
	}
	if e.call.User != nil {
		if text := e.authorize(cmd, args); text != "" {
			return nil, text
		}
	}
	if e.mayNot(cmd) {
		return nil, msgReadonlyScript
	}
	if e.denied(cmd, args) {
		return nil, "-" + string(e.call.ErrNoRoom())
	}
	return cmd, ""
}

// denied reports whether a command is refused for lack of memory. As in Redis, a script that has written may go on.
func (e *Engine) denied(cmd *store.Command, args [][]byte) bool {
	if !e.full || e.state.Load()&stateWrote != 0 || cmd.Flags&store.DenyOOM == 0 {
		return false
	}
	e.call.Cmd, e.call.Args = cmd, args
	_, denied := e.call.NoRoom()
	return denied
}

// refusal returns the error if no script may call the command with these arguments, and "" otherwise.
func (e *Engine) refusal(cmd *store.Command, args [][]byte) (text string) {
	switch {
	case !cmd.ArityOK(len(args)):
		return msgCommandArity
	case cmd.Is(store.NoScript) && !e.allows(cmd), cmd.Run == nil && e.opts.Local == nil:
		return msgNotAllowed
	}
	return ""
}

// allows reports whether Options.Allow permits scripts to call a command although it has the flag NoScript.
func (e *Engine) allows(cmd *store.Command) bool {
	return e.opts.Allow != nil && e.opts.Local != nil && e.opts.Allow(cmd)
}

// mayNot reports whether the running script is read-only and the command may write or be replicated.
func (e *Engine) mayNot(cmd *store.Command) bool {
	return e.readOnly && cmd.Flags&(store.Write|store.MayReplicate) != 0
}

// authorize returns the error if the script's user may not run a command. It records a denial, but not store.Undecided.
func (e *Engine) authorize(cmd *store.Command, args [][]byte) (text string) {
	why, arg := e.call.User.Check(cmd, args)
	switch why {
	case store.Allowed:
		return ""
	case store.DeniedKey:
		text = msgDeniedKey
	case store.DeniedChannel:
		text = msgDeniedChannel
	case store.Undecided:
		return "-" + string(store.ErrUndecided)
	default:
		text = msgDeniedCommand
	}
	e.call.Deny(e.call.User, cmd, args, why, arg)
	return text
}

// arguments turns the running function's arguments into a command's, valid until the next call. ok: all are strings or numbers.
func (e *Engine) arguments(L *lua.LState) (args [][]byte, ok bool) {
	n := L.GetTop()
	size := 0
	for i := 1; i <= n; i++ {
		switch v := L.Get(i).(type) {
		case lua.LString:
			size += len(v)
		case lua.LNumber:
			size += numberSize
		}
	}
	args, buf := e.room(n, size)
	for i := 1; i <= n; i++ {
		from := len(buf)
		switch v := L.Get(i).(type) {
		case lua.LString:
			buf = append(buf, v...)
		case lua.LNumber:
			buf = clib.FormatArgument(buf, v)
		default:
			return nil, false
		}
		args = append(args, buf[from:len(buf):len(buf)])
	}
	e.keepArguments(args, buf)
	return args, true
}

// numberSize is an upper bound of the bytes that the text of a number takes in an argument.
const numberSize = 32

// room charges for a command's n arguments of size bytes. It returns empty slices with room for the arguments and the bytes.
func (e *Engine) room(n, size int) (args [][]byte, buf []byte) {
	e.charge(callCost + int64(n)*24 + 2*int64(size))
	return slices.Grow(e.args[:0], n), slices.Grow(e.argBuf[:0], size)
}

// keepArguments keeps the memory of the arguments for the next call of the method room, unless that memory is large.
func (e *Engine) keepArguments(args [][]byte, buf []byte) {
	e.args, e.argBuf = args, buf
	if cap(buf) > keepBuffer {
		e.args, e.argBuf = nil, nil // args point into buf
	}
	if cap(args) > keepList {
		e.args = nil
	}
}

// absent has the arities of commands that Redis forbids to scripts and lockstep lacks, so that scripts get Redis's errors.
var absent = map[string]store.Command{
	"bgrewriteaof": {Arity: 1},
	"failover":     {Arity: -1},
	"module":       {Arity: -2},
	"psync":        {Arity: -3},
	"replconf":     {Arity: -1},
	"replicaof":    {Arity: 3},
	"slaveof":      {Arity: 3},
	"sync":         {Arity: 1},
}

func (e *Engine) refusalOfAbsent(args [][]byte) string {
	cmd, ok := absent[strings.ToLower(string(args[0][:min(len(args[0]), maxCommandName)]))]
	switch {
	case !ok:
		return msgUnknownCommand + e.hint(args[0])
	case !cmd.ArityOK(len(args)):
		return msgCommandArity
	}
	return msgNotAllowed
}

// maxCommandName is longer than the name of any command.
const maxCommandName = 64

// hint returns an addition to Redis's error text that says why a command of Redis is absent here.
func (e *Engine) hint(name []byte) string {
	if e.opts.Absent == nil || len(name) > maxCommandName {
		return ""
	}
	if why := e.opts.Absent(string(name)); why != "" {
		return " (" + why + ")"
	}
	return ""
}

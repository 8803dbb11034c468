package luavm

import (
	"strings"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/auxlib"
	"github.com/lockstep-io/lockstep/luavm/internal/interp"
	"github.com/lockstep-io/lockstep/store"
)

// chunk is a compiled script.
type chunk struct {
	sha   string
	body  string
	proto *lua.FunctionProto
	plain bool           // the script runs without the hook
	fn    *lua.LFunction // the function of the present Lua state; nil: not made yet
	fast  *fastScript    // the form for the fast path; nil: none
	flags scriptFlags
	taker store.Taker // which of its arguments names the owner of the locks that it takes
}

// maxChunks bounds the number of compiled scripts. Before there are more, the engine drops all of them.
const maxChunks = 1000

// compiledShare bounds the memory of compiled scripts: all of them together, with their texts, may
// take MemoryLimit/compiledShare bytes.
const compiledShare = 2

// beginning is what the compiler passes on to the run of a script.
type beginning struct {
	state uint32    // has stateKilled if a kill came too late to stop the compiler: the kill stops the script instead
	used  allocated // what compiling the script has allocated; zero if it was compiled before
}

// known is the beginning of a script that is compiled already.
var known = beginning{state: stateRunning}

// chunkOf returns the compiled form of a script. Compiling counts toward the script's limits (ctx.ScriptTime, from). fail is the reply if
// there is none.
func (e *Engine) chunkOf(ctx *store.Ctx, body string) (c *chunk, from beginning, fail *store.Reply) {
	if c := e.byBody[body]; c != nil {
		return c, known, nil
	}
	refused := func(r store.Reply) (*chunk, beginning, *store.Reply) { return nil, beginning{}, &r }
	flags, skip, err := parseShebang(body)
	if err != "" {
		return refused(store.Err(err))
	}
	// The shebang is cut off but its newline stays, so that line numbers count
	// the shebang line.
	done, cerr := e.compile(ctx, body[skip:], "@user_script", stateRunning)
	ctx.ScriptTime += done.took
	if e.stop != "" {
		return refused(e.stopped(ctx))
	}
	if cerr != nil {
		return refused(store.Err(errCompile(cerr.Error())))
	}
	forms := 2 * compiledSize(done.proto) // link makes a second form
	size, limit := int64(len(body))+forms, e.opts.MemoryLimit/compiledShare
	if size > limit {
		return refused(store.Err(errCompiledSize(size, limit)))
	}
	from = beginning{stateRunning, done.used}
	from.used.spent += forms / 2
	if done.killed {
		from.state |= stateKilled
	}
	body = strings.Clone(body)
	c = &chunk{sha: scriptSHA(body), body: body, proto: done.proto, plain: isPlain(done.proto), flags: flags}
	if e.compiled += size; len(e.bySHA) >= maxChunks || e.compiled > limit {
		clear(e.bySHA)
		clear(e.byBody)
		e.compiled = size
	}
	e.bySHA[c.sha], e.byBody[body] = c, c
	return c, from, nil
}

// eval runs a script on a transaction. As in Redis, a script that fails keeps its writes. Only a stopped script is rolled back.
func (e *Engine) eval(ctx *store.Ctx, c *chunk, from beginning, keys, args [][]byte, readOnly, cached bool) (reply store.Reply) {
	if readOnly && c.flags.declared && !c.flags.noWrites {
		return store.Err(errROScript)
	}
	if c.flags.declared && !c.flags.noWrites && !c.flags.allowOOM && ctx.OutOfMemory() {
		return store.Err(ctx.ErrNoRoom())
	}
	if c.fn == nil {
		linked := e.link(c.proto)
		c.fn = e.L.NewFunctionFromProto(linked)
		if c.plain && !e.opts.Interpret {
			c.fast = e.fast(linked)
		}
	}
	before := ctx.BeforeScript()
	reply = e.evalLinked(ctx, c, from, keys, args, readOnly, cached)
	if e.stop == "" {
		ctx.AfterScript(&c.taker, before, keys, args)
	}
	return reply
}

// evalLinked is eval for a script whose function is made.
func (e *Engine) evalLinked(ctx *store.Ctx, c *chunk, from beginning, keys, args [][]byte, readOnly, cached bool) (reply store.Reply) {
	e.start(from.state, ctx.ScriptTime)
	if c.fast != nil {
		if reply, ok := e.evalFast(ctx, c, keys, args, readOnly, cached); ok {
			return reply
		}
	}
	save := e.open(ctx, c, readOnly, cached)
	if from.used.heapBase > 0 {
		e.allocated = from.used
	}
	if c.plain {
		L := e.L
		defer e.watch(L, e.unwatch(L))
	}
	return e.end(ctx, save, e.execute(c.fn, keys, args))
}

// open begins the evaluation of a script.
func (e *Engine) open(ctx *store.Ctx, c *chunk, readOnly, cached bool) store.Savepoint {
	save := ctx.Savepoint()
	if !cached {
		ctx.LoadScript(c.sha, c.body, false)
	}
	e.begin(ctx, c.sha, readOnly || c.flags.noWrites)
	e.full = e.full && !c.flags.allowOOM
	e.watchTexts(len(c.body))
	return save
}

// start begins a script, function or library. before is the used part of its time limit. With stateRunning, it can now be killed.
func (e *Engine) start(state uint32, before time.Duration) {
	e.before = int64(before)
	e.started.Store(-1)
	e.state.Store(state)
}

// begin prepares an evaluation. sha is the name of the script in its errors; for a
// function it is the function's name.
func (e *Engine) begin(ctx *store.Ctx, sha string, readOnly bool) {
	args, buf := e.args, e.argBuf
	e.run = run{
		args: args, argBuf: buf, sha: sha,
		call:     store.Ctx{Txn: ctx.Txn, DB: ctx.DB, InScript: true, User: ctx.User, Caller: ctx.Caller, Watch: e.watches},
		readOnly: readOnly, full: ctx.Txn != nil && ctx.OutOfMemory(),
		resp: 2, budget: lookEvery, pace: lookEvery, allocated: allocated{nextHeap: heapFrom, nextSeen: heapFrom},
	}
	e.stopAfter = int64(ctx.StopAfter)
	if len(e.libs) > 0 {
		e.stopAfter = int64(ctx.StopKept)
	}
}

// end finishes an evaluation, and returns its reply. If the evaluation was stopped, end rolls the writes back, and returns an
// error.
func (e *Engine) end(ctx *store.Ctx, save store.Savepoint, reply store.Reply) store.Reply {
	e.lastLook()
	if e.stop == "" {
		e.finish()
		ctx.Release(save)
		return reply
	}
	reply = e.stopped(ctx)
	e.finish()
	ctx.Rollback(save)
	return reply
}

// lastLook ends the time for kills. A kill answered OK still stops the script or function. A stopped function leaves a dirty Lua state.
func (e *Engine) lastLook() {
	if s := e.state.Swap(0); s&stateKilled != 0 && e.stop == "" {
		e.stop, e.errSource = msgKilled, ""
		e.dirty = e.dirty || s&stateFunction != 0
	}
}

// stopped returns the reply for a script that was stopped, and sets the fields of ctx that say why.
func (e *Engine) stopped(ctx *store.Ctx) store.Reply {
	text := e.stop
	if text != string(store.ErrOutOfMemory) {
		text = "ERR " + text
	}
	if limit := time.Duration(e.timeLimit.Load()); e.stop == msgTime {
		text += store.ShortLimit(limit, limit-time.Duration(e.before))
	}
	// errSource is empty if no function was running. A long name is left out, because nothing charges for its copy.
	if e.errSource != "" && int64(len(e.errSource)) <= e.opts.MemoryLimit/replyShare {
		text += suffix(e.sha, e.errSource, e.errLine)
	}
	ctx.TookAll = e.tookAll()
	if e.stop == msgTime || e.stop == msgKilled || e.stop == msgForNow {
		ctx.Stopped, ctx.StoppedForNow = store.Error(text), e.stop == msgForNow
	}
	return store.Reply{Kind: store.Failure, Str: text}
}

// tookAll reports whether the script was stopped for one of the reasons that store.Ctx.TookAll names.
func (e *Engine) tookAll() bool {
	return e.stop == msgMemory || e.stop == msgLoad || e.stop == msgFault
}

// finish ends an evaluation. It drops all references to the script's values, because no limit counts them from now on.
func (e *Engine) finish() {
	e.state.Store(0)
	e.ext.JSON.Reset()
	e.call, e.told = store.Ctx{}, 0
	e.shown, e.active, e.sources = nil, nil, nil
	e.sha, e.errSource = "", ""
	if e.dirty {
		e.L.Close()
		e.rebuild()
		return
	}
	e.empty(e.keyList)
	e.empty(e.argList)
	e.L.SetTop(0)
	clear(e.frames) // a frame may keep a large function or its data alive
	if reg := interp.Registers(e.L); cap(*reg) > keepRegisters {
		*reg = make([]lua.LValue, keepRegisters)
	}
}

// keepRegisters is how many registers the Lua state keeps between scripts at most; a script may
// need up to maxRegisters.
const keepRegisters = 1 << 13

// execute calls a compiled script, or a function, and converts its result. If the
// script is stopped, execute returns with e.stop set.
func (e *Engine) execute(fn *lua.LFunction, keys, args [][]byte) (reply store.Reply) {
	defer e.contain()
	L := e.L
	L.Push(fn)
	nargs := 0
	if e.state.Load()&stateFunction == 0 {
		text := e.join(keys, args)
		text = e.fill(e.keyList, keys, text)
		e.fill(e.argList, args, text)
	} else {
		// A function may keep one of these strings, so each has memory of its own.
		for _, list := range [...][][]byte{keys, args} {
			t := L.CreateTable(len(list), 0)
			for i, b := range list {
				e.charge(int64(len(b)) + 32)
				t.RawSetInt(i+1, lua.LString(b))
			}
			L.Push(t)
		}
		nargs = 2
	}
	failure, ok := e.protectedCall(L, nargs, 1, nil)
	if !ok {
		return e.failureReply(failure)
	}
	return e.toReply(L.Get(-1), 0)
}

// KEYS, ARGV and Engine.args each keep room for at most keepList elements for their next use.
const keepList = 64

// join copies all elements of the lists into one string: one allocation costs less than many.
func (e *Engine) join(lists ...[][]byte) string {
	size, n := 0, 0
	for _, list := range lists {
		n += len(list)
		for _, b := range list {
			size += len(b)
		}
	}
	e.charge(int64(size) + 32*int64(n))
	var all strings.Builder
	all.Grow(size)
	for _, list := range lists {
		for _, b := range list {
			all.Write(b)
		}
	}
	return all.String()
}

// fill puts the elements of list into t, which is empty. The argument text begins with the elements of list; fill returns the rest of
// text.
func (e *Engine) fill(t *lua.LTable, list [][]byte, text string) string {
	elems := interp.ArrayPart(t)
	if cap(elems) < len(list) {
		elems = make([]lua.LValue, 0, len(list))
	}
	for _, b := range list {
		elems = append(elems, lua.LString(text[:len(b)]))
		text = text[len(b):]
	}
	interp.SetArrayPart(t, elems)
	return text
}

// empty makes KEYS or ARGV as fresh as before the first script.
func (e *Engine) empty(t *lua.LTable) {
	elems := interp.ArrayPart(t)
	if cap(elems) > keepList {
		elems = nil
	}
	clear(elems[:cap(elems)])
	*t = *e.blank
	interp.SetArrayPart(t, elems[:0])
}

// failureReply returns the reply for an error that the script did not catch.
func (e *Engine) failureReply(failure lua.LValue) store.Reply {
	text := e.failureText(failure)
	if e.errSource != "" {
		e.charge(int64(len(e.errSource)) + suffixCost) // the script may have given its source a long name
		text = e.paste(text, suffix(e.sha, e.errSource, e.errLine))
	}
	return store.Reply{Kind: store.Failure, Str: oneLine(e.replyText(text))}
}

// suffixCost is the number of bytes charged for the text that the function suffix returns, besides the name of the source.
const suffixCost = 128

func (e *Engine) failureText(failure lua.LValue) string {
	text := ""
	if t, ok := failure.(*lua.LTable); ok {
		// Redis dereferences a null pointer if the table has no err.
		if text, ok = auxlib.ToString(t.RawGetString("err")); !ok {
			text = e.paste("ERR ", e.display(t))
		}
	} else {
		text = e.paste("ERR ", e.display(failure))
	}
	text, _, _ = strings.Cut(text, "\x00")
	return text
}

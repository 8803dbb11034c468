package luavm

import (
	"strings"

	lua "github.com/yuin/gopher-lua"

	"lockstep/store"
)

// chunk is a compiled script.
type chunk struct {
	sha   string
	body  string
	proto *lua.FunctionProto
	fn    *lua.LFunction // of the present Lua state
	flags scriptFlags
}

// maxChunks bounds the compiled scripts; when there are more, all are dropped
// and compiled again as they come.
const maxChunks = 1000

// chunkOf returns the compiled form of a body.
func (e *Engine) chunkOf(body string) (*chunk, *store.Reply) {
	if c := e.byBody[body]; c != nil {
		return c, nil
	}
	flags, skip, err := parseShebang(body)
	if err != "" {
		r := store.Err(err)
		return nil, &r
	}
	// What precedes the first newline is cut off, the newline stays: lines are
	// counted with the shebang.
	proto, cerr := compile(body[skip:], "@user_script")
	if cerr != nil {
		r := store.Err(errCompile(cerr.Error()))
		return nil, &r
	}
	if len(e.bySHA) >= maxChunks {
		clear(e.bySHA)
		clear(e.byBody)
	}
	body = strings.Clone(body)
	c := &chunk{sha: scriptSHA(body), body: body, proto: proto, flags: flags}
	e.bySHA[c.sha], e.byBody[body] = c, c
	return c, nil
}

// eval runs a script on a transaction. When the script is stopped nothing of it
// remains; an error of its own keeps what it wrote before, as in Redis.
func (e *Engine) eval(ctx *store.Ctx, c *chunk, keys, args [][]byte, readOnly bool) (reply store.Reply) {
	if readOnly && c.flags.declared && !c.flags.noWrites {
		return store.Err(errROScript)
	}
	save := ctx.Savepoint()
	ctx.LoadScript(c.sha, c.body, false)
	e.begin(ctx, c, readOnly)
	reply = e.execute(c, keys, args)
	e.finish()
	if e.stop != "" {
		ctx.Rollback(save)
		text := "ERR " + e.stop
		if e.errSource != "" { // not while the reply was converted
			text += suffix(c.sha, e.errSource, e.errLine)
		}
		return store.Reply{Kind: store.Failure, Str: text}
	}
	ctx.Release(save)
	return reply
}

func (e *Engine) begin(ctx *store.Ctx, c *chunk, readOnly bool) {
	args, buf := e.args, e.argBuf
	e.run = run{
		args: args, argBuf: buf, sha: c.sha,
		call:     store.Ctx{Txn: ctx.Txn, DB: ctx.DB, InScript: true, User: ctx.User},
		readOnly: readOnly || c.flags.noWrites,
		resp:     2, budget: lookEvery, nextHeap: heapFrom,
	}
	e.started.Store(-1)
	e.state.Store(stateRunning)
}

func (e *Engine) finish() {
	e.state.Store(0)
	e.cjson.reset()
	e.call = store.Ctx{}
	e.shown, e.active, e.sources = nil, nil, nil
	if e.dirty {
		e.L.Close()
		e.rebuild()
		return
	}
	e.L.SetTop(0)
}

// execute calls the compiled script and converts its result. It returns on
// every stop with e.stop set.
func (e *Engine) execute(c *chunk, keys, args [][]byte) (reply store.Reply) {
	defer func() {
		if p := recover(); p != nil {
			if _, ours := p.(stopped); !ours {
				panic(p)
			}
		}
	}()
	L := e.L
	e.globals.RawSetString("KEYS", e.stringList(L, keys))
	e.globals.RawSetString("ARGV", e.stringList(L, args))
	if c.fn == nil {
		c.fn = L.NewFunctionFromProto(c.proto)
	}
	L.Push(c.fn)
	failure, ok := e.protectedCall(L, 0, 1, nil)
	if !ok {
		return e.failureReply(c.sha, failure)
	}
	return e.toReply(L.Get(-1), 0)
}

func (e *Engine) stringList(L *lua.LState, list [][]byte) *lua.LTable {
	t := L.CreateTable(len(list), 0)
	for _, b := range list {
		e.charge(int64(len(b)) + 32)
		t.Append(lua.LString(b))
	}
	return t
}

// failureReply is the reply to an error that the script did not catch.
func (e *Engine) failureReply(sha string, failure lua.LValue) store.Reply {
	text := ""
	if t, ok := failure.(*lua.LTable); ok {
		// Redis dereferences a null pointer if the table has no err.
		if text, ok = toString(t.RawGetString("err")); !ok {
			text = "ERR " + e.display(t)
		}
	} else {
		text = "ERR " + e.display(failure)
	}
	text, _, _ = strings.Cut(text, "\x00")
	if e.errSource != "" {
		text += suffix(sha, e.errSource, e.errLine)
	}
	return store.Reply{Kind: store.Failure, Str: oneLine(text)}
}

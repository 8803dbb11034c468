package luavm

import (
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/clib"
	"github.com/lockstep-io/lockstep/store"
)

// toLua converts a command's reply to a Lua value, by the protocol version that the script has chosen (redis.setresp).
func (e *Engine) toLua(L *lua.LState, r *store.Reply) lua.LValue {
	switch r.Kind {
	case store.Integer:
		return lua.LNumber(r.Int)
	case store.Bulk:
		e.charge(int64(len(r.Str)) + 16)
		return e.own(r.Str)
	case store.Simple:
		e.charge(int64(len(r.Str)))
		return e.record(L, "ok", lua.LString(r.Str))
	case store.Failure:
		return e.errorTable(L, "-"+r.Str)
	case store.Array, store.Push, store.Multi:
		return e.listToLua(L, r.Elems)
	case store.Map:
		return e.mapToLua(L, r.Elems)
	case store.Set:
		return e.setToLua(L, r.Elems)
	case store.Double:
		if e.resp == 2 {
			return lua.LString(store.FormatFloat(r.Float()))
		}
		return e.record(L, "double", lua.LNumber(r.Float()))
	case store.Bool:
		if e.resp == 2 {
			return lua.LNumber(r.Int)
		}
		return lua.LBool(r.Int == 1)
	case store.BigNumber:
		e.charge(int64(len(r.Str)))
		if e.resp == 2 {
			return lua.LString(r.Str)
		}
		return e.record(L, "big_number", lua.LString(r.Str))
	case store.Verbatim:
		e.charge(int64(len(r.Str)))
		format, text, _ := strings.Cut(r.Str, ":")
		if e.resp == 2 {
			return lua.LString(text)
		}
		t := e.record(L, "format", e.own(format))
		t.RawSetString("string", lua.LString(text))
		return e.record(L, "verbatim_string", t)
	}
	if e.resp == 2 {
		return lua.LFalse
	}
	return lua.LNil
}

func (e *Engine) listToLua(L *lua.LState, elems []store.Reply) lua.LValue {
	e.charge(int64(len(elems)) * 40)
	t := L.CreateTable(len(elems), 0)
	for i := range elems {
		t.RawSetInt(i+1, e.toLua(L, &elems[i]))
	}
	return t
}

func (e *Engine) mapToLua(L *lua.LState, elems []store.Reply) lua.LValue {
	if e.resp == 2 {
		return e.listToLua(L, elems)
	}
	e.charge(int64(len(elems)) * 100)
	t := L.CreateTable(0, len(elems)/2)
	for i := 0; i+1 < len(elems); i += 2 {
		t.RawSet(e.toLua(L, &elems[i]), e.toLua(L, &elems[i+1]))
	}
	return e.record(L, "map", t)
}

func (e *Engine) setToLua(L *lua.LState, elems []store.Reply) lua.LValue {
	if e.resp == 2 {
		return e.listToLua(L, elems)
	}
	e.charge(int64(len(elems)) * 100)
	t := L.CreateTable(0, len(elems))
	for i := range elems {
		t.RawSet(e.toLua(L, &elems[i]), lua.LTrue)
	}
	return e.record(L, "set", t)
}

// At replyDepth slots of C Lua's stack, a value of a reply becomes errReplyDepth. replyDepth is below store.MaxReplyDepth, so all nodes
// can decode every reply.
const replyDepth = 7995

// These are the slots of C Lua's stack that a table takes while one of its elements is converted.
const (
	arraySlot  = 1
	memberSlot = 3 // for a member of a set, or a value in a map
	keySlot    = 4 // for a key in a map
)

// elementCost is about the bytes of a reply's element besides its text. A reply's strings may take MemoryLimit/replyShare, because
// several copies exist.
const (
	elementCost = 80
	replyShare  = 4
)

// replyInStep is how many bytes of a reply are searched for line breaks in the time of an instruction.
const replyInStep = 64

// replyText returns s. It stops the script if the reply's strings are too large (replyShare), and charges for copies by oneLine.
func (e *Engine) replyText(s string) string {
	e.replySize += int64(len(s)) + elementCost
	if e.replySize > e.opts.MemoryLimit/replyShare {
		e.halt(msgMemory)
	}
	e.work(len(s) / replyInStep)
	if strings.ContainsAny(s, "\r\n") {
		e.charge(2 * int64(len(s)))
	}
	return s
}

// toReply converts a script's value to a reply. depth counts slots of C Lua's stack. Every element is charged: tables in tables can
// expand endlessly.
func (e *Engine) toReply(v lua.LValue, depth int) store.Reply {
	e.charge(2 * elementCost)
	e.work(1)
	if depth >= replyDepth {
		return store.Err(errReplyDepth)
	}
	switch v := v.(type) {
	case lua.LString:
		return store.Str(e.replyText(string(v)))
	case lua.LNumber:
		return store.Int(clib.ToInt64(v))
	case lua.LBool:
		switch {
		case e.resp == 3:
			return store.Reply{Kind: store.Bool, Int: store.Flag(bool(v)).Int}
		case bool(v):
			return store.One
		}
	case *lua.LTable:
		return e.tableToReply(v, depth)
	}
	return store.Nil
}

// tableToReply converts a table. The first suitable field decides the type of the reply. Without one, it is an array.
func (e *Engine) tableToReply(t *lua.LTable, depth int) store.Reply {
	if s, ok := t.RawGetString("err").(lua.LString); ok {
		e.work(len(s) / replyInStep) // the time of TrimRight: replyText counts only the bytes that remain
		return store.Reply{Kind: store.Failure, Str: oneLine(e.replyText(strings.TrimRight(string(s), "\r\n")))}
	}
	if s, ok := t.RawGetString("ok").(lua.LString); ok {
		return store.Status(oneLine(e.replyText(string(s))))
	}
	if n, ok := t.RawGetString("double").(lua.LNumber); ok {
		return store.Float(float64(n))
	}
	if s, ok := t.RawGetString("big_number").(lua.LString); ok {
		return store.Reply{Kind: store.BigNumber, Str: oneLine(e.replyText(string(s)))}
	}
	if v, ok := t.RawGetString("verbatim_string").(*lua.LTable); ok {
		text, isText := v.RawGetString("string").(lua.LString)
		format, hasFormat := v.RawGetString("format").(lua.LString)
		if isText && hasFormat {
			return store.Reply{Kind: store.Verbatim, Str: e.paste((string(format[:min(len(format), 3)]) + "   ")[:3]+":", e.replyText(string(text)))}
		}
	}
	if m, ok := t.RawGetString("map").(*lua.LTable); ok {
		return e.pairsToReply(m, store.Map, depth)
	}
	if m, ok := t.RawGetString("set").(*lua.LTable); ok {
		return e.pairsToReply(m, store.Set, depth)
	}
	r := store.Reply{Kind: store.Array}
	for i := 1; ; i++ {
		v := t.RawGetInt(i)
		if i >= lua.MaxArrayIndex {
			v = t.RawGet(lua.LNumber(i))
		}
		if v == lua.LNil {
			return r
		}
		r.Elems = append(r.Elems, e.toReply(v, depth+arraySlot))
	}
}

func (e *Engine) pairsToReply(t *lua.LTable, kind store.Kind, depth int) store.Reply {
	r := store.Reply{Kind: kind}
	e.workSlots(t)
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		e.passKey(k)
		if kind == store.Map {
			r.Elems = append(r.Elems, e.toReply(k, depth+keySlot), e.toReply(v, depth+memberSlot))
		} else {
			r.Elems = append(r.Elems, e.toReply(k, depth+memberSlot))
		}
	}
	return r
}

// oneLine cuts s at the first zero byte, as C does, and replaces line breaks by spaces:
// statuses and errors must be one line.
func oneLine(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	if strings.ContainsAny(s, "\r\n") {
		s = strings.NewReplacer("\r", " ", "\n", " ").Replace(s)
	}
	return s
}

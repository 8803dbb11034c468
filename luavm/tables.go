package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/interp"
)

// This file charges for a table's growth before it happens, gives a new hash part little room, and removes keys with the value nil.

const (
	// hashCost is the number of bytes charged for the first key of a hash part: for two small maps and the list of keys.
	hashCost = 700
	// compactFrom is the least number of keys, dead ones included, at which dead keys are removed from a hash part.
	compactFrom = 32
)

// beforeGrowth charges for the growth of t that setting t[key] to a value may cause. Setting nil makes only the array part grow.
func (e *Engine) beforeGrowth(t *lua.LTable, key, value lua.LValue) {
	if n, ok := key.(lua.LNumber); ok && n >= 1 && n < lua.LNumber(lua.MaxArrayIndex) && n == lua.LNumber(int(n)) {
		e.beforeElement(t, int(n))
		return
	} else if value == lua.LNil {
		return
	} else if ok && n >= lua.LNumber(lua.MaxArrayIndex) {
		e.refuseLonger(len(interp.ArrayPart(t)))
	}
	e.beforeKey(t, key)
}

// beforeKey charges for the growth of the hash part that setting t[key] may cause.
func (e *Engine) beforeKey(t *lua.LTable, key lua.LValue) {
	keys := interp.HashKeys(t)
	if len(keys) < cap(keys) {
		return
	}
	if len(keys) == 0 {
		e.charge(hashCost)
		interp.BeginHash(t) // gopher-lua would make room for 32 keys
		return
	}
	if interp.PlaceOf(t, key) >= 0 {
		return
	}
	// C Lua, too, drops dead keys when a new key finds no room.
	if len(keys) >= compactFrom && 2*interp.DeadKeys(t) > len(keys) {
		e.charge(int64(len(keys)-interp.DeadKeys(t)) * pairSize)
		e.work(len(keys) * walkSteps)
		interp.Compact(t)
		return
	}
	e.charge(pairSize * int64(cap(keys)))
}

// record returns a new table with one field, and charges for it.
func (e *Engine) record(L *lua.LState, name string, v lua.LValue) *lua.LTable {
	e.charge(tableSize + hashCost)
	t := L.CreateTable(0, 1)
	t.RawSetString(name, v)
	return t
}

// beforeElement charges for the growth of the array part that setting t[n] causes: gopher-lua fills the array up to n.
func (e *Engine) beforeElement(t *lua.LTable, n int) {
	elems := interp.ArrayPart(t)
	switch gap := n - len(elems); {
	case gap > 64:
		e.charge(int64(n) * 32)
		e.work(gap / 8)
	case gap > 0 && n > cap(elems):
		e.charge(2 * 16 * int64(max(cap(elems), 32)))
	}
}

// refuseLonger stops the script if an array part of n elements is full: gopher-lua would put the next element where scripts do not
// find it.
func (e *Engine) refuseLonger(n int) {
	if n >= lua.MaxArrayIndex-1 {
		e.halt(msgMemory)
	}
}

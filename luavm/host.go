package luavm

import (
	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/luavm/internal/ext"
)

// host gives internal/auxlib and internal/ext access to an engine.
type host struct{ e *Engine }

var _ ext.Host = host{}

func (h host) Charge(bytes int64)                        { h.e.charge(bytes) }
func (h host) Work(steps int)                            { h.e.work(steps) }
func (h host) Throw(L *lua.LState, msg string)           { h.e.throw(L, msg) }
func (h host) ArgError(L *lua.LState, n int, why string) { h.e.argError(L, n, why) }
func (h host) Own(part string) lua.LString               { return h.e.own(part) }
func (h host) RawSet(L *lua.LState, t *lua.LTable, key, value lua.LValue) {
	h.e.setRaw(L, t, key, value)
}

package luavm

import (
	"testing"
	"time"
)

// TestDeepStacksEndFast: a script that is stopped deep in its calls ends at once, even below many protected calls. An error at that
// depth ends as fast.
func TestDeepStacksEndFast(t *testing.T) {
	for name, body := range map[string]string{
		"pcall":                "local function g(n) if n==0 then while true do end end return (pcall(g,n-1)) end g(150)",
		"xpcall":               "local function g(n) if n==0 then while true do end end return (xpcall(function() return g(n-1) end,type)) end g(60)",
		"coroutine":            "local function g(n) if n==0 then coroutine.wrap(function() while true do end end)() end return (pcall(g,n-1)) end g(60)",
		"a failing handler":    "while true do xpcall(error,function() error('x') end) end",
		"no room for handlers": "local function g(n) if n==0 then for i=1,5 do xpcall(error,type) end else pcall(g,n-1) end end for i=180,200 do g(i) end while true do end",
		"endless handlers":     "while true do xpcall(error,function() while true do end end) end",
	} {
		w := newWorld(t, Options{Now: tick(), TimeLimit: 300 * time.Millisecond})
		mustFail(t, w, "local function f(n) if n==0 then "+body+" end return (f(n-1)) end f(10000)", msgTime)
		if name == "a failing handler" {
			r := w.eval("return {xpcall(error,function() error('x') end)}")
			if got := wire(r, 2); got != "*2\r\n$-1\r\n$23\r\nerror in error handling\r\n" {
				t.Errorf("%q", got)
			}
		}
	}
}

// TestCallsOfHandlersAreSteps: the engine looks at the clock while handlers that run no instruction fail again and again.
func TestCallsOfHandlersAreSteps(t *testing.T) {
	looks := 0
	now := func() time.Duration { looks++; return time.Duration(looks) * time.Millisecond }
	w := newWorld(t, Options{Now: now, TimeLimit: time.Minute})
	const xpcalls, calls = 50, 220
	w.eval("for i=1,50 do xpcall(error,error) end")
	if least := xpcalls * calls * handlerSteps / 1024; looks < least {
		t.Errorf("the engine looked at the clock %d times, want at least %d", looks, least)
	}
}

package auxlib

import (
	"fmt"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
)

type errors struct{}

func (errors) ArgError(L *lua.LState, n int, why string) {
	L.Error(lua.LString(fmt.Sprintf("argument %d: %s", n, why)), 0)
}

func TestArgs(t *testing.T) {
	L := lua.NewState()
	defer L.Close()
	a := Args{Errors: errors{}}
	for name, fn := range map[string]func(*lua.LState) any{
		"any":       func(L *lua.LState) any { return a.Any(L, 1) },
		"string":    func(L *lua.LState) any { return a.String(L, 1) },
		"optstring": func(L *lua.LState) any { return a.OptString(L, 1, "def") },
		"number":    func(L *lua.LState) any { return a.Number(L, 1) },
		"int":       func(L *lua.LState) any { return a.Int(L, 1) },
		"optint":    func(L *lua.LState) any { return a.OptInt(L, 2, 7) },
		"cint":      func(L *lua.LState) any { return a.CInt(L, 1) },
		"optcint":   func(L *lua.LState) any { return a.OptCInt(L, 2, 7) },
		"table":     func(L *lua.LState) any { return TypeName(a.Table(L, 1)) },
		"func":      func(L *lua.LState) any { return TypeName(a.Function(L, 1)) },
	} {
		L.SetGlobal(name, L.NewFunction(func(L *lua.LState) int {
			L.Push(lua.LString(fmt.Sprint(fn(L))))
			return 1
		}))
	}
	for call, want := range map[string]string{
		"any(nil)": "nil", "any()": "argument 1: value expected",
		"string('x')": "x", "string(1.50)": "1.5", "string(true)": "argument 1: string expected, got boolean", "string()": "argument 1: string expected, got no value",
		"optstring()": "def", "optstring(nil)": "def", "optstring(2)": "2", "optstring({})": "argument 1: string expected, got table",
		"number(' 0x10 ')": "16", "number('x')": "argument 1: number expected, got string",
		"int(-3.9)": "-3", "int('1e3')": "1000", "int(1e300)": "-9223372036854775808",
		"optint(1)": "7", "optint(1, 2)": "2", "optint(1, {})": "argument 2: number expected, got table",
		"cint(4294967297)": "1", "optcint(1)": "7", "optcint(1, 4294967298)": "2",
		"table({})": "table", "table(nil)": "argument 1: table expected, got nil",
		"func(print)": "function", "func()": "argument 1: function expected, got no value",
	} {
		got := ""
		if err := L.DoString("return " + call); err != nil {
			got = err.(*lua.ApiError).Object.String()
		} else {
			got = L.Get(-1).String()
		}
		L.SetTop(0)
		if got != want {
			t.Errorf("%s: %q, want %q", call, got, want)
		}
	}
}

// limit is a number of bytes that a script may still take; a script that takes more ends by a panic.
type limit int64

func (l *limit) Charge(bytes int64) {
	if *l -= limit(bytes); *l < 0 {
		panic(*l)
	}
}

// A buffer charges for memory before it allocates the memory, and allocates no more than it has charged for.
func TestBuffer(t *testing.T) {
	left := limit(1 << 20)
	b := Buffer{Memory: &left}
	for range 1000 {
		b.Str("text")
		b.Byte(' ')
	}
	charged := 1<<20 - int64(left)
	if charged < int64(cap(b.B)) {
		t.Errorf("%d bytes are charged, %d taken", charged, cap(b.B))
	}
	if got, want := b.Text(), strings.Repeat("text ", 1000); got != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}

	left = 100
	b = Buffer{Memory: &left}
	func() {
		defer func() {
			if recover() == nil || len(b.B) > 0 {
				t.Errorf("beyond the limit it has %d bytes", len(b.B))
			}
		}()
		b.Str(strings.Repeat("x", 101))
	}()

	left = 1 << 20
	b = Buffer{Memory: &left}
	b.Room(1 << 10)
	b.Str("short")
	if got := b.Text(); got != "short" || cap(b.B) < 1<<10 {
		t.Errorf("%q of %d", got, cap(b.B))
	}
}

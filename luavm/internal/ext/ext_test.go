package ext

import (
	"fmt"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
)

// counting is a host that counts work and memory. Its errors are those of gopher-lua.
type counting struct {
	bytes int64
	steps int
}

func (h *counting) Charge(bytes int64)              { h.bytes += bytes }
func (h *counting) Work(steps int)                  { h.steps += steps }
func (h *counting) Throw(L *lua.LState, msg string) { L.Error(lua.LString(msg), 0) }
func (h *counting) ArgError(L *lua.LState, n int, why string) {
	L.Error(lua.LString(fmt.Sprintf("argument %d: %s", n, why)), 0)
}
func (h *counting) Own(part string) lua.LString { return lua.LString(strings.Clone(part)) }
func (h *counting) RawSet(L *lua.LState, t *lua.LTable, key, value lua.LValue) {
	t.RawSet(key, value)
}

// open makes a state whose globals are the libraries.
func open(t *testing.T) (*lua.LState, *Libraries, *counting) {
	t.Helper()
	L, host := lua.NewState(), &counting{}
	t.Cleanup(L.Close)
	lib := Open(host, L)
	for name, table := range lib.Tables {
		L.SetGlobal(name, table)
	}
	return L, lib, host
}

// result is what a script returns, or its error.
func result(L *lua.LState, script string) string {
	defer L.SetTop(0)
	if err := L.DoString(script); err != nil {
		return err.(*lua.ApiError).Object.String()
	}
	return L.Get(-1).String()
}

// Packed values can be unpacked unchanged, and the libraries raise errors through the host. The exact bytes are recorded from
// Redis, and tested by luavm.
func TestLibraries(t *testing.T) {
	L, _, _ := open(t)
	for script, want := range map[string]string{
		`return cjson.encode(cjson.decode('[1,"x",null,{"a":true},[2.5]]'))`:                   `[1,"x",null,{"a":true},[2.5]]`,
		`return cjson.encode({cmsgpack.unpack(cmsgpack.pack({1.5, 'x'}, -300, true))})`:        `[[1.5,"x"],-300,true]`,
		`return cjson.encode({struct.unpack('>I2c0d', struct.pack('>I2c0d', 3, 'abc', 0.5))})`: `["abc",0.5,14]`,
		`return bit.bxor(bit.bnot(bit.lshift(1, 31)), bit.bnot(0))`:                            "-2147483648",

		`return cjson.decode('[1')`:         "Expected comma or array end but found T_END at character 3",
		`return cjson.encode(print)`:        "Cannot serialise function: type not supported",
		`return cjson.encode(1, 2)`:         "argument 1: expected 1 argument",
		`return cjson.decode({})`:           "argument 1: string expected, got table",
		`return cjson.encode_max_depth(0)`:  "argument 1: expected integer between 1 and 2147483647",
		`return cmsgpack.unpack('\146\1')`:  "Missing bytes in input.",
		`return struct.unpack('I4', 'abc')`: "argument 2: data string too short",
		`return bit.band('x')`:              "argument 1: number expected, got string",
	} {
		if got := result(L, script); got != want {
			t.Errorf("%s\n got %q\nwant %q", script, got, want)
		}
	}
}

// When a script decodes the bytes of a client, the decoder charges memory for the result and counts steps.
func TestAllIsAccountedFor(t *testing.T) {
	for _, script := range []string{
		"return cjson.encode({s})", "return cjson.decode('\"' .. s .. '\"')", "return cjson.decode(cjson.encode({s}))[1]",
		"return cmsgpack.pack(s)", "return cmsgpack.unpack(cmsgpack.pack(s))", "return struct.pack('s', s)",
		"return #cjson.decode('[' .. s:gsub('.', '1,') .. '1]')", "return #{cmsgpack.unpack(('\\1'):rep(1000))}",
	} {
		L, _, host := open(t)
		got := result(L, "local s = ('x'):rep(1000) "+script)
		if size := max(int64(len(got)), 1000); len(got) < 4 || host.bytes < size || host.steps == 0 {
			t.Errorf("%s: %d bytes charged for %.20q of %d, %d steps", script, host.bytes, got, len(got), host.steps)
		}
	}
}

// Each cjson module has settings of its own; the global one gets its defaults back.
func TestSettings(t *testing.T) {
	L, lib, _ := open(t)
	const set = "other = cjson.new() cjson.encode_number_precision(3) cjson.encode_max_depth(5) "
	if got := result(L, set+"return cjson.encode(1/3) .. other.encode(1/3) .. other.encode_max_depth()"); got != "0.3330.333333333333331000" {
		t.Error(got)
	}
	if lib.JSON == defaultJSON {
		t.Error("the settings are those of the beginning")
	}
	lib.JSON.Reset()
	if got := result(L, "return cjson.encode(1/3) .. ' ' .. cjson.encode_max_depth()"); got != "0.33333333333333 1000" {
		t.Error(got)
	}
}

// A format may ask for a huge size. struct.pack takes that memory only if there is a string of that size.
func TestPackTakesWhatItPacks(t *testing.T) {
	L, _, host := open(t)
	if got := result(L, "return struct.pack('c30000000', 'x')"); got != "argument 3: string too short" || host.bytes > 1<<10 {
		t.Errorf("%s, and %d bytes are charged", got, host.bytes)
	}
	if got := result(L, "return struct.pack('!32bi32c3', 1, 2, 'abc'):len()"); got != "67" {
		t.Errorf("%s bytes", got)
	}
}

package luavm

import (
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/luavm/internal/compile"
)

// TestLinkSharesConstants: link adds one constant for a name, however often a script uses the name.
func TestLinkSharesConstants(t *testing.T) {
	w := newWorld(t, Options{})
	p, err := compile.Chunk("return redis.call, redis.call, KEYS, KEYS, math.log, redis.log, redis.call", "@x", 0, func(compile.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	// These are redis, redis.call, redis.log, KEYS, math and math.log.
	if got := len(w.e.link(p).Constants) - len(p.Constants); got != 6 {
		t.Errorf("%d constants were put in, want 6", got)
	}
}

// TestPlainScripts: the scripts of locks run without the hook. A script that may not end or that could run other code runs with the
// hook.
func TestPlainScripts(t *testing.T) {
	for script, plain := range map[string]bool{
		unlockScript: true,
		"if (redis.call('exists',KEYS[1])==0) or (redis.call('hexists',KEYS[1],ARGV[2])==1) then " +
			"redis.call('hincrby',KEYS[1],ARGV[2],1); redis.call('pexpire',KEYS[1],ARGV[1]); return nil; end; return redis.call('pttl',KEYS[1]);": true,
		"local v=redis.call('get',KEYS[1]) if v~=false then return tonumber(v) end return nil": true,
		"while true do end":              false,
		"repeat until false":             false,
		"for i=1,10 do end":              false,
		"for k,v in ipairs(KEYS) do end": false,
		"return KEYS[1]..'x'":            false,
		"return {KEYS[1]}":               false,
		"return loadstring(ARGV[1])()":   false,
		"return _G.loadstring(ARGV[1])":  false,
		"local f=function() end f()":     false,
		"return pcall(redis.call,'x')":   false,
		"x=1":                            false,

		"return KEYS." + strings.Repeat("a", longText): false,
	} {
		p, err := compile.Chunk(script, "@x", 0, func(compile.Progress) {})
		if err != nil {
			t.Fatal(err)
		}
		if isPlain(p) != plain {
			t.Errorf("plain: %v, want %v\n%s", !plain, plain, script)
		}
	}
}

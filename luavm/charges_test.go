package luavm

import (
	"runtime"
	"strings"
	"testing"
)

// TestChargesCoverAllocations: a script is charged about what it allocates. A measurement between instructions may be too late.
func TestChargesCoverAllocations(t *testing.T) {
	name := strings.Repeat("a", 50_000)
	for what, body := range map[string]string{
		"name in an error":             "pcall(function() t." + name + "() end)",
		"name of arithmetic":           "pcall(function() return t." + name + "+1 end)",
		"name of an argument":          "pcall(function() string.rep(t." + name + ",{}) end)",
		"name of a concatenation":      "pcall(function() return 'x'..t." + name + " end)",
		"__concat":                     "local r='a'..T..'b'..T..'c'..T",
		"cjson.new":                    "k[i]=cjson.new()",
		"decoded object":               "k[i]=cjson.decode('{\"a\":1}')",
		"decoded array":                "k[i]=cjson.decode('[1]')",
		"unpacked map":                 "k[i]=cmsgpack.unpack(packed)",
		"unpacked array":               "k[i]=cmsgpack.unpack(list)",
		"one key":                      "local s={} s.a=true k[i]=s",
		"one key in a constructor":     "k[i]={a=true}",
		"one other key":                "local s={} s[k]=true k[i]=s",
		"one element":                  "local s={} s[1]=true k[i]=s",
		"one element, inserted":        "local s={} table.insert(s,true) k[i]=s",
		"one element in a constructor": "k[i]={true}",
		"keys":                         "k['key'..i]=i",
		"fractions":                    "k[i+0.5]=i",
		"elements":                     "k[#k+1]=i",
		"table":                        "k[i]={}",
		"function":                     "k[i]=function() return k end",
		"coroutine":                    "k[i]=coroutine.create(function() coroutine.yield() end) coroutine.resume(k[i])",
		"wrap":                         "k[i]=coroutine.wrap(function() coroutine.yield() end) k[i]()",
		"registers":                    "local c=coroutine.create(function() local function rec(n,...) if n==0 then coroutine.yield() end return (rec(n-1,unpack(many))) end rec(5) end) coroutine.resume(c) k[i]=c",
		"vararg":                       "k[i]=(function(...) return select('#',...) end)(unpack(many))",
		"pack":                         "k[i]={unpack(many)}",
		"byte":                         "k[i]={string.byte(long,1,200)}",
		"char":                         "k[i]=string.char(unpack(bytes))",
		"rep":                          "k[i]=long:rep(3)",
		"sub":                          "k[i]=long:sub(1,500)",
		"gsub":                         "k[i]=long:gsub('x','yy')",
		"format":                       "k[i]=string.format('%s%5.1f',long,i)",
		"number to string":             "k[i]=tostring(i+0.25)",
		"concat":                       "k[i]=long..i",
		"table.concat":                 "k[i]=table.concat(bytes,',')",
		"command":                      "k[i]=redis.call('echo',long)",
		"command with many":            "k[i]=redis.call('exists',unpack(bytes))",
		"reply of many":                "k[i]=redis.call('lrange','list',0,-1)",
		"error of a command":           "k[i]=redis.pcall('get')",
		"error":                        "k[i]=select(2,pcall(error,long))",
		"error of a table":             "k[i]=select(2,pcall(error,{}))",
		"loadstring":                   "k[i]=loadstring('return '..i)",
		"gmatch":                       "k[i]=long:gmatch('x')",
		"struct":                       "k[i]=struct.pack('s',long)",
		"sha1":                         "k[i]=redis.sha1hex(i)",
		"status":                       "k[i]=redis.status_reply(long)",
		"setmetatable":                 "k[i]=setmetatable({},{})",
	} {
		w := newWorld(t, Options{MemoryLimit: 1 << 30})
		w.eval("redis.call('rpush','list',1,2,3,4,5,6,7,8,9,10)")
		const head = "local long,k,t=string.rep('x',1000),{},{} local bytes,many={},{} for i=1,200 do bytes[i]=65+i%20 end " +
			"for i=1,3000 do many[i]=true end local packed,list=cmsgpack.pack({a=1}),cmsgpack.pack({1}) " +
			"local S=string.rep('x',1e4) local T=setmetatable({},{__concat=function(a,b) return S end}) "
		run := func(n string) (took, charged int64) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := w.eval(head + "for i=1," + n + " do " + body + " end return 'done'")
			runtime.ReadMemStats(&after)
			if r.Str != "done" {
				t.Fatalf("%s: %s", what, r.Str)
			}
			return int64(after.TotalAlloc - before.TotalAlloc), w.e.spent
		}
		run("10")
		none, noneCharged := run("0")
		took, charged := run("200")
		took, charged = took-none, charged-noneCharged
		if 2*took > 3*charged {
			t.Errorf("%s: allocated %d bytes, charged for %d", what, took, charged)
		}
	}
}

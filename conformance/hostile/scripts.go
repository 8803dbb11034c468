package hostile

import (
	"fmt"
	"strings"

	"github.com/lockstep-io/lockstep/conformance/hostile/scripts"
)

// edges has scripts that test the edges of the sandbox. A number takes the place of each %d.
var edges = []string{
	// These try to write what is read-only.
	`local t=setmetatable({},{__newindex=_G}) t.foo=1 return 1`,
	`local t=setmetatable({},{__newindex=string}) t.rep=function() while true do end end return 1`,
	`local t=setmetatable({},{__newindex=setmetatable({},{__newindex=redis})}) t.call=function() return 1 end return 1`,
	`local t=setmetatable({},{__newindex=_G}) t.tostring=function() while true do end end return 1`,
	`local t=setmetatable({},{__newindex=cjson}) t.encode=nil return 1`,
	`rawset(_G,'x',1) return 1`, `_G.x=1`, `x=1`, `string.rep=1`, `redis.call=1`, `cjson.null=1`, `table.insert(_G,1) return 1`, `table.insert(redis,'call',1)`,
	`table.remove(string) return 1`, `table.sort(_G) return 1`, `getmetatable(_G).__index=function() return 7 end return 1`, `getmetatable('').__index=nil return 1`,
	`getmetatable('').__add=function() return 1 end return 1`, `setmetatable(_G,{}) return 1`, `setmetatable(string,nil) return 1`, `setmetatable(redis,{__index=function() return 1 end})`,
	`setfenv(0,{}) return 1`, `setfenv(1,{redis=redis}) x=1 return x`, `setfenv(tostring,{}) return 1`, `getfenv(0).x=1 return 1`, `getfenv(redis.call).x=1 return 1`, `local e=getfenv() e.x=1 return 1`,
	`local f=loadstring('x=1') f() return 1`, `return setfenv(loadstring('x=1 return x'),{})()`, `debug.sethook(function() end,'',1)`, `debug.setmetatable(1,{__index=_G})`, `newproxy(true)`, `module('x')`, `require('os')`, `os.exit(1)`, `io.open('/etc/passwd')`, `dofile('/etc/passwd')`, `loadfile('/etc/passwd')`,
	`for k,v in pairs(_G) do if type(v)=='table' then pcall(function() v.evil=1 end) pcall(rawset,v,'evil',1) pcall(table.insert,v,1) end end return 1`,
	`for k,v in pairs(_G) do if type(v)=='table' then local t=setmetatable({},{__newindex=v}) pcall(function() t.evil=1 t[1]=1 end) end end return 1`,
	`_G._G=nil`, `next(_G,nil) _G[next(_G)]=nil`, `for k in pairs(string) do string[k]=nil end`, `KEYS=1 return KEYS`, `ARGV[1]=2 KEYS[5]=1 return 1`,
	// These nest deeply.
	`cjson.encode_max_depth(1e9) local t={} t[1]=t return cjson.encode(t)`, `cjson.decode_max_depth(1e9) return cjson.decode(string.rep('[',%d))`, `local t={} t[1]=t return cmsgpack.pack(t)`, `local t={} t.t=t return t`,
	`local t={} for i=1,%d do t={t} end return t`, `local t={} for i=1,%d do t={t} end return cjson.encode(t)`, `local t={} for i=1,%d do t={t} end return #cmsgpack.pack(t)`, `return cmsgpack.unpack(string.rep('\145',%d))`,
	`local function f(n) return n==0 and 0 or 1+f(n-1) end return f(%d)`, `local function f() return f() end return f()`, `local function f() return pcall(f) end return f()`, `local f f=function() return coroutine.wrap(f)() end return f()`,
	`local m={} m.__index=function(t,k) return t[k] end return setmetatable({},m).x`, `local a,b={},{} setmetatable(a,{__index=b}) setmetatable(b,{__index=a}) return a.x`, `local m={} m.__tostring=function(t) return tostring(t) end return tostring(setmetatable({},m))`,
	`local m={} m.__call=m setmetatable(m,m) return m()`, `local m={} m.__concat=function(a,b) return a..b end return setmetatable({},m)..'x'`, `local m={} m.__eq=function(a,b) return a==b end return setmetatable({},m)==setmetatable({},m)`,
	`return loadstring(string.rep('(',%d)..'1'..string.rep(')',%d))`, `return loadstring('return '..string.rep('{',%d)..string.rep('}',%d))`, `return loadstring('return '..string.rep('-',%d)..'1')`, `return loadstring(string.rep('do ',%d)..string.rep(' end',%d))`, `return loadstring('return '..string.rep('"a"..',%d)..'1')`,
	`return string.find(string.rep('a',%d),string.rep('a?',%d)..'b')`, `return string.find(string.rep('(',%d),string.rep('(',%d))`, `return string.match(string.rep('x',%d),'(.-)(.-)(.-)y')`, `return string.gsub(string.rep('a',%d),'.','%%0%%0%%0')`,
	// These make large values.
	`return string.rep('x',%d)`, `return #string.rep('x',2^31)`, `return #string.rep('x',-1)`, `return string.rep('x',1e300)`, `return string.rep(string.rep('x',1e6),%d)`, `local s='x' while true do s=s..s end`, `local t={} for i=1,1e9 do t[i]=i end`, `local s=string.rep('x',2e8) error(s)`,
	`return redis.status_reply(string.rep('x',%d))`, `return redis.error_reply(string.rep('x',2e8))`, `return {err=string.rep('x',%d)}`, `return {ok=string.rep('x',%d)}`, `return cjson.encode({string.rep('\1',4e7)})`, `return #cjson.encode({string.rep('\1',%d)})`, `local s=string.rep('x',1e7) local t={} for i=1,1000 do t[i]=s end return t`,
	`local s=string.rep('x',1e7) local t={} for i=1,1000 do t[i]=s end return #cmsgpack.pack(t)`, `local s=string.rep('x',1e7) local t={} for i=1,1000 do t[i]=s end return #table.concat(t)`, `local s=string.rep('x',1e7) for i=1,1000 do redis.call('PUBLISH','evil:c',s) end`, `local s=string.rep('x',1e7) for i=1,1000 do redis.call('SET','evil:'..i,s) end`,
	`local s=string.rep('x',1e7) for i=1,1000 do redis.call('APPEND','evil:a',s) end`, `return string.format('%%99999d',1)`, `return string.format(string.rep('%%99d',%d),1)`, `return string.format('%%s',string.rep('x',%d))`, `return #string.format('%%q',string.rep('\0',%d))`,
	`return struct.pack('s'..%d,'x')`, `return struct.unpack('I'..%d,'x')`, `return struct.size('c'..%d)`, `return struct.size(string.rep('i',%d))`, `return struct.pack(string.rep('i1',%d),1)`, `return struct.unpack('c0',string.rep('x',10))`, `return struct.unpack('>!16 i32 s',string.rep('x',%d))`, `return struct.pack('c'..%d,'x')`,
	`return unpack({},1,%d)`, `return unpack({},-2^31,2^31)`, `return select(%d,1)`, `return select(-1,unpack({},1,%d))`, `return table.concat({},'x',1,%d)`, `return string.byte(string.rep('x',%d),1,-1)`, `return string.char(unpack({},1,%d))`, `local t={} t[%d]=1 return #t`, `local t={} for i=1,%d do t[i]=1 end return {unpack(t)}`,
	`redis.call('SET',unpack({},1,%d))`, `local t={} for i=1,%d do t[i]='evil:'..i end return redis.call('MGET',unpack(t))`, `redis.log(redis.LOG_WARNING,string.rep('x',%d))`, `for i=1,%d do redis.log(redis.LOG_WARNING,'evil') end`, `return tostring(0/0)..tonumber(string.rep('9',%d))`, `return tonumber('z',%d)`, `return math.random(%d,-%d)`, `return 2^%d`,
	`cjson.encode_sparse_array(true,1,1) local t={} t[%d]=1 return #cjson.encode(t)`, `cjson.encode_number_precision(%d) return cjson.encode(1/3)`, `cjson.encode_keep_buffer(false) return 1`, `cjson.encode_invalid_numbers(true) return cjson.encode(0/0)`, `cjson.decode_invalid_numbers(false) return cjson.decode('nan')`, `return cjson.new().encode({})`, `return cjson.decode(string.rep('1',%d))`, `return cjson.decode('"\\ud800"')`, `return cjson.decode('['..string.rep('{},',%d)..'1]')`,
	`return cmsgpack.unpack('\221\255\255\255\255')`, `return cmsgpack.unpack('\219\255\255\255\255x')`, `return cmsgpack.unpack_limit(string.rep('\1',%d),%d,0)`, `return cmsgpack.unpack_one('\1',%d)`, `return cmsgpack.unpack('\199\255\1')`, `return bit.lshift(1,%d)`, `return bit.tohex(1,%d)`, `return bit.bswap(%d)`,
	// These raise errors.
	`error()`, `error(nil)`, `error({})`, `error({err='x'})`, `error({err=string.rep('e',%d)})`, `error(setmetatable({},{__tostring=function() return string.rep('x',%d) end}))`, `error(function() end)`, `return redis.error_reply('\r\n+OK\r\n')`, `return redis.status_reply('\r\n$1\r\nx\r\n')`, `return {err='a\r\nb'}`, `error('\r\n:1\r\n')`, `error(setmetatable({},{__index=function() error('again') end}))`,
	`return redis.pcall('GET')`, `return redis.pcall('nosuch',string.rep('x',%d))`, `redis.call()`, `redis.call(nil)`, `redis.call({})`, `redis.call(1)`, `redis.call(string.rep('x',%d))`, `redis.call('GET',{})`, `redis.call('EVAL','return 1',0)`, `redis.call('MULTI')`, `redis.call('BLPOP','evil:none',0)`, `redis.call('SUBSCRIBE','evil:c')`, `redis.call('SCRIPT','FLUSH')`, `redis.call('AUTH','x')`, `redis.call('HELLO','3')`, `redis.call('CLIENT','KILL','TYPE','normal')`, `redis.call('SHUTDOWN')`,
	`redis.setresp(3) return redis.call('HGETALL','evil:hash')`, `redis.setresp(%d)`, `redis.set_repl(%d)`, `redis.replicate_commands() return 1`, `redis.breakpoint()`, `redis.debug('x')`, `return redis.acl_check_cmd('GET','secret:string')`, `return redis.sha1hex(string.rep('x',%d))`, `return redis.register_function('x',function() end)`,
	// These call commands in callbacks.
	`local t={} for i=1,100 do t[i]=i end table.sort(t,function(a,b) redis.call('SET','evil:'..a,b) return true end) return 1`, `local t={} for i=1,%d do t[i]=i%%7 end table.sort(t,function() return true end) return 1`, `table.sort({1,2,3},function() error({}) end)`, `table.sort({3,2,1},function() coroutine.yield() end)`, `table.sort({1,'x',{}})`,
	`return string.gsub(string.rep('a',%d),'a',function() redis.call('INCR','evil:n') end)`, `local c=coroutine.wrap(function() while true do coroutine.yield(redis.call('INCR','evil:n')) end end) for i=1,%d do c() end return c()`, `coroutine.yield(1)`, `return coroutine.resume(coroutine.running())`, `local c c=coroutine.create(function() return coroutine.resume(c) end) return coroutine.resume(c)`, `for i=1,%d do coroutine.create(function() end) end return 1`,
	`local t={} for i=1,%d do t[i]=coroutine.wrap(function() coroutine.yield() end) t[i]() end return #t`, `return pcall(pcall,pcall,pcall,error)`, `return xpcall(function() error('x') end,function(e) return xpcall(error,error) end)`, `return xpcall(function() local function f() return f()+1 end f() end,function(e) return string.rep('x',%d) end)`,
	`setmetatable({},{__gc=function() redis.call('SET','evil:gc',1) end}) collectgarbage() return 1`, `collectgarbage('setpause',%d) return collectgarbage('count')>0`, `setmetatable({},{__mode='k'}) return 1`, `local t=setmetatable({},{__len=function() return %d end}) return #t`, `return setmetatable({},{__index=function(t,i) if i<%d then return i end end})`,
	// These use bytecode.
	`return string.dump(function() end)`, `return loadstring('\27Lua'..string.rep('x',100))`, `return loadstring(string.dump(function() end))`, "#!lua flags=no-writes\nredis.call('SET','evil:1',1)", "#!lua flags=" + `%d` + "\nreturn 1", "#!python\nreturn 1", "#!lua name=x\nreturn 1",
}

// edgy makes inputs from edges, with numbers filled in, and from scripts of the grammar, in turn.
func edgy(g *generator) (list []input) {
	for range 3 {
		var pieces [][]byte
		for range 15 {
			pieces = append(pieces, script(g.filled(pick(g, edges...))), command(scripts.Generate(g.Uint64()).Command()...))
		}
		list = append(list, input{door: clientDoor, node: g.node(), user: wide, pieces: pieces, read: readEach, script: true})
	}
	return list
}

// likeRedis makes scripts to which lockstep must reply as redis-server does. The scripts' keys are deleted before each script.
func likeRedis(g *generator) []input {
	var pieces [][]byte
	for len(pieces) < 120 {
		if s := scripts.Generate(g.Uint64()); !s.Loose {
			pieces = append(pieces, command("DEL", "evil:1", "evil:2"), command(s.Command()...))
		}
	}
	return []input{{door: clientDoor, node: g.node(), user: wide, pieces: pieces, read: readEach, script: true, beside: true}}
}

// filled puts numbers in the places of %d.
func (g *generator) filled(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var args []any
	for range strings.Count(strings.ReplaceAll(text, "%%", ""), "%") {
		args = append(args, pick(g, 0, 1, 2, 100, 199, 200, 250, 1000, 10_000, 65_536, 1_000_000, 2_147_483_647, g.size()))
	}
	return fmt.Sprintf(text, args...)
}

// loops has scripts that never end by themselves, or that catch the error that should end them.
var loops = []string{
	`while true do end`, `repeat until false`, `for i=1,1e300 do end`, `::a:: goto a`, `local function f() return f() end f()`, `while true do pcall(function() while true do end end) end`, `while true do pcall(error) end`,
	`while true do redis.pcall('SET','evil:x',1) end`, `local t={} while true do table.insert(t,1) table.remove(t) end`, `table.sort({1,2,3,4,5,6,7,8},function() while true do end end)`, `string.gsub(string.rep('a',100),'a',function() while true do end end)`,
	`coroutine.wrap(function() while true do end end)()`, `while true do coroutine.wrap(function() coroutine.yield() end)() end`, `local c=coroutine.wrap(function() while true do coroutine.yield() end end) while true do c() end`, `return setmetatable({},{__index=function() while true do end end}).x`,
	`return tostring(setmetatable({},{__tostring=function() while true do end end}))`, `error(setmetatable({},{__tostring=function() while true do end end}))`, `xpcall(function() while true do end end,function() while true do end end)`, `for w in function() return 1 end do end`, `for k in string.gmatch(string.rep('a',1e7),'') do end`,
	`return string.find(string.rep('a',3e4),string.rep('.-',20)..'b')`, `return string.rep(string.rep('a',1e6),100):find('a*a*a*b')`, `while true do string.rep('x',1e6) end`, `while true do cjson.encode({1}) end`, `while true do cjson.decode('[]') end`, `return cjson.decode('['..string.rep('1,',2e7)..'1]')`, `while true do cmsgpack.pack(1) end`,
	`return struct.size(string.rep('i',2e8))`, `while true do struct.pack('i',1) end`, `local t={} for i=1,1e5 do t[i]=i end while true do unpack(t,1,7000) end`, `while true do local t={} for i=1,1000 do t[i]={} end end`, `local t={} for i=1,3e5 do t[i]=tostring(i) end while true do table.concat(t) end`, `local t={} for i=1,3e5 do t[i]=-i end while true do table.sort(t) end`,
	`while true do redis.sha1hex(string.rep('x',1e6)) end`, `while true do redis.call('ZADD','evil:z',math.random(),math.random()) end`, `while true do redis.call('PUBLISH','evil:c','x') end`, `while true do redis.log(redis.LOG_WARNING,'x') end`, `while true do loadstring('return '..string.rep('1+',1000)..'1') end`, `local t={} while true do t={t} end`,
}

// endless makes scripts that run until they are stopped, some of them in a function or in a transaction.
func endless(g *generator) (list []input) {
	var pieces [][]byte
	for range 5 {
		text := pick(g, loops...)
		switch g.IntN(4) {
		case 0:
			pieces = append(pieces, command("FUNCTION", "LOAD", "REPLACE", "#!lua name=endless\nredis.register_function('endless', function() "+text+" end)"), command("FCALL", "endless", "0"))
		case 1:
			pieces = append(pieces, command("MULTI"), script(text), command("EXEC"))
		default:
			pieces = append(pieces, script(text))
		}
	}
	load := command("FUNCTION", "LOAD", "#!lua name=load\n"+pick(g, loops...))
	return []input{
		{door: clientDoor, node: g.node(), user: wide, pieces: pieces, read: readEach, script: true},
		{door: clientDoor, node: g.node(), user: wide, pieces: [][]byte{load}, read: readEach, script: true},
		{door: clientDoor, node: g.node(), user: narrow, pieces: [][]byte{script(pick(g, loops...))}, read: readNone, script: true},
	}
}

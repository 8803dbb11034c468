package scripts

// productions has, for each $NAME, the function that makes the text for it. In contexts, $$ stands for the statement.
var productions map[string]func(*generator) string

func init() {
	word := func(list ...string) func(*generator) string {
		return func(g *generator) string { return g.fill(g.pick(list...)) }
	}
	productions = map[string]func(*generator) string{
		"SHARED":  word("_G", "_G", "string", "redis", "cjson", "math", "table", "cmsgpack", "struct", "bit", "coroutine", "getmetatable('')", "getmetatable(_G)"),
		"ANY":     word("$SHARED", "$SHARED", "KEYS", "ARGV", "{}", "cjson.new()", "setmetatable({},getmetatable(_G))", "setmetatable({},getmetatable(''))", "setmetatable({},$SHARED)", "setmetatable({},{__index=$SHARED})"),
		"CHAIN":   word("$ANY", "setmetatable({},{__newindex=$CHAIN})", "setmetatable({},{__newindex=$CHAIN,__index=$SHARED})", "setmetatable({a=1},{__newindex=$CHAIN})"),
		"KEY":     word("'evil'", "'tostring'", "'call'", "'rep'", "'encode'", "1", "'__index'", "'__newindex'", "2.5", "true", "'a'", "100"),
		"VALUE":   word("nil", "true", "false", "0", "-1", "3.75", "1e15", "2^53", "'x'", "'7'", "' 0x10 '", "''", "{}", "{1,2,3}", "{a=1}", "{1,nil,3}", "function() end", "tostring", "$TEXT", "$NUMBER", "cjson.null", "{err='E x'}", "{ok='fine'}", "{{{1}}}"),
		"NUMBER":  word(numbers...),
		"SMALL":   word("-2", "-1", "0", "1", "2", "3", "7", "'2'", "1.5"),
		"SIZE":    word("0", "1", "2", "10", "31", "32", "33", "100", "255", "256", "1000"),
		"DEPTH":   word("1", "10", "100", "190", "195", "198", "199", "200", "201", "250"),
		"DEEP":    word("10", "500", "999", "1000", "1001", "2000", "3999", "4001", "7990", "7997", "7999", "9000"),
		"TEXT":    word("'abc'", "'a b'", `'a\0b'`, `'\r\nx'`, `'-ERR x'`, `'E'`, "''", `'\255\254'`, "('x'):rep($SIZE)", "'%d'", "'a/b\"c'", "'0x1p4'", "'1e5'", "'  12  '", `'\1\2\31'`),
		"LAMBDA":  word("function(...) return ... end", "function() return 1 end", "function() error('l') end", "function(a) return a end", "function(a,b) return a<b end", "function() return redis.call('PING').ok end", "function(a,b) return b end", "function() end", "tostring", "type", "function() return {} end"),
		"PATTERN": word("'a'", "'.'", "'.-'", "'%w+'", "'^a'", "'(.)(.)'", "'[a-c]'", "'[^a]*'", "'%b()'", "'%f[%w]'", "'()'", "'%1'", "'(.)%1'", "'['", "'%'", "'(a'", "'a)'", "'[]a]'", "'[%a_-]+'", "'.*b?'", "'%z'", "'[a-'", "'%f'", "'%b'", "('(a)'):rep(33)", "('a?'):rep(10)", "'[%]'"),
		"SUBJECT": word("'abcabc'", "'hello world'", "''", `'a\0b\0'`, "'(a(b)c)'", "('ab'):rep(20)", "'aaaa'", "'THE (quick) fox'", "12345"),
		"REPL":    word("'%0%0'", "'%1'", "'%2'", "'x'", "'%'", "'%%'", "$LAMBDA", "{a='A',b=false}", "setmetatable({},{__index=$LAMBDA})", "7", "'%9'"),
		// __unm is left out, because Redis's Lua passes its operand twice and lockstep passes it once (luavm/doc.go).
		"EVENT":     word("__index", "__newindex", "__call", "__add", "__concat", "__eq", "__lt", "__le", "__tostring", "__metatable", "__mode", "__gc", "__mod", "__div"),
		"FORMAT":    word("'%d'", "'%5.2f'", "'%s'", "'%q'", "'%x'", "'%-10s|'", "'%+d'", "'%c'", "'%g'", "'%e'", "'%o'", "'%i'", "'%u'", "'%05d'", "'%.3s'", "'%#x'", "'%'", "'%y'", "'%100d'", "'%.100f'", "'%s%s'", "'%5'", "'% d'", "'%%'", "'%.0f'", "'%-+ #0d'"),
		"PACK":      word("'b'", "'B'", "'h'", "'H'", "'l'", "'i2'", "'i8'", "'>i4'", "'<I3'", "'f'", "'d'", "'s'", "'c3'", "'c0'", "'x'", "'!4i4'", "'i33'", "'!3'", "'z'", "'bc0'", "'i0'", "'>!8bd'", "'c999'", "'Bc0'", "'i16'"),
		"JSON":      word(`'[]'`, `'{}'`, `'[1,2,{"a":null}]'`, `'nan'`, `'[1e5,-0,0x1F]'`, `'"\\u00e9\\n"'`, `'[1,]'`, `'{"a"}'`, `'{"a":1,"a":2}'`, `'tru'`, `'"\\ud800"'`, `'[1'`, `' 1 '`, `'""x'`, `'01'`, `'-'`, `'1.5e'`, `'"\\ud83d\\ude00"'`, `('['):rep($DEEP)`, `('['):rep($DEEP)..(']'):rep($DEEP)`, `('{"a":'):rep($DEEP)`, `'[Infinity]'`, `'"\1"'`),
		"BYTES":     word(`'\145'`, `'\129'`, `'\192'`, `'\204'`, `'\205\1'`, `'\211\255\255\255\255\255\255\255\255'`, `'\217\5ab'`, `'\220\0\2\1\1'`, `'\222\0\1\161a\1'`, `'\202\63\128\0\0'`, `'\203\63\240\0\0\0\0\0\0'`, `'\199\1\1x'`, `('\145'):rep($DEEP)`, `('\129'):rep($DEEP)`, `'\193'`, `cmsgpack.pack($VALUE)`, `'\219\255\255\255\255'`, `'\221\0\0\0\1'`),
		"COMMAND":   word("'GET',KEYS[1]", "'SET',KEYS[1],$TEXT", "'INCR',KEYS[2]", "'LRANGE',KEYS[1],0,-1", "'HGETALL',KEYS[2]", "'NOSUCH'", "'GET'", "'EVAL','return 1',0", "'MULTI'", "'PING'", "'RPUSH',KEYS[2],1,2,3", "'DEL',KEYS[1],KEYS[2]", "'TYPE',KEYS[1]", "'SUBSCRIBE','x'", "$VALUE", "$NUMBER", "'ECHO',$NUMBER", "'ECHO',$TEXT", "'SETEX',KEYS[1],$NUMBER,'x'", "'APPEND',KEYS[1],$TEXT", "'GETRANGE',KEYS[1],$SMALL,$SMALL", "'EXISTS',KEYS[1],KEYS[2]", "'BLPOP',KEYS[1],0"),
		"NEST":      word(nesters...),
		"STATEMENT": func(g *generator) string { return g.fill(g.pick(writes...)) },
	}
}

var numbers = []string{"0", "1", "-1", "2", "100", "255", "256", "65535", "65536", "2147483647", "-2147483648", "4294967296", "9007199254740993", "1e15", "1e100", "-1e100", "0.1", "-0.5", "1/0", "-1/0", "0/0", "3.7", "1e308", "2^63", "-2^63"}

// writes are the ways to write a table. The scripts use them on tables that all scripts share.
var writes = []string{
	"local t=$CHAIN t[$KEY]=$VALUE return rawget(t,$KEY)", "local t=$CHAIN t.evil=$VALUE", "local t=$CHAIN t.tostring,t.call=$VALUE,$VALUE", "rawset($ANY,$KEY,$VALUE)",
	"local t=setmetatable({},{__newindex=rawset}) t[$KEY]=$VALUE return t", "local t=setmetatable({},{__newindex=function(t,k,v) rawset($ANY,k,v) end}) t[$KEY]=$VALUE", "local t=setmetatable({},{__newindex=function(t,k,v) local s=$ANY s[k]=v end}) t[$KEY]=$VALUE",
	"setmetatable($ANY,$VALUE)", "setmetatable($ANY,{__newindex=$CHAIN})", "setmetatable($CHAIN,{__metatable=$VALUE})", "table.insert($ANY,$VALUE)", "table.insert($ANY,$SMALL,$VALUE)",
	"return table.remove($ANY)", "return table.remove($ANY,$SMALL)", "table.sort($ANY)", "table.sort($ANY,$LAMBDA)", "evil=$VALUE", "KEYS=$VALUE", "string.evil=$VALUE", "function redis.call() end",
	"return getmetatable($ANY)==nil", "local m=getmetatable($ANY) if m then m[$KEY]=$VALUE end", "for k in pairs($SHARED) do local t=$SHARED t[k]=nil end", "table.foreach($SHARED,function(k) local t=$SHARED t[k]=nil end)",
	"local t=setmetatable({},{__newindex=$VALUE}) t[$KEY]=$VALUE", "__redis__err__handler($ANY)", "loadstring('evil=1')()", "loadstring('local t=... t.evil=1')($CHAIN)", "local t=$CHAIN local function f(...) t.evil=... end f($VALUE)",
	"local t=$CHAIN for i=1,3 do t[i]=i end", "table.setn($ANY,$SMALL)", "local a=$CHAIN a.b=a.c a.b=nil", "return next($SHARED)~=nil", "local t={} setmetatable(t,t) t.__newindex=$CHAIN t.__index=t t[$KEY]=1",
	"KEYS[$SMALL]=$VALUE return KEYS", "ARGV.x=$VALUE return #ARGV", "return rawequal($ANY,$ANY)", "local r=redis.pcall($COMMAND) if type(r)=='table' then r.evil=1 end return r",
}

// nesters are statements that go one level deeper by calling f(n-1), where f is the function that contains them.
var nesters = []string{
	"return string.gsub('x','x',function() f(n-1) end)", "table.sort({2,1},function() f(n-1) end)", "return pcall(f,n-1)", "local a=f(n-1) return a", "return f(n-1)", "return coroutine.wrap(f)(n-1)", "return setmetatable({},{__index=function() return f(n-1) end}).x",
	"setmetatable({},{__newindex=function() f(n-1) end}).x=1", "return setmetatable({},{__add=function() return f(n-1) end})+1", "return setmetatable({},{__concat=function() return f(n-1) end})..'x'", "return tostring(setmetatable({},{__tostring=function() f(n-1) return 'x' end}))",
	"return setmetatable({},{__call=function() return f(n-1) end})()", "table.foreach({1},function() f(n-1) end)", "for _ in function() f(n-1) end do end", "return xpcall(function() return f(n-1) end,function(e) return e end)", "return loadstring('return ...')(f(n-1))",
	"return -setmetatable({},{__unm=function() return f(n-1) end})", "local m={__lt=function() return f(n-1) end} return setmetatable({},m)<setmetatable({},m)", "local m={__eq=function() return f(n-1) end} return setmetatable({},m)==setmetatable({},m)", "return select('#',coroutine.resume(coroutine.create(f),n-1))", "string.gsub('x','.',setmetatable({},{__index=function() f(n-1) end}))",
}

// nestings are statements that nest deeply.
var nestings = []string{
	"local f f=function(n) if n<=0 then return 'end' end $NEST end return f($DEPTH)", "local f f=function(n) if n<=0 then return 'end' end if n%2==0 then $NEST else $NEST end end return f($DEPTH)",
	"local f f=function(n) if n<=0 then error($VALUE) end $NEST end return f($DEPTH)", "local f f=function(n) if n<=0 then $STATEMENT end $NEST end return f($DEPTH)", "local t={} for i=1,$DEEP do t={t} end cjson.encode_max_depth($NUMBER) return #cjson.encode(t)",
	"local t={} for i=1,$DEEP do t={a=t} end cjson.encode_max_depth(1e9) return #cjson.encode(t)", "local t={} t[1]=t cjson.encode_max_depth(1e8) return cjson.encode(t)", "cjson.decode_max_depth(1e9) return type(cjson.decode($JSON))", "return type(cjson.decode($JSON))",
	"return cmsgpack.unpack($BYTES)", "local t={} for i=1,$DEEP do t={t} end return #cmsgpack.pack(t)", "return loadstring('return '..('('):rep($DEPTH)..'1'..(')'):rep($DEPTH))~=nil", "return select(2,loadstring('return '..('{'):rep($DEPTH)..('}'):rep($DEPTH)))", "return select(2,loadstring(('do '):rep($DEPTH)..(' end'):rep($DEPTH)))",
	"return select(2,loadstring('return '..('-'):rep($DEPTH)..'1'))", "return select(2,loadstring('return '..('not '):rep($DEPTH)..'1'))", "return select(2,loadstring('return '..('\"\"..'):rep($DEPTH)..'1'))", "return select(2,loadstring('local a '..('a,'):rep($DEPTH)..'a=1'))", "return select(2,loadstring(('local function f() '):rep($DEPTH)..(' end'):rep($DEPTH)))",
	"local t={} for i=1,$DEPTH do t=setmetatable({},{__index=t}) end return t.x", "local t={x=1} for i=1,$DEPTH do t=setmetatable({},{__newindex=t}) end t.x=1 return t.x", "local t={} t[t]=table.foreach table.foreach(t,table.foreach)", "return tostring(setmetatable({},{__tostring=tostring}))",
}

// contexts are texts that run a statement indirectly, for example in a callback.
var contexts = []string{
	"return coroutine.wrap(function() $$ end)()", "return pcall(function() $$ end)", "return xpcall(function() $$ end,function(e) return {e} end)", "return string.gsub('x','x',function() $$ end)", "table.sort({2,1},function() $$ end)", "return setmetatable({},{__index=function() $$ end}).x",
	"return tostring(setmetatable({},{__tostring=function() $$ end}))", "return select(2,coroutine.resume(coroutine.create(function() $$ end)))", "table.foreach({1},function() $$ end)", "return xpcall(error,function() $$ end)", "local t=setmetatable({},{__call=function() $$ end}) return t()", "for x in function() $$ end do break end",
}

var settings = []string{
	"return cjson.encode_max_depth($NUMBER)", "return cjson.decode_max_depth($SMALL)", "return cjson.encode_number_precision($SMALL),cjson.encode({1/3})", "return cjson.encode_sparse_array($VALUE,$SMALL,$SMALL)", "cjson.encode_sparse_array(true) return cjson.encode({[1]=1,[$SIZE]=2})", "return cjson.encode_invalid_numbers($VALUE)",
	"cjson.encode_invalid_numbers('null') return cjson.encode({0/0,1/0})", "cjson.decode_invalid_numbers($VALUE) return cjson.decode($JSON)", "return cjson.encode($VALUE)", "return cjson.encode({$VALUE,$VALUE})", "return cjson.decode($JSON)", "return cjson.decode($TEXT)", "return cjson.encode({[$KEY]=$VALUE})",
	"local c=cjson.new() c.encode_number_precision(3) return c.encode(1/3),cjson.encode(1/3)", "redis.setresp($SMALL)", "redis.setresp(3) return redis.call($COMMAND)", "redis.set_repl($SMALL)", "return cjson.encode_keep_buffer($VALUE)", "return cjson.encode(setmetatable({},{__index=$SHARED}))", "return cjson.encode({[1.5]=1})", "return cjson.encode($NUMBER)",
}

var packing = []string{
	"return cmsgpack.unpack($BYTES)", "return cmsgpack.unpack_one($BYTES,$SMALL)", "return cmsgpack.unpack_limit($BYTES,$SMALL,$SMALL)", "return cmsgpack.pack($VALUE,$VALUE)", "return cmsgpack.unpack(cmsgpack.pack($VALUE))", "return cmsgpack.pack($NUMBER)", "return struct.pack($PACK,$NUMBER,$TEXT)", "return struct.pack($PACK,$TEXT,$NUMBER)",
	"return struct.unpack($PACK,$TEXT)", "return struct.unpack($PACK,$TEXT..$TEXT,$SMALL)", "return struct.size($PACK)", "return struct.unpack($PACK,struct.pack($PACK,$SMALL))", "return struct.size(('i'):rep($SIZE))", "return bit.band($NUMBER,$NUMBER)", "return bit.lshift($SMALL,$SMALL)", "return bit.tohex($SMALL,$SMALL)", "return bit.bnot($SMALL)",
	"return redis.sha1hex($VALUE)", "return cmsgpack.pack(setmetatable({1},{__index=$SHARED}))", "return #cmsgpack.pack(('x'):rep($SIZE))",
}

var texts = []string{
	"return string.format($FORMAT,$VALUE,$VALUE)", "return string.format($FORMAT,$NUMBER)", "return string.format($FORMAT..$FORMAT,$TEXT,$NUMBER)", "return string.find($SUBJECT,$PATTERN,$SMALL)", "return string.match($SUBJECT,$PATTERN)", "return string.gsub($SUBJECT,$PATTERN,$REPL)", "return string.gsub($SUBJECT,$PATTERN,$REPL,$SMALL)", "local r={} for a,b in string.gmatch($SUBJECT,$PATTERN) do r[#r+1]={a,b} if #r>50 then break end end return r",
	"return string.rep($TEXT,$SMALL)", "return string.sub($SUBJECT,$SMALL,$SMALL)", "return string.byte($TEXT,$SMALL,$SMALL)", "return string.char($NUMBER)", "return tonumber($VALUE,$SIZE)", "return tonumber($TEXT)", "return tostring($NUMBER)", "return $VALUE..$VALUE", "return $VALUE+$VALUE", "return #$TEXT", "return -$TEXT", "return $TEXT<$TEXT", "return $VALUE==$VALUE", "return $VALUE<$VALUE", "return $TEXT*$NUMBER", "return $NUMBER^$SMALL",
	"return ($TEXT):upper():lower():reverse():len()", "return string.len($VALUE)", "return string.find($SUBJECT,$TEXT,$SMALL,true)", "return math.floor($NUMBER),math.ceil($NUMBER)", "return math.fmod($NUMBER,$SMALL)", "return math.max($NUMBER,$VALUE)", "return loadstring($TEXT)",
}

var metas = []string{
	"local t=setmetatable({},{$EVENT=$LAMBDA}) return t.x", "local t=setmetatable({},{$EVENT=$LAMBDA,$EVENT=$LAMBDA}) t.x=1 return t", "local m={$EVENT=$LAMBDA} return setmetatable({},m)+setmetatable({},m)", "local m={$EVENT=$LAMBDA} return setmetatable({},m)<setmetatable({},m)", "local m={$EVENT=$LAMBDA} return setmetatable({},m)==setmetatable({},m)", "return setmetatable({},{$EVENT=$LAMBDA})..$VALUE",
	"return setmetatable({},{$EVENT=$VALUE})($VALUE)", "return tostring(setmetatable({},{__tostring=$LAMBDA}))", "return getmetatable(setmetatable({},{$EVENT=$VALUE}))", "return setmetatable(setmetatable({},{__metatable=$VALUE}),{})", "return getmetatable($VALUE)==nil", "return setmetatable($VALUE,$VALUE)", "local t=setmetatable({},{__index=$ANY}) return type(t.call),type(t.rep)", "local t=setmetatable({1,2},{__len=$LAMBDA}) return #t", "return rawget(setmetatable({},{__index=$LAMBDA}),1)",
	"return -setmetatable({},{$EVENT=$LAMBDA})", "local t=setmetatable({},{__index=$VALUE}) return t.x", "return ($VALUE).x", "return ($VALUE)[$VALUE]", "local t={} t[$VALUE]=1 return t", "return ($VALUE)()",
}

var errors = []string{
	"error($VALUE)", "error($TEXT,$SMALL)", "error({err='E '..$TEXT})", "error(setmetatable({},{__tostring=$LAMBDA}))", "return pcall(error,$VALUE)", "return pcall(error)", "return xpcall(function() error($VALUE) end,$LAMBDA)", "return xpcall(function() error($VALUE) end,function(e) error(e) end)", "return pcall(pcall,pcall,error,$VALUE)", "assert($VALUE,$VALUE)", "return assert($VALUE,$TEXT)", "return redis.error_reply($VALUE)", "return redis.status_reply($VALUE)", "return redis.pcall()",
	"return select(2,pcall(error,setmetatable({},{__index=function() error('again') end})))", "return pcall(error,{err=$VALUE})", "return xpcall($VALUE,$VALUE)", "return pcall($VALUE,$VALUE)", "error(nil)", "local ok,e=pcall(redis.call,$VALUE) return type(e)", "return redis.error_reply('x','y')", "error('lvl',2)", "return pcall(coroutine.wrap(function() error($VALUE) end))", "return collectgarbage($VALUE)~=nil",
}

var threads = []string{
	"local c=coroutine.create($LAMBDA) return coroutine.resume(c,$VALUE)", "local c=coroutine.create($LAMBDA) coroutine.resume(c) return coroutine.resume(c)", "return coroutine.resume($VALUE)", "coroutine.yield($VALUE)", "local c c=coroutine.create(function() return coroutine.resume(c) end) return coroutine.resume(c)", "local c=coroutine.wrap(function(...) local n=select('#',...) while true do n=n+(coroutine.yield(n) or 0) end end) return c($SMALL),c(1),c(2)",
	"return coroutine.wrap(function() return pcall(coroutine.yield,1) end)()", "return coroutine.wrap(function() string.gsub('x','x',coroutine.yield) end)()", "return coroutine.wrap(function() table.sort({2,1},coroutine.yield) end)()", "local c=coroutine.create(function() error($VALUE) end) return coroutine.resume(c),coroutine.status(c)", "return coroutine.status(coroutine.create($LAMBDA))", "return type(coroutine.running())", "local c=coroutine.wrap(function() return setmetatable({},{__index=function() coroutine.yield(1) end}).x end) return c()",
	"local c=coroutine.wrap(function() for i=1,3 do coroutine.yield(redis.call($COMMAND)) end end) return c(),c()", "return coroutine.wrap($VALUE)", "local c=coroutine.wrap(function() return 1 end) c() return c()", "local c=coroutine.create(function() coroutine.yield() end) coroutine.resume(c) return coroutine.status(c)",
}

var tables = []string{
	"return unpack($VALUE,$SMALL,$SMALL)", "return unpack({1,2,3},$SMALL,$SMALL)", "return unpack({},1,$NUMBER)", "return select($SMALL,1,2,3)", "return select($VALUE,1,2)", "return table.concat({1,2,'x'},$TEXT,$SMALL,$SMALL)", "return table.concat({1,$VALUE,3},$VALUE)", "local t={3,1,2} table.sort(t,$LAMBDA) return t", "local t={3,'1',{}} table.sort(t) return t", "local t={1,2,3} table.insert(t,$SMALL,$VALUE) return t", "local t={1,2,3} return table.remove(t,$SMALL),t", "return table.maxn({1,2,[$SIZE]=3})", "return table.getn({1,2,3})",
	"return #{1,2,3,nil}", "local r=0 for k,v in pairs($VALUE) do r=r+1 end return r", "local r=0 for k,v in ipairs($VALUE) do r=r+1 end return r", "for i=$NUMBER,$NUMBER,$SMALL do break end return 1", "for i=1,$VALUE do if i>5 then break end end return 1", "local a,b,c=(function(...) return ... end)($VALUE,$VALUE) return a,b,c", "return (function(...) return select('#',...) end)(unpack({},1,$SIZE))", "local function f(...) return arg end return type(f(1))", "return table.foreachi($VALUE,$LAMBDA)",
}

var commands = []string{
	"return redis.call($COMMAND)", "return redis.pcall($COMMAND)", "return redis.call($COMMAND),redis.call($COMMAND)", "return string.gsub('ab','.',function() return redis.call($COMMAND) end)", "table.sort({3,2,1},function(a,b) redis.call($COMMAND) return a<b end)", "return setmetatable({},{__index=function() return redis.call($COMMAND) end}).x", "return pcall(redis.call,$COMMAND)", "return coroutine.wrap(function() return redis.call($COMMAND) end)()", "return xpcall(function() return redis.call($COMMAND) end,function(e) return type(e) end)", "return redis.call(unpack({'ECHO',$VALUE}))", "return redis.log($SMALL,$TEXT)", "return redis.log($VALUE)", "return redis.acl_check_cmd($COMMAND)", "return redis.replicate_commands()", "return redis.register_function($TEXT,$LAMBDA)",
}

// floods are statements that run into limits.
var floods = []string{
	"return string.rep('x',$NUMBER)", "local s='x' while true do s=s..s end", "while true do end", "local t={} while true do t[#t+1]={} end", "local s=string.rep('x',1e7) error(s)", "local s=string.rep('x',3e7) return redis.status_reply(s)", "local s=string.rep('x',3e7) return redis.error_reply(s)", "local s=string.rep('\\1',2e7) return #cjson.encode({s})", "local s=string.rep('x',1e6) local t={} for i=1,200 do t[i]=s end return #cmsgpack.pack(t)", "local s=string.rep('x',1e6) for i=1,100 do redis.call('PUBLISH','evil',s) end", "local s=string.rep('x',1e6) for i=1,100 do redis.log(redis.LOG_DEBUG,s) end",
	"local s=string.rep('x',1e7) assert(false,s)", "local s=string.rep('x',1e7) return _G[s]", "return struct.size(string.rep('i',1e7))", "return struct.pack('i'..string.rep('x',1e6),1)", "local function f() return f() end return f()", "return string.find(string.rep('a',3e4),string.rep('.-',6)..'b')", "return #string.format(string.rep('%99d',1e5),1)", "local t={} for i=1,1e6 do t[i]=i end table.sort(t,function(a,b) return a>b end) return 1", "return cjson.decode('['..string.rep('[],',1e6)..'1]')", "for i=1,1e5 do pcall(error,{}) end", "local c={} for i=1,1e5 do c[i]=coroutine.create(function() end) end",
	"local t={} for i=1,40 do t={t,t} end return cjson.encode(t)", "local t={} for i=1,40 do t={t,t} end return t", "local s=string.rep('x',1e6) return s:gsub('x','%0%0%0%0%0%0')", "while true do xpcall(function() while true do end end,function() while true do end end) end", "for k in string.gmatch(string.rep('a',1e6),'') do end", "local s=string.rep('x',1e7) local t={} for i=1,50 do t[i]=s..i end return #t", "local t={} t[3e6]=1 for i=1,100 do t[i]=setmetatable({},{__newindex=t}) t[i][3e6+i]=1 end", "for i=1,1e4 do loadstring('return '..i..string.rep('+1',1000)) end", "return select('#',string.byte(string.rep('x',7000),1,-1))", "return string.rep('x',1e6):rep(30):upper():lower():reverse()",
}

package luavm

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"

	"github.com/lockstep-io/lockstep/store"
)

// longInput is the length of s, the text that each probe uses.
const longInput = 64 << 10

// A step may stand for looped bytes that a loop of Go reads, or for passed bytes that assembly reads.
const (
	looped = 64
	passed = 256
)

// probe is a call with a long text.
type probe struct {
	code string
	step int // the bytes of s that one step may stand for; 0: the time does not grow with s
	what string
}

// The text s of a probe repeats one of these.
const (
	letters = "a"
	digits  = "1"
	blanks  = " "
	breaks  = "\\r"
)

// shorts names the functions whose time does not grow with the length of a text, and says why.
var shorts = map[string]string{
	"gcinfo": "no argument", "getmetatable": "looks at the type", "setmetatable": "takes tables", "ipairs": "takes a table",
	"pairs": "takes a table", "pcall": "passes values on", "xpcall": "passes values on", "type": "looks at the type",
	"unpack": "see TestCopiedValuesAreSteps", "tostring": "returns the text itself", "assert": "returns the text itself",
	"string.len": "is known", "string.dump": "fails", "table.getn": "takes a table", "table.setn": "fails",
	"table.maxn": "see TestStepsCountWhatIsRead", "table.foreach": "the same", "table.foreachi": "the same",
	"table.insert": "moves values, not texts", "table.remove": "the same",
	"coroutine.create": "takes a function", "coroutine.resume": "passes values on", "coroutine.running": "no argument",
	"coroutine.status": "takes a thread", "coroutine.wrap": "takes a function", "coroutine.yield": "passes values on",
	"redis.breakpoint": "does nothing", "redis.debug": "does nothing", "redis.replicate_commands": "does nothing",
	"redis.log": "reads 1 KB: see TestLogIsShort", "redis.pcall": "is redis.call", "string.gfind": "is string.gmatch",
	"cjson.new": "no argument", "math.random": "see numbers", "math.randomseed": "see numbers",
}

// probes has the functions that read or copy a text.
var probes = map[string][]probe{
	"assert":                        {{"pcall(assert,nil,s)", passed, letters}},
	"collectgarbage":                {{"pcall(collectgarbage,s)", passed, letters}},
	"error":                         {{"pcall(error,s)", passed, letters}},
	"load":                          {{"local n=0 load(function() n=n+1 return n==1 and s end)", passed, blanks}, {"load(string.lower)", 0, letters}},
	"loadstring":                    {{"loadstring('',s)", passed, letters}, {"loadstring(s)", looped, blanks}},
	"next":                          {{"next(keyed,s)", passed, letters}},
	"rawequal":                      {{"rawequal(s,other)", passed, letters}},
	"rawget":                        {{"rawget({},s)", passed, letters}},
	"rawset":                        {{"rawset({},s,1)", passed, letters}},
	"select":                        {{"pcall(select,s)", looped, digits}},
	"tonumber":                      {{"tonumber(s)", looped, digits}, {"tonumber(s,16)", looped, digits}, {"tonumber(s)", looped, blanks}},
	"__redis__err__handler":         {{"__redis__err__handler(s)", passed, letters}},
	"string.byte":                   {{"pcall(string.byte,'a',s)", looped, digits}},
	"string.char":                   {{"pcall(string.char,s)", looped, digits}},
	"string.find":                   {{"s:find(s..'x')", passed, letters}, {"(''):find(s)", looped, letters}, {"s:find('^.-b')", looped, letters}, {"pcall(string.find,'','a',s)", looped, digits}},
	"string.format":                 {{"string.format(s)", passed, letters}, {"string.format('%s',s)", passed, letters}, {"string.format('%.3s',s)", passed, letters}, {"string.format('%q',s)", looped, letters}, {"string.format('%d',s)", looped, digits}},
	"string.gmatch":                 {{"s:gmatch('(.*)')()", 1, letters}, {"s:gmatch('b')()", looped, letters}, {"('a'):gmatch(s)()", passed, letters}},
	"string.gsub":                   {{"s:gsub('.*',{})", 1, letters}, {"s:gsub('','')", 1, letters}, {"s:gsub('a','b')", 1, letters}, {"('a'):gsub('',s)", looped, letters}, {"('a'):gsub('()',s:rep(2):gsub('a','%%0'))", 1, letters}, {"('a'):gsub(s,'')", passed, letters}, {"s:gsub('^y','')", passed, letters}, {"('ab'):gsub('',string.lower)", 0, letters}},
	"string.lower":                  {{"s:lower()", looped, letters}},
	"string.upper":                  {{"s:upper()", looped, letters}},
	"string.match":                  {{"s:match('((.*))')", 1, letters}, {"s:match('.*')", 1, letters}, {"('a'):match(s)", passed, letters}},
	"string.rep":                    {{"s:rep(1)", passed, letters}, {"('a'):rep(#s)", passed, letters}},
	"string.reverse":                {{"s:reverse()", looped, letters}},
	"string.sub":                    {{"s:sub(2)", 0, letters}, {"pcall(string.sub,'a',s)", looped, digits}},
	"table.concat":                  {{"table.concat({s})", passed, letters}, {"table.concat({1,2},s)", passed, letters}},
	"table.sort":                    {{"table.sort({s,other})", passed, letters}},
	"redis.call":                    {{"redis.call('echo',s)", passed, letters}, {"pcall(redis.call,s)", passed, letters}, {"redis.call('ping',s)", passed, letters}},
	"redis.acl_check_cmd":           {{"redis.acl_check_cmd('get',s)", passed, letters}},
	"redis.error_reply":             {{"redis.error_reply(s)", passed, letters}, {"redis.error_reply('-'..s)", passed, breaks}},
	"redis.status_reply":            {{"redis.status_reply(s)", passed, letters}},
	"redis.sha1hex":                 {{"redis.sha1hex(s)", looped, letters}},
	"redis.set_repl":                {{"pcall(redis.set_repl,s)", looped, digits}},
	"redis.setresp":                 {{"pcall(redis.setresp,s)", looped, digits}},
	"cjson.encode":                  {{"cjson.encode(s)", looped, letters}, {"cjson.encode({[s]=1})", looped, letters}},
	"cjson.decode":                  {{"cjson.decode('\"'..s..'\"')", looped, letters}, {"pcall(cjson.decode,'\"'..s)", looped, letters}, {"cjson.decode(s..'1')", looped, blanks}, {"cjson.decode(s)", looped, digits}, {"cjson.decode('{\"'..s..'\":1}')", looped, letters}, {"cjson.decode('[nan]'..s)", looped, blanks}},
	"cmsgpack.pack":                 {{"cmsgpack.pack(s)", passed, letters}, {"cmsgpack.pack(keyed)", passed, letters}},
	"cmsgpack.unpack":               {{"cmsgpack.unpack(packed)", 0, letters}},
	"cmsgpack.unpack_one":           {{"pcall(cmsgpack.unpack_one,packed,s)", looped, digits}},
	"cmsgpack.unpack_limit":         {{"pcall(cmsgpack.unpack_limit,packed,s)", looped, digits}},
	"struct.pack":                   {{"struct.pack('s',s)", passed, letters}, {"struct.pack(s)", looped, blanks}, {"struct.pack('i0'..s:gsub('1','0')..'4',1)", looped, digits}},
	"struct.unpack":                 {{"struct.unpack('c65000',s)", 0, letters}, {"struct.unpack('s',s..'\\0')", looped, letters}, {"struct.unpack(s,'')", looped, blanks}},
	"struct.size":                   {{"struct.size(s)", looped, blanks}, {"struct.size('i'..s:gsub('1','0')..'4')", looped, digits}},
	"cjson.decode_max_depth":        {{"pcall(cjson.decode_max_depth,s)", looped, digits}},
	"cjson.encode_max_depth":        {{"pcall(cjson.encode_max_depth,s)", looped, digits}},
	"cjson.encode_sparse_array":     {{"pcall(cjson.encode_sparse_array,s)", passed, letters}, {"pcall(cjson.encode_sparse_array,true,s)", looped, digits}},
	"cjson.encode_keep_buffer":      {{"pcall(cjson.encode_keep_buffer,s)", passed, letters}},
	"cjson.encode_invalid_numbers":  {{"pcall(cjson.encode_invalid_numbers,s)", passed, letters}},
	"cjson.decode_invalid_numbers":  {{"pcall(cjson.decode_invalid_numbers,s)", passed, letters}},
	"cjson.encode_number_precision": {{"pcall(cjson.encode_number_precision,s)", looped, digits}},
}

// instructions has probes for the instructions of the interpreter.
var instructions = map[string]probe{
	"==":              {"local a=s==other", passed, letters},
	"~=":              {"local a=s~=other", passed, letters},
	"<":               {"local a=s<other", looped, letters},
	">=":              {"local a=s>=other", looped, letters},
	"..":              {"local a=s..'b'", passed, letters},
	"t[s]":            {"local a=keyed[s]", passed, letters},
	"t[s]=":           {"keyed[s]=2", passed, letters},
	"+":               {"local a=s+1", looped, digits},
	"-":               {"local a=-s", looped, digits},
	"%":               {"local a=s%1", looped, digits},
	"for":             {"for i=s,1 do end", looped, digits},
	"key of no table": {"pcall(function() return (1)[s] end)", passed, letters},
	"pairs":           {"for k in pairs(keyed) do end", passed, letters},
	"{err=s}":         {"local a={err=s}", 0, breaks},
}

// TestEveryTextIsWork: each function counts steps for a text that it reads, and charges memory for one that it copies.
func TestEveryTextIsWork(t *testing.T) {
	w := newWorld(t, Options{MemoryLimit: 1 << 30})
	names := functionNames(w.e)
	for name := range shorts {
		if !slices.Contains(names, name) {
			t.Errorf("%s does not exist", name)
		}
	}
	for name := range probes {
		if !slices.Contains(names, name) {
			t.Errorf("%s does not exist", name)
		}
	}
	m := newMeter(w)
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "bit."), strings.HasPrefix(name, "math."):
			m.probe(t, name, probe{"pcall(" + name + ",s,s)", looped, digits})
		case probes[name] == nil && shorts[name] == "":
			t.Errorf("%s: say how it reads a text, in probes or in shorts", name)
		}
		for _, p := range probes[name] {
			m.probe(t, name, p)
		}
	}
	for name, p := range instructions {
		m.probe(t, name, p)
	}
}

// functionNames returns the functions that scripts can call.
func functionNames(e *Engine) (names []string) {
	e.globals.ForEach(func(k, v lua.LValue) {
		switch v := v.(type) {
		case *lua.LFunction:
			names = append(names, k.String())
		case *lua.LTable:
			if v == e.globals {
				return
			}
			v.ForEach(func(field, f lua.LValue) {
				if f.Type() == lua.LTFunction {
					names = append(names, k.String()+"."+field.String())
				}
			})
		}
	})
	slices.Sort(names)
	return names
}

// meter measures what a piece of a script takes, between two calls of a command.
type meter struct {
	w       *world
	steps   []int64
	charged []int64
	taken   []uint64
}

func newMeter(w *world) *meter {
	m := &meter{w: w}
	w.table.Lookup([]byte("t.null")).Run = func(*store.Ctx) store.Reply {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		m.steps = append(m.steps, w.e.steps+int64(w.e.pace-w.e.budget))
		m.charged, m.taken = append(m.charged, w.e.spent), append(m.taken, now.TotalAlloc)
		return store.Nil
	}
	return m
}

// run runs code between two calls of t.null, in a script or in a function.
func (m *meter) run(t *testing.T, code, what string, function bool) (steps, charged, taken int64) {
	t.Helper()
	body := fmt.Sprintf("local s=string.rep('%s',%d) local other,keyed=string.rep('%s',%d),{} keyed[s]=1 local packed=cmsgpack.pack('%s') ",
		what, longInput, what, longInput, what) + "redis.call('t.null'); " + code + "; redis.call('t.null') return 'done'"
	m.steps, m.charged, m.taken = nil, nil, nil
	var r store.Reply
	if function {
		m.w.mustLoad(t, "#!lua name=probe\nredis.register_function('probe',function() "+body+" end)")
		r = m.w.do(2, "fcall", "probe", "0")
	} else {
		r = m.w.eval(body)
	}
	if r.Str != "done" {
		t.Errorf("%s: %.200s", code, r.Str)
		return math.MaxInt64, 0, 0
	}
	return m.steps[1] - m.steps[0], m.charged[1] - m.charged[0], int64(m.taken[1] - m.taken[0])
}

func (m *meter) probe(t *testing.T, name string, p probe) {
	t.Helper()
	for _, function := range []bool{false, true} {
		if function && (name == "__redis__err__handler" || slices.Contains(notInTheirRedis[:], strings.TrimPrefix(name, "redis."))) {
			continue
		}
		steps, charged, taken := m.run(t, p.code, p.what, function)
		least := int64(math.MinInt64)
		if p.step > 0 {
			least = longInput / int64(p.step)
		}
		if steps < least {
			t.Errorf("%s: %s counts %d steps for %d bytes, want %d at least (function: %v)", name, p.code, steps, longInput, least, function)
		}
		if taken > 2*charged+longInput/8 {
			t.Errorf("%s: %s allocates %d bytes, charged for %d (function: %v)", name, p.code, taken, charged, function)
		}
	}
}

// TestNamesOfFunctionsAreWork: the length of a function's name counts as steps, too, because a library may register many functions.
func TestNamesOfFunctionsAreWork(t *testing.T) {
	w := newWorld(t, Options{})
	w.mustLoad(t, "#!lua name=l\nredis.register_function(('a'):rep(65536),function() end)")
	if least := int64(longInput / looped); w.e.steps < least {
		t.Errorf("%d steps, want %d at least", w.e.steps, least)
	}
}

// TestPlainScriptsCompareLittle: a plain script may compare only little, because without the hook nobody counts how long
// comparisons take.
func TestPlainScriptsCompareLittle(t *testing.T) {
	const locals = "local a,b=ARGV[1],ARGV[2] "
	w := newWorld(t, Options{})
	for body, plain := range map[string]bool{
		locals + strings.Repeat("if a==b then return 1 end ", plainComparisons):   true,
		locals + strings.Repeat("if a==b then return 1 end ", plainComparisons+1): false,
		locals + strings.Repeat("if a<b then return 1 end ", plainOrders):         true,
		locals + strings.Repeat("if a<=b then return 1 end ", plainOrders+1):      false,
	} {
		if w.eval(body, "a"); w.e.byBody[body].plain != plain {
			t.Errorf("%s: plain: %v", body, !plain)
		}
	}
}

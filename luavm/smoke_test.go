package luavm
import "testing"
func TestSmoke(t *testing.T) {
	w := newWorld(t, Options{})
	for _, s := range []string{
		`return 1`, `return redis.call('set','a','b')`, `return redis.call('get','a')`, `return {1,2,{3,'x'}}`, `x=1`, `return x`,
		`return 'a'..1.5 ..2^53`, `local s=0 for i='1','3' do s=s+i end return s`, `return '010'+1`, `local x return x.y`, `redis.foo()`, `local t={} return 1+t`, `return 1<nil`, `error('boom')`, `error({err='MYCODE boom'})`,
		`return {pcall(redis.call,'foo')}`, `return redis.pcall('foo')`, `redis.call('incr')`, `local function f() return 1+f() end f()`, `string.rep()`,
		`local c=coroutine.wrap(function() error("x") end) c()`, `return {coroutine.resume(coroutine.create(function() return coroutine.yield(7) end))}`,
		`return string.format('%5.2f|%d|%s|%q|%x', 3.14159, 42, 'hi', 'a"b', 255)`, `return {string.find('hello world','o w')}`, `return string.gsub('hello','l','%0%0')`,
		`return cjson.encode({a=1,b={1,2,3}})`, `return cjson.decode('{"a":[1,2,{"b":3}]}').a[3].b`, `return {cmsgpack.unpack(cmsgpack.pack(1,'a',{1,2}))}`,
		`return {struct.unpack('>I2i4', struct.pack('>I2i4',7,-5))}`, `math.randomseed(1) return tostring(math.random())`, `local t={5,2,3} table.sort(t) return t`,
	    `return tostring({})`,  `for k in pairs(nil) do end`,
	} {
		t.Logf("%-60s %q", s, wire(w.eval(s), 2))
	}
}

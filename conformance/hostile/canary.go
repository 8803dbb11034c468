package hostile

// canary is a script whose reply shows what earlier scripts have left behind.
const canary = `
local out, seen = {}, {}
local function note(path, what) out[#out + 1] = path .. ' ' .. tostring(what) end
local function walk(t, path)
  if seen[t] then return end
  seen[t] = true
  local m = getmetatable(t)
  note(path .. ' metatable', type(m))
  local names = {}
  for k, v in pairs(t) do
    if path ~= '_G' or (k ~= 'KEYS' and k ~= 'ARGV') then names[#names + 1] = {type(k) .. ':' .. tostring(k), v} end
  end
  table.sort(names, function(a, b) return a[1] < b[1] end)
  for _, n in ipairs(names) do
    local k, v = n[1], n[2]
    if type(v) == 'table' then walk(v, path .. '.' .. k)
    elseif type(v) == 'function' then note(path .. '.' .. k, 'function')
    else note(path .. '.' .. k, type(v) .. ':' .. tostring(v)) end
  end
  if type(m) == 'table' then walk(m, path .. ' metatable') end
end
walk(_G, '_G')
for name, v in pairs({string = '', number = 0, boolean = true, ['function'] = type}) do
  local m = getmetatable(v)
  if type(m) == 'table' then walk(m, name .. ' metatable') end
end
local function try(name, f, ...)
  local r = {pcall(f, ...)}
  for i = 1, #r do r[i] = type(r[i]) == 'table' and cjson.encode(r[i]) or tostring(r[i]) end
  note(name, table.concat(r, ','))
end
try('tostring', tostring, 5) try('tonumber', tonumber, '0x10') try('type', type, nil)
try('upper', function() return ('abc'):upper() .. ('x'):rep(3) .. ('%d'):format(7) .. ('a.b'):gsub('%.', '-') .. ('abc'):sub(2) .. #('abc') end)
try('find', string.find, 'hello', 'l+') try('byte', string.byte, 'A') try('concat', table.concat, {1, 2, 3}, ';')
try('sort', function() local t = {3, 1, 2} table.sort(t) return t[1], t[2], t[3] end)
try('insert', function() local t = {} table.insert(t, 1) return table.remove(t) end)
try('unpack', unpack, {1, 2}) try('select', select, '#', 1, 2) try('floor', math.floor, 1.5) try('max', math.max, 1, 2)
try('error', error, 'x', 0) try('pcall', pcall, error, 'y') try('assert', assert, true) try('loadstring', function() return loadstring('return 1')() end)
try('next', next, {}) try('rawget', rawget, {7}, 1) try('rawequal', rawequal, 1, 1) try('ipairs', function() local n = 0 for _ in ipairs({1, 2}) do n = n + 1 end return n end)
try('encode', cjson.encode, {a = {1, 2.5, 'x', true}}) try('decode', cjson.decode, '[1,{"a":null},1e3]')
try('sparse', cjson.encode, {[1] = 1, [100] = 1}) try('nan', cjson.encode, {0 / 0}) try('number', cjson.encode, 1 / 3)
try('keep', function() return #cjson.encode({('x'):rep(5)}) end)
try('deep', function() local t = {} for _ = 1, 900 do t = {t} end return #cjson.encode(t) end)
try('deeper', function() local t = {} for _ = 1, 1100 do t = {t} end return #cjson.encode(t) end)
try('decoded', function() return type(cjson.decode(('['):rep(900) .. (']'):rep(900))) end)
try('invalid', cjson.decode, '[0x10]')
try('pack', function() return cmsgpack.unpack(cmsgpack.pack({1, 'a', {b = 2}}))[2] end)
try('struct', function() return struct.unpack('>I2s', struct.pack('>I2s', 7, 'x')) end) try('bit', bit.band, 7, 2)
try('sha', redis.sha1hex, '') try('reply', redis.status_reply, 'fine') try('failure', redis.error_reply, 'My error')
try('get', redis.call, 'GET', KEYS[1]) try('pget', redis.pcall, 'GET', KEYS[1]) try('absent', redis.call, 'NOSUCH')
try('global', function() undefined_name = 1 end) try('undefined', function() return undefined_name end)
try('setresp', redis.setresp, 2) try('coroutine', function() return coroutine.resume(coroutine.create(function(a) return coroutine.yield(a) end), 4) end)
return table.concat(out, '\n')
`

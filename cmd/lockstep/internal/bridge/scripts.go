package bridge

import "strconv"

// probe is a script that says what the keys hold: for each its type, its deadline by the clock of the server in ms (0: none), and its
// content. Of a larger value the content is a hash, of a very large one only the size: reading it must not hold up the old Redis.
const probe = `
local function small(key)
  local bytes = redis.pcall('MEMORY', 'USAGE', key)
  return type(bytes) == 'number' and bytes <= 65536
end
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local out = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key)['ok']
  local ttl = redis.call('PTTL', key)
  local got = {}
  if kind == 'string' then
    local bytes = redis.call('STRLEN', key)
    if bytes <= 4096 then got[1] = redis.call('GET', key)
    else
      kind = 'large'
      if bytes <= 65536 then got[1] = redis.sha1hex(redis.call('GET', key)) else got[1] = tostring(bytes) end
    end
  elseif kind == 'hash' then
    if redis.call('HLEN', key) <= 128 and small(key) then got = redis.call('HGETALL', key) else kind = 'large' got[1] = tostring(redis.call('HLEN', key)) end
  elseif kind ~= 'none' then
    local size = 0
    if kind == 'list' then size = redis.call('LLEN', key) elseif kind == 'set' then size = redis.call('SCARD', key) elseif kind == 'zset' then size = redis.call('ZCARD', key) end
    if size > 0 and size <= 1024 and small(key) then got[1] = redis.sha1hex(redis.call('DUMP', key)) else got[1] = tostring(size) end
    kind = 'large'
  end
  local deadline = 0
  if ttl >= 0 then deadline = ms + ttl end
  out[i] = {kind, string.format('%.0f', deadline), string.format('%.0f', ttl), got}
end
return out`

// replace is a script that gives a key another content, if it still has the one that is expected. ARGV: for each of the two the type,
// the number of strings and the strings; at the end the time to live in ms, or -1.
const replace = `
local at = 1
local function take()
  local kind, n, list = ARGV[at], tonumber(ARGV[at + 1]), {}
  for i = 1, n do list[i] = ARGV[at + 1 + i] end
  at = at + 2 + n
  return kind, list
end
local kind, want = take()
if redis.call('TYPE', KEYS[1])['ok'] ~= kind then return 0 end
if kind == 'string' and redis.call('GET', KEYS[1]) ~= want[1] then return 0 end
if kind == 'hash' then
  if redis.call('HLEN', KEYS[1]) * 2 ~= #want then return 0 end
  for i = 1, #want, 2 do if redis.call('HGET', KEYS[1], want[i]) ~= want[i + 1] then return 0 end end
end
local to, list = take()
local ttl = ARGV[at]
redis.call('DEL', KEYS[1])
if to == 'string' then redis.call('SET', KEYS[1], list[1]) end
if to == 'hash' then for i = 1, #list, 2 do redis.call('HSET', KEYS[1], list[i], list[i + 1]) end end
if to ~= 'none' and ttl ~= '-1' then redis.call('PEXPIRE', KEYS[1], ttl) end
return 1`

// replaceArgs returns the arguments ARGV of replace.
func replaceArgs(expected, target state) []any {
	var args []any
	for _, s := range []state{expected, target} {
		args = append(args, s.kind, strconv.Itoa(len(s.content)))
		for _, c := range s.content {
			args = append(args, c)
		}
	}
	ttl := "-1"
	if target.expires {
		ttl = strconv.FormatInt(max(target.ttl, 1), 10)
	}
	return append(args, ttl)
}

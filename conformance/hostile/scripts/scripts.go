// Package scripts makes hostile Lua scripts. Its grammar knows the edges of a sandbox: tables that all scripts share and the ways
// to write them, every mechanism that nests, the settings of cjson, error objects, sizes, and callbacks that call commands. One
// seed makes one script.
//
// A script catches the errors of its statements and returns their results, so one script tries many things. All servers that behave
// like Redis 7.0.15 return the same reply to it, unless the script is Loose: the reply to such a script is not compared.
package scripts

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Script is one hostile script.
type Script struct {
	Text string
	Keys []string
	Args []string
	// Loose means that the reply depends on limits, which differ between servers.
	Loose bool
}

// Command returns the EVAL command for the script.
func (s Script) Command() []string {
	args := []string{"EVAL", s.Text, fmt.Sprint(len(s.Keys))}
	return append(append(args, s.Keys...), s.Args...)
}

// Canary is a script that shows what all scripts share. Its reply never changes while a server runs.
const Canary = `local out, seen = {}, {}
local function walk(name, t)
  if seen[t] then out[#out+1] = name .. ' again' return end
  seen[t] = true
  local keys = {}
  for k in pairs(t) do keys[#keys+1] = tostring(k) end
  table.sort(keys)
  for _, k in ipairs(keys) do
    local v = rawget(t, k)
    local kind = type(v)
    if kind == 'table' then walk(name .. '.' .. k, v) else
      out[#out+1] = name .. '.' .. k .. ' ' .. ((kind == 'function' or kind == 'userdata') and kind or tostring(v))
    end
  end
  local mt = getmetatable(t)
  if type(mt) == 'table' then walk(name .. '<meta>', mt) end
end
walk('_G', _G) walk('string<meta>', getmetatable(''))
out[#out+1] = cjson.encode({1/3, {}, 'x/y'}) .. tostring(pcall(cjson.encode, {[1000]=1})) .. cmsgpack.pack(1)
out[#out+1] = tostring(5) .. tonumber('7') .. type(redis.call('PING')) .. ('x'):rep(2) .. table.concat({1,2}, ',')
out[#out+1] = type(getmetatable(redis)) .. #KEYS .. #ARGV .. tostring(coroutine.running()) .. tostring(rawget(_G, 'evil'))
return out`

// prelude has the helpers of a script. The helper try runs a function and records its results.
const prelude = `local out = {}
local function show(v, d)
  local kind = type(v)
  if kind == 'string' then return #v > 120 and #v .. ':' .. v:sub(1, 60) .. '..' .. v:sub(-30) or "'" .. v .. "'" end
  if kind ~= 'table' then return (kind == 'number' or kind == 'boolean' or kind == 'nil') and tostring(v) or kind end
  if d > 3 then return '{..}' end
  local keys = {}
  for k, x in next, v do if #keys < 30 then keys[#keys+1] = show(k, d + 1) .. '=' .. show(x, d + 1) end end
  table.sort(keys)
  return '{' .. table.concat(keys, ',') .. '}'
end
local function try(f, ...)
  local r = {n = 0}
  local function keep(...) r.n = select('#', ...) for i = 1, math.min(r.n, 8) do r[i] = show((select(i, ...)), 0) end end
  keep(pcall(f, ...))
  out[#out+1] = r.n .. ' ' .. table.concat(r, ' ')
end
`

type generator struct {
	*rand.Rand
	loose bool
}

// Generate makes the script for a seed.
func Generate(seed uint64) Script {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x1ce))}
	var b strings.Builder
	b.WriteString(prelude)
	for range 1 + g.IntN(6) {
		b.WriteString("try(function() " + g.statement() + " end)\n")
	}
	if g.IntN(12) == 0 {
		b.WriteString(g.ending() + "\n")
	}
	b.WriteString("return out")
	return Script{Text: b.String(), Keys: []string{"evil:1", "evil:2"}, Args: []string{g.pick(numbers...), "a\x00b", "{\"a\":[1,2]}"}, Loose: g.loose}
}

// pick returns one of several texts.
func (g *generator) pick(list ...string) string { return list[g.IntN(len(list))] }

// fill replaces each $NAME in a text by the text that its production makes.
func (g *generator) fill(text string) string {
	for {
		at := strings.IndexByte(text, '$')
		if at < 0 {
			return text
		}
		end := at + 1
		for end < len(text) && 'A' <= text[end] && text[end] <= 'Z' {
			end++
		}
		made, ok := productions[text[at+1:end]]
		if !ok {
			panic("scripts: no production " + text[at+1:end])
		}
		text = text[:at] + made(g) + text[end:]
	}
}

// statement makes a statement for a script to try.
func (g *generator) statement() string {
	if g.IntN(25) == 0 {
		g.loose = true
		return g.fill(g.pick(floods...))
	}
	kinds := [...][]string{writes, writes, nestings, settings, packing, texts, metas, errors, threads, tables, commands}
	return g.fill(g.context(g.pick(kinds[g.IntN(len(kinds))]...)))
}

// context puts a statement into a text that runs it indirectly.
func (g *generator) context(s string) string {
	if g.IntN(3) > 0 {
		return s
	}
	return strings.ReplaceAll(g.pick(contexts...), "$$", s)
}

// ending makes an end of a script other than the return of the recorded results.
func (g *generator) ending() string {
	return "do " + g.fill(g.pick(
		"error($TEXT)", "error($TEXT,$SMALL)", "return $VALUE", "return {$VALUE,$VALUE,$VALUE}", "return redis.error_reply($TEXT)",
		"return redis.status_reply($TEXT)", "return {err='E '..$TEXT}", "return {ok=$TEXT}", "return {double=$NUMBER}", "return {map={a=1}}",
		"return setmetatable({},{__index=function(t,i) if i==1 then return 'x' end end})", "error({err='E '..$TEXT})", "redis.call($VALUE)", "coroutine.yield(1)",
		"local t={} t[1]={} t[2]=t return {t[1]}", "x=1", "return x", "redis.setresp(3) return $VALUE",
	)) + " end"
}

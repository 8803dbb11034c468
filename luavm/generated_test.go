package luavm

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"testing"
)

// TestGenerated runs random programs with constructs in which code generators go wrong. Their output was recorded from a real server.
func TestGenerated(t *testing.T) {
	const golden, programs = "testdata/generated.json", 80
	if *record != "" {
		var cases []corpusCase
		for seed := range int64(programs) {
			cases = append(cases, corpusCase{Script: generate(seed), Resp: 2})
		}
		recordCases(t, cases, golden)
	}
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var recorded []corpusCase
	if err := json.Unmarshal(data, &recorded); err != nil {
		t.Fatal(err)
	}
	if len(recorded) != programs {
		t.Fatalf("%d programs are recorded, not %d", len(recorded), programs)
	}
	w := newWorld(t, Options{})
	for i, c := range recorded {
		if got := wire(w.eval(latin1(c.Script)), 2); got != latin1(c.Reply) {
			t.Errorf("program %d:\n%s\n got %q\nwant %q", i, strings.TrimPrefix(c.Script, generatedPrelude), got, latin1(c.Reply))
		}
	}
}

// generatedPrelude has helpers: O prints, M returns four values, and S, N, I and K make a string, number, table and key.
const generatedPrelude = `local OUT,T,FS={},{p=1,q='x'},{}
local function S(x)
  if type(x)=='table' then
    local r={} for i=1,6 do r[i]=type(x[i])=='table' and 'T' or tostring(x[i]) end
    return '{'..table.concat(r,',')..'|'..(type(x.x)=='table' and 'T' or tostring(x.x))..'}'
  end
  return type(x)=='function' and 'fn' or tostring(x)
end
local function N(x) return tonumber(x) or (x and 7 or 3) end
local function K(x) if x==nil then return 'nil' elseif type(x)=='table' or type(x)=='function' then return 't' end return x end
local function I(x) if type(x)=='table' then return x end return {x,9,x=8} end
local function M(x) return x,2,nil,'m' end
local function O(...) for i=1,select('#',...) do OUT[#OUT+1]=S((select(i,...))) end OUT[#OUT+1]=';' end
local a,b,c=1,'2',nil
`

const generatedEnd = `O(a,b,c,T.p,T.q,T.r)
for i=1,math.min(#FS,8) do
  local ok,e=pcall(function() O(FS[i](i,'z')) end)
  if not ok then O(e) end
end
return table.concat(OUT,' ')`

type generator struct {
	*rand.Rand
	strings.Builder
	vars   []string
	names  int
	budget int
}

func generate(seed int64) string {
	g := &generator{Rand: rand.New(rand.NewSource(seed)), vars: []string{"a", "b", "c"}, budget: 12}
	g.put(generatedPrelude)
	for range 5 {
		g.statement(3)
	}
	g.put(generatedEnd)
	return g.String()
}

func (g *generator) put(format string, args ...any) { fmt.Fprintf(&g.Builder, format, args...) }

func (g *generator) pick(words ...string) string { return words[g.Intn(len(words))] }

func (g *generator) fresh() string {
	g.names++
	return fmt.Sprintf("v%d", g.names)
}

func (g *generator) expr(depth int) string {
	if depth <= 0 {
		if g.Intn(9) > 5 {
			return g.pick(g.vars...)
		}
		return g.pick("1", "4", "nil", "true", "false", "'a'", "'5'")
	}
	e := func() string { return g.expr(depth - 1) }
	switch g.Intn(14) {
	case 0, 1:
		return "(" + e() + " and " + e() + ")"
	case 2, 3:
		return "(" + e() + " or " + e() + ")"
	case 4:
		return e() + " and " + e() + " or " + e()
	case 5:
		return "not " + e()
	case 6:
		return "(" + e() + g.pick("==", "~=") + e() + ")"
	case 7:
		return "N(" + e() + ")" + g.pick("+", "-") + "N(" + e() + ")"
	case 8:
		return "(N(" + e() + ")" + g.pick("<", "<=", ">", ">=") + "N(" + e() + "))"
	case 9:
		return "S(" + e() + ")..S(" + e() + ")"
	case 10:
		return "{" + e() + ",x=" + e() + "," + g.list(depth-1) + "}"
	case 11:
		return "I(" + e() + ")" + g.pick("[1]", "[3]", ".x")
	case 12:
		return "(function(...) local a,b=... return a,b end)(" + g.list(depth-1) + ")"
	}
	return "#S(" + e() + ")"
}

func (g *generator) list(depth int) string {
	list := []string{g.expr(depth)}
	for range g.Intn(3) {
		list = append(list, g.expr(depth))
	}
	if g.Intn(3) == 0 {
		list = append(list, "M("+g.expr(0)+")")
	}
	return strings.Join(list, ",")
}

func (g *generator) target() string {
	return g.pick(g.pick(g.vars...), "T[K("+g.expr(1)+")]", "T.p", "T.q", "T.r")
}

// body writes a few statements with a scope of their own.
func (g *generator) body(depth int, vars ...string) {
	outer := len(g.vars)
	g.vars = append(g.vars, vars...)
	for range g.Intn(3) + 1 {
		g.statement(depth)
	}
	g.vars = g.vars[:outer]
}

func (g *generator) statement(depth int) {
	if g.budget--; g.budget < 0 {
		return
	}
	kind := g.Intn(13)
	if depth <= 0 {
		kind %= 5
	}
	switch kind {
	case 0:
		v := g.fresh()
		g.put("local %s=%s\n", v, g.expr(2))
		g.vars = append(g.vars, v)
	case 1:
		v, u := g.fresh(), g.fresh()
		g.put("local %s,%s=%s\n", v, u, g.list(2))
		g.vars = append(g.vars, v, u)
	case 2:
		g.put("%s=%s\n", g.target(), g.expr(2))
	case 3:
		g.put("%s,%s,%s=%s\n", g.target(), g.target(), g.target(), g.list(2))
	case 4:
		g.put("O(%s)\n", g.list(2))
	default:
		g.compound(kind, depth-1)
	}
}

func (g *generator) compound(kind, depth int) {
	v := g.fresh()
	switch kind {
	case 5, 6:
		g.put("if %s then\n", g.expr(2))
		g.body(depth)
		g.put("elseif %s then\n", g.expr(2))
		g.body(depth)
		g.put("else\n")
		g.body(depth)
	case 7:
		g.put("for %s=%d,%d do\n", v, g.Intn(2), g.Intn(4))
		g.body(depth, v)
		g.put("if %s then break end\n", g.expr(1))
	case 8:
		g.put("local %s=0 while %s<%d do %s=%s+1\n", v, v, g.Intn(4), v, v)
		g.body(depth)
	case 9:
		g.put("local %s=0 repeat %s=%s+1\n", v, v, v)
		outer := len(g.vars)
		g.statement(depth)
		g.put("until %s>=%d or %s\n", v, g.Intn(3)+1, g.expr(1))
		g.vars = g.vars[:outer]
		return
	case 10:
		f := g.fresh()
		g.put("local function %s(%s,...)\n", f, v)
		g.body(depth, v)
		g.put("return %s end\nO(%s(%s))\nFS[#FS+1]=%s\n", g.list(1), f, g.list(1), f)
		return
	case 11:
		g.put("for k,v in ipairs({%s}) do\n", g.list(1))
		g.body(depth, "k", "v")
		g.put("FS[#FS+1]=function() k=N(k)+1 return k,v end\n")
	case 12:
		g.put("do local %s=%s\nFS[#FS+1]=function(...) %s,%s=%s return %s end\n", v, g.expr(1), v, g.pick(g.vars...), g.list(1), g.list(1))
		g.body(depth, v)
	}
	g.put("end\n")
}

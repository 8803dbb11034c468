package luavm

import (
	"bufio"
	"fmt"
	"math/rand"
	"net"
	"os"
	"strings"
	"testing"
)

type gen struct {
	r     *rand.Rand
	b     strings.Builder
	vars  []string
	depth int
	n     int
	budget int
	infn int
	loop int
}

func (g *gen) v() string { return g.vars[g.r.Intn(len(g.vars))] }
func (g *gen) expr(d int) string {
	if d <= 0 {
		switch g.r.Intn(9) {
		case 0: return fmt.Sprint(g.r.Intn(5))
		case 1: return "nil"
		case 2: return "true"
		case 3: return "false"
		case 4: return fmt.Sprintf("'%c'", 'a'+g.r.Intn(3))
		case 5: return fmt.Sprintf("'%d'", g.r.Intn(12))
		default: return g.v()
		}
	}
	switch g.r.Intn(16) {
	case 0, 1: return fmt.Sprintf("(%s and %s)", g.expr(d-1), g.expr(d-1))
	case 2, 3: return fmt.Sprintf("(%s or %s)", g.expr(d-1), g.expr(d-1))
	case 4: return fmt.Sprintf("%s and %s or %s", g.expr(d-1), g.expr(d-1), g.expr(d-1))
	case 5: return fmt.Sprintf("not %s", g.expr(d-1))
	case 6: return fmt.Sprintf("(%s == %s)", g.expr(d-1), g.expr(d-1))
	case 7: return fmt.Sprintf("N(%s) %s N(%s)", g.expr(d-1), []string{"+", "-", "*", "%", "/"}[g.r.Intn(5)], g.expr(d-1))
	case 8: return fmt.Sprintf("(N(%s) %s N(%s))", g.expr(d-1), []string{"<", "<=", ">", ">=", "~="}[g.r.Intn(5)], g.expr(d-1))
	case 9: return fmt.Sprintf("S(%s)..S(%s)", g.expr(d-1), g.expr(d-1))
	case 10: return fmt.Sprintf("{%s,x=%s,%s}", g.expr(d-1), g.expr(d-1), g.multi(d-1))
	case 11: return fmt.Sprintf("I(%s)[%d]", g.expr(d-1), g.r.Intn(3)+1)
	case 12: return fmt.Sprintf("I(%s).x", g.expr(d-1))
	case 13: return fmt.Sprintf("(function(...) local a,b=... return a,b end)(%s)", g.multi(d-1))
	case 14: return fmt.Sprintf("#S(%s)", g.expr(d-1))
	default: return fmt.Sprintf("-N(%s)", g.expr(d-1))
	}
}
func (g *gen) multi(d int) string {
	n := g.r.Intn(3) + 1
	var l []string
	for i := 0; i < n; i++ { l = append(l, g.expr(d)) }
	if g.r.Intn(3) == 0 { l = append(l, "M("+g.expr(0)+")") }
	return strings.Join(l, ",")
}
func (g *gen) w(f string, a ...any) { fmt.Fprintf(&g.b, f, a...) }
func (g *gen) lhs() string {
	switch g.r.Intn(3) {
	case 0: return g.v()
	case 1: return fmt.Sprintf("T[%s]", g.key())
	default: return fmt.Sprintf("T.%c", 'p'+g.r.Intn(3))
	}
}
func (g *gen) key() string { return "K("+g.expr(1)+")" }
func (g *gen) block(d int) {
	save := len(g.vars)
	for i := g.r.Intn(4) + 1; i > 0; i-- { g.stmt(d) }
	g.vars = g.vars[:save]
}
func (g *gen) stmt(d int) {
	g.budget--
	if g.budget < 0 { return }
	k := g.r.Intn(14)
	if d <= 0 { k = g.r.Intn(6) }
	switch k {
	case 0:
		g.n++; v := fmt.Sprintf("v%d", g.n)
		g.w("local %s = %s\n", v, g.expr(2)); g.vars = append(g.vars, v)
	case 1:
		g.n += 2; a, b := fmt.Sprintf("v%d", g.n-1), fmt.Sprintf("v%d", g.n)
		g.w("local %s,%s = %s\n", a, b, g.multi(2)); g.vars = append(g.vars, a, b)
	case 2: g.w("%s = %s\n", g.lhs(), g.expr(2))
	case 3: g.w("%s,%s = %s\n", g.lhs(), g.lhs(), g.multi(2))
	case 4: g.w("O(%s)\n", g.multi(2))
	case 5: g.w("%s,%s,%s = %s\n", g.v(), g.lhs(), g.v(), g.multi(1))
	case 6: g.w("if %s then\n", g.expr(2)); g.block(d-1); if g.r.Intn(2)==0 { g.w("elseif %s then\n", g.expr(2)); g.block(d-1) }; if g.r.Intn(2)==0 { g.w("else\n"); g.block(d-1) }; g.w("end\n")
	case 7:
		g.n++; v := fmt.Sprintf("v%d", g.n)
		g.w("for %s=%d,%d do\n", v, g.r.Intn(2), g.r.Intn(4)); g.vars = append(g.vars, v); g.loop++; g.block(d-1); if g.r.Intn(3)==0 { g.w("if %s then break end\n", g.expr(1)) }; g.loop--; g.vars = g.vars[:len(g.vars)-1]; g.w("end\n")
	case 8:
		g.n++; c := fmt.Sprintf("c%d", g.n)
		g.w("local %s=0 while %s<%d do %s=%s+1\n", c, c, g.r.Intn(4), c, c); g.block(d-1); if g.r.Intn(3)==0 { g.w("if %s then break end\n", g.expr(1)) }; g.w("end\n")
	case 9:
		g.n++; c := fmt.Sprintf("c%d", g.n)
		g.w("local %s=0 repeat %s=%s+1\n", c, c, c); save := len(g.vars); g.stmt(d-1); g.w("until %s>=%d or %s\n", c, g.r.Intn(3)+1, g.expr(1)); g.vars = g.vars[:save]
	case 10:
		g.n++; f := fmt.Sprintf("f%d", g.n); p := fmt.Sprintf("p%d", g.n)
		g.w("local function %s(%s,...)\n", f, p); save := len(g.vars); g.vars = append(g.vars, p); g.block(d-1); g.w("return %s\n", g.multi(1)); g.vars = g.vars[:save]; g.w("end\nO(%s(%s))\n", f, g.multi(1))
		if g.r.Intn(2)==0 { g.w("FS[#FS+1]=%s\n", f) }
	case 11: g.w("do\n"); g.block(d-1); g.w("end\n")
	case 12: g.w("for k,v in ipairs({%s}) do\n", g.multi(1)); g.vars = append(g.vars, "k", "v"); g.block(d-1); g.vars = g.vars[:len(g.vars)-2]; g.w("FS[#FS+1]=function() k=N(k)+1 return k,v end end\n")
	case 13: g.n++; v := fmt.Sprintf("v%d", g.n); g.w("local %s=%s\nFS[#FS+1]=function(...) %s,%s=%s return %s end\n", v, g.expr(1), v, g.v(), g.multi(1), g.multi(1)); g.vars = append(g.vars, v)
	}
}
const prelude = `local OUT,T,FS={},{p=1,q='x'},{}
local function S(x) if type(x)=='table' then local r={} for i=1,6 do r[i]=S and type(x[i])=='table' and 'T' or tostring(x[i]) end return '{'..table.concat(r,',')..'|'..(type(x.x)=='table' and 'T' or tostring(x.x))..'}' elseif type(x)=='function' then return 'fn' end return tostring(x) end
local function N(x) return tonumber(x) or (x and 7 or 3) end
local function K(x) if x==nil or x~=x then return 'nil' elseif type(x)=='table' or type(x)=='function' then return 't' end return x end
local function I(x) if type(x)=='table' then return x end return {x,9,x=8} end
local function M(x) return x,2,nil,'m' end
local function O(...) for i=1,select('#',...) do OUT[#OUT+1]=S((select(i,...))) end OUT[#OUT+1]=';' end
local a,b,c=1,'2',nil
`
func TestDiff(t *testing.T) {
	addr := os.Getenv("DIFF")
	if addr == "" { t.Skip() }
	conn, _ := net.Dial("tcp", addr)
	in := bufio.NewReader(conn)
	w := newWorld(t, Options{})
	seed := int64(1)
	fmt.Sscan(os.Getenv("SEED"), &seed)
	bad := 0
	for i := 0; i < 30000 && bad < 6; i++ {
		g := &gen{r: rand.New(rand.NewSource(seed*1000000 + int64(i))), vars: []string{"a", "b", "c"}, budget: 25}
		g.w("%s", prelude)
		for j := 0; j < 6; j++ { g.stmt(3) }
		g.w("O(a,b,c,T.p,T.q,T.r)\nfor i=1,math.min(#FS,8) do local ok,e=pcall(function() O(FS[i](i,'z')) end) if not ok then O(e) end end\nreturn table.concat(OUT,' ')")
		s := g.b.String()
		fmt.Fprintf(conn, "*3\r\n$4\r\nEVAL\r\n$%d\r\n%s\r\n$1\r\n0\r\n", len(s), s)
		want, err := readReply(in)
		if err != nil { t.Fatal(err) }
		got := wire(w.eval(s), 2)
		if got != want {
			bad++
			t.Errorf("seed %d/%d:\n%s\n got %q\nwant %q", seed, i, strings.TrimPrefix(s, prelude), got, want)
		}
		if i%500 == 0 { fmt.Fprintf(conn, "*2\r\n$6\r\nSCRIPT\r\n$5\r\nFLUSH\r\n"); readReply(in) }
	}
}

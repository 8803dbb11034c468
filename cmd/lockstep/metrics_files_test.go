package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/lockstep-io/lockstep/conformance/nodes"
)

const (
	alertsFile    = root + "/deploy/prometheus/lockstep.rules.yml"
	dashboardFile = root + "/deploy/grafana/lockstep.json"
)

// alert is a rule of alertsFile.
type alert struct{ name, expr, severity, summary, description, runbook string }

// alerts reads alertsFile. promtool reads the file as YAML; here, its lines are enough.
func alerts(t *testing.T) (list []alert) {
	t.Helper()
	part := func(text, key string) string {
		m := regexp.MustCompile(`(?m)^ +` + key + `: (.+)$`).FindStringSubmatch(text)
		if m == nil {
			return ""
		}
		return strings.Trim(m[1], `"'`)
	}
	for _, block := range strings.Split(read(t, alertsFile), "- alert: ")[1:] {
		name, rest, _ := strings.Cut(block, "\n")
		a := alert{name: name, expr: part(rest, "expr"), summary: part(rest, "summary"), description: part(rest, "description"), runbook: part(rest, "runbook")}
		if m := regexp.MustCompile(`severity: (\w+)`).FindStringSubmatch(rest); m != nil {
			a.severity = m[1]
		}
		if a.expr == ">-" {
			_, folded, _ := strings.Cut(rest, ">-\n")
			lines := regexp.MustCompile(`^(?: {10}.*\n)+`).FindString(folded)
			a.expr = strings.Join(strings.Fields(lines), " ")
		}
		list = append(list, a)
	}
	return list
}

// panels returns the expressions of the dashboard, and the queries of its variables.
func panels(t *testing.T) (exprs, queries []string) {
	t.Helper()
	var d struct {
		Panels []struct {
			Type, Title, Description string
			Targets                  []struct{ Expr string }
		}
		Annotations struct{ List []struct{ Expr string } }
		Templating  struct {
			List []struct{ Type, Definition string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		if p.Type != "row" && (p.Title == "" || p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("the panel %q lacks a description or a query", p.Title)
		}
		for _, q := range p.Targets {
			exprs = append(exprs, q.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		exprs = append(exprs, a.Expr)
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			queries = append(queries, v.Definition)
		}
	}
	if len(exprs) < 40 || len(queries) < 2 {
		t.Fatalf("%d expressions, %d queries", len(exprs), len(queries))
	}
	return exprs, queries
}

// variables are values for the variables of Grafana.
var variables = strings.NewReplacer("$__rate_interval", "1m", "$job", "lockstep", "$instance", ".*")

// selector is a metric in an expression, with its matchers.
type selector struct {
	name     string
	matchers []string
}

// notMetrics are words of PromQL that no parenthesis follows, at least not always.
var notMetrics = []string{"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset", "inf", "nan"}

// selectors finds the metrics in an expression. promtool checks whether the expression is valid.
func selectors(expr string) (list []selector) {
	expr = variables.Replace(expr)
	expr = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right) *\([^)]*\)`).ReplaceAllString(expr, " ")
	expr = regexp.MustCompile(`\[[^\]]*\]`).ReplaceAllString(expr, " ")
	for _, m := range regexp.MustCompile(`([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})?\s*(\(?)|"[^"]*"|\b[\d.]+\w*`).FindAllStringSubmatch(expr, -1) {
		if m[1] == "" || m[3] != "" && m[2] == "" || slices.Contains(notMetrics, strings.ToLower(m[1])) {
			continue // text, a number, a function, an operator
		}
		s := selector{name: m[1]}
		if m[2] != "" {
			s.matchers = strings.Split(m[2], ",")
		}
		list = append(list, s)
	}
	return list
}

func TestSelectors(t *testing.T) {
	for expr, want := range map[string]string{
		`sum by (job, le) (rate(a_bucket{job="$job",how="x"}[5m])) > 1e15`:      `[{a_bucket [job="lockstep" how="x"]}]`,
		`up{job=~"a.*"} == 0 and on (job) group_right () (b - c) or d`:          `[{up [job=~"a.*"]} {b []} {c []} {d []}]`,
		`histogram_quantile(0.99, x) unless absent(y{z="(q"}) and "text(word)"`: `[{x []} {y [z="(q"]}]`,
	} {
		if got := fmt.Sprint(selectors(expr)); got != want {
			t.Errorf("%s: %s, want %s", expr, got, want)
		}
	}
}

// unknown says what a scrape lacks of a selector; "" if nothing.
func (s selector) unknown(families map[string]*dto.MetricFamily) string {
	if s.name == "up" {
		return "" // Prometheus makes it
	}
	f := families[s.name]
	for _, end := range []string{"_bucket", "_sum", "_count"} {
		if base, of := strings.CutSuffix(s.name, end); of && f == nil {
			if f = families[base]; f != nil && f.GetType() != dto.MetricType_HISTOGRAM && (f.GetType() != dto.MetricType_SUMMARY || end == "_bucket") {
				f = nil
			}
		}
	}
	if f == nil || f.GetType() == dto.MetricType_HISTOGRAM && f.GetName() == s.name {
		return "no metric " + s.name
	}
	for _, m := range s.matchers {
		parts := regexp.MustCompile(`^(\w+)(=~|!=|!~|=)"(.*)"$`).FindStringSubmatch(strings.TrimSpace(m))
		if parts == nil {
			return "no matcher " + m
		}
		if slices.Contains([]string{"job", "instance", "le"}, parts[1]) {
			continue
		}
		if !slices.ContainsFunc(f.Metric, func(one *dto.Metric) bool {
			return slices.ContainsFunc(one.Label, func(l *dto.LabelPair) bool {
				return l.GetName() == parts[1] && (parts[2] != "=" || l.GetValue() == parts[3])
			})
		}) {
			return s.name + " without " + m
		}
	}
	return ""
}

// TestAlertsAndDashboardNameMetrics: each metric in the alerts and in the dashboard, with its labels, is in the scrape of a real node.
func TestAlertsAndDashboardNameMetrics(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	lockTraffic(t, n, n)
	_, families := scrape(t, n)
	for _, planted := range []string{"lockstep_no_such_metric", "lockstep_keys_bucket", "lockstep_commit_seconds", `lockstep_lock_ends_total{how="stolen"}`, `lockstep_keys{kind="plain"}`} {
		if selectors(planted)[0].unknown(families) == "" {
			t.Errorf("nobody sees that there is no %s", planted)
		}
	}
	exprs, queries := panels(t)
	for _, q := range queries {
		inside := regexp.MustCompile(`^label_values\((.+), \w+\)$`).FindStringSubmatch(q)
		if inside == nil {
			t.Fatal(q)
		}
		exprs = append(exprs, inside[1])
	}
	rules := alerts(t)
	for _, a := range rules {
		exprs = append(exprs, a.expr)
	}
	named := 0
	for _, expr := range exprs {
		for _, s := range selectors(expr) {
			named++
			if why := s.unknown(families); why != "" {
				t.Errorf("%s: %s", expr, why)
			}
		}
	}
	if named < 100 || len(rules) < 20 {
		t.Errorf("%d alerts and the dashboard name %d metrics", len(rules), named)
	}
}

// TestAlertsSayWhatToDo: each alert says what has happened, what that means, and has a section in docs/runbook.md, where each section of an
// alert has one.
func TestAlertsSayWhatToDo(t *testing.T) {
	guide := read(t, root+"/docs/runbook.md")
	seen := map[string]bool{}
	for _, a := range alerts(t) {
		switch {
		case a.name == "" || seen[a.name] || a.expr == "" || a.summary == "" || len(a.description) < 40 || !slices.Contains([]string{"info", "warning", "critical"}, a.severity):
			t.Errorf("incomplete: %+v", a)
		case strings.TrimSuffix(a.runbook, `"`) != `docs/runbook.md, "`+a.name || !strings.Contains(guide, "\n## "+a.name+"\n"):
			t.Errorf("%s: no section %q", a.name, a.runbook)
		}
		seen[a.name] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^## (Lockstep\w+)$`).FindAllStringSubmatch(guide, -1) {
		if !seen[m[1]] {
			t.Errorf("docs/runbook.md has a section on %s, which is no alert", m[1])
		}
	}
}

// TestPromtoolTakesTheFiles: promtool finds the alerts and the expressions of the dashboard valid. testdata/alerts.yml says when each alert
// fires.
func TestPromtoolTakesTheFiles(t *testing.T) {
	promtool := tool(t, "promtool")
	dir := t.TempDir()
	exprs, _ := panels(t)
	var b strings.Builder
	b.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for i, expr := range exprs {
		text, err := json.Marshal(variables.Replace(expr)) // a JSON string is one of YAML, too
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "  - record: panel:%d\n    expr: %s\n", i, text)
	}
	for name, text := range map[string]string{"lockstep.rules.yml": read(t, alertsFile), "dashboard.yml": b.String(), "alerts.yml": read(t, "testdata/alerts.yml"),
		"wrong.yml": "groups:\n- name: wrong\n  rules:\n  - record: x\n    expr: sum(\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) error {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	}
	if err := run("check", "rules", "lockstep.rules.yml", "dashboard.yml"); err != nil {
		t.Error(err)
	}
	if err := run("test", "rules", "alerts.yml"); err != nil {
		t.Error(err)
	}
	if run("check", "rules", "wrong.yml") == nil {
		t.Error("promtool takes an expression that is wrong")
	}
	list := read(t, "testdata/alerts.yml")
	for _, a := range alerts(t) {
		if !strings.Contains(list, `{alertname="`+a.name+`"}`) {
			t.Errorf("testdata/alerts.yml has nothing of %s", a.name)
		}
	}
}

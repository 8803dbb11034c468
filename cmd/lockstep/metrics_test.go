package main

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/store"
)

// scrape returns the page /metrics of a node, and what is on it, by name.
func scrape(t *testing.T, n *nodes.Node) (text string, families map[string]*dto.MetricFamily) {
	t.Helper()
	status, text := page(t, http.DefaultClient, "http://"+n.HTTPAddr+"/metrics", "", "", "")
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return text, families
}

// value returns the sum of the values of the series of a metric that have these labels, such as "kind=plain"; of a histogram, the number
// of its values.
func value(families map[string]*dto.MetricFamily, name string, labels ...string) (sum float64) {
	for _, m := range families[name].GetMetric() {
		fits := true
		for _, want := range labels {
			fits = fits && slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName()+"="+l.GetValue() == want })
		}
		if fits {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// tool returns the path of a program that CI has.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed, and CI has it: .ci/install", name)
		}
		t.Skipf("%s is not installed", name)
	}
	return path
}

// lockTraffic makes events of every kind of lock that clients can take without a library. It names keys, owners and users that must not be in
// a label.
func lockTraffic(t *testing.T, leader, follower *nodes.Node) {
	t.Helper()
	c, d := leader.Dial(), follower.Dial()
	ask(t, c, "ACL", "SETUSER", "hush-user", "on", "nopass", "allkeys", "allchannels", "+@all")
	ask(t, d, "AUTH", "hush-user", "x")
	for i, words := range []string{"", "REENTRANT", "SHARED", "LIMIT 1", "DELAY 1"} {
		key := fmt.Sprint("hush-key", i)
		acquire := append([]string{"LOCK.ACQUIRE", key, "hush-owner", "PX", "60000"}, strings.Fields(words)...)
		ask(t, c, acquire...)
		acquire[2] = "hush-other"
		ask(t, d, acquire...)
		acquire[2] = "hush-third"
		ask(t, d, append(acquire, "WAIT", "1")...)
		ask(t, c, "LOCK.RELEASE", key, "hush-owner")
	}
	ask(t, c, "SET", "hush-key", "hush-owner", "NX", "PX", "60000")
	for range 3 {
		ask(t, d, "SET", "hush-key", "hush-other", "NX", "PX", "60000")
	}
	ask(t, d, "GET", "hush-key")
	ask(t, c, "LOCK.FORCE", "hush-key", "REASON", "hush-reason")
	ask(t, c, "EVAL", "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 60000)", "1", "hush-script", "hush-owner")
	for _, wrong := range []string{"HUSH.COMMAND", "HGET", "GET"} {
		if _, err := d.Do(wrong, "hush-script", "hush-field"); err == nil {
			t.Errorf("%s has no error", wrong)
		}
	}
}

// TestMetrics looks at the metrics of a leader and of its followers after lock traffic: they keep the conventions of Prometheus, they say what
// happened, docs/metrics.md describes them, and nothing that clients name is in them.
func TestMetrics(t *testing.T) {
	list := nodes.Start(t, 3)
	leader := nodes.Leader(list)
	follower := list[0]
	if follower == leader {
		follower = list[1]
	}
	lockTraffic(t, leader, follower)
	all := map[string]*dto.MetricFamily{}
	for _, n := range list {
		text, families := scrape(t, n)
		maps.Copy(all, families)
		if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
			t.Errorf("%s: %v %+v", n.ID, err, problems)
		}
		if strings.Contains(text, "hush") || strings.Contains(text, "127.0.0.1") || strings.Contains(text, n.ID+`"`) {
			t.Errorf("%s shows what clients name", n.ID)
		}
		if len(text) > longestScrape {
			t.Errorf("a scrape has %d bytes", len(text))
		}
		for name, want := range map[string]bool{"lockstep_is_leader": n == leader, "lockstep_has_leader": true, "lockstep_ready": true, "lockstep_members_down": false,
			"lockstep_disk_trouble": false, "lockstep_log_sync_seconds": true, "lockstep_apply_seconds": true, "lockstep_leader_changes_total": true, "lockstep_write_sets_total": true,
			"lockstep_commit_seconds": n == leader, "lockstep_batch_requests": n == leader, "lockstep_raft_proposals_total": n == leader, "lockstep_lock_misses_total": n == leader,
			"lockstep_lock_grants_total": n == leader, "lockstep_lock_ends_total": n == leader, "lockstep_lock_hold_seconds": n == leader,
			"lockstep_lock_wait_seconds": n == follower} {
			if got := value(families, name); (got > 0) != want {
				t.Errorf("%s: %s is %v, want more than 0: %v", n.ID, name, got, want)
			}
		}
	}
	_, at := scrape(t, leader)
	if got := value(at, "lockstep_lock_misses_total", "kind=plain"); got != 4 {
		t.Errorf("%v misses of plain locks, not 4", got)
	}
	if got := value(at, "lockstep_lock_ends_total", "kind=plain", "how=forced"); got != 1 {
		t.Errorf("%v plain locks were ended by force, not 1", got)
	}
	_, at = scrape(t, follower)
	if got := value(at, "lockstep_lock_waits_total", "kind=plain", "outcome=timeout"); got != 1 {
		t.Errorf("%v waits for plain locks are over, not 1", got)
	}
	if got := value(at, "lockstep_commands_total", "command=lock.acquire"); got != 10 {
		t.Errorf("%v calls of LOCK.ACQUIRE, not 10", got)
	}
	if got := value(at, "lockstep_commands_failed_total", "command=hget"); got != 1 {
		t.Errorf("%v calls of HGET failed, not 1", got)
	}
	checkLabels(t, all)
	checkMetricsDocument(t, all)
}

// TestPromtoolTakesTheMetrics: promtool finds nothing to complain of in the metrics of a node.
func TestPromtoolTakesTheMetrics(t *testing.T) {
	promtool := tool(t, "promtool")
	for _, flags := range [][]string{nil, {"--ephemeral"}} {
		n := nodes.Start(t, 1, flags...)[0]
		lockTraffic(t, n, n)
		text, _ := scrape(t, n)
		check := exec.Command(promtool, "check", "metrics")
		check.Stdin = strings.NewReader(text)
		if out, err := check.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%v: %v %s", flags, err, out)
		}
	}
}

// checkLabels: each label is one of a few, and so is each of its values.
func checkLabels(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	kinds := append(store.LockKinds(), "other")
	for name, f := range families {
		if !strings.HasPrefix(name, "lockstep_") {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				switch l.GetName() {
				case "kind":
					if !slices.Contains(kinds, l.GetValue()) {
						t.Errorf("%s has a kind %s", name, l.GetValue())
					}
				case "how", "outcome", "command", "group": // words of the program
				default:
					t.Errorf("%s has a label %s", name, l.GetName())
				}
			}
		}
	}
	for _, kind := range kinds {
		if n := value(families, "lockstep_lock_grants_total", "kind="+kind); n < 0 || !slices.ContainsFunc(families["lockstep_lock_grants_total"].Metric, func(m *dto.Metric) bool { return m.Label[0].GetValue() == kind }) {
			t.Errorf("there is no kind %s before its first lock", kind)
		}
	}
}

const metricsDocument = root + "/docs/metrics.md"

var records = os.Getenv("LOCKSTEP_RECORD") != "" // TestMain takes such variables away

// checkMetricsDocument: docs/metrics.md has exactly the metrics of the scrape, as they describe themselves. With LOCKSTEP_RECORD=1, it is
// written.
func checkMetricsDocument(t *testing.T, families map[string]*dto.MetricFamily) {
	t.Helper()
	doc := read(t, metricsDocument)
	head, _, found := strings.Cut(doc, "| metric |")
	if !found {
		t.Fatal("docs/metrics.md has no table")
	}
	var b strings.Builder
	b.WriteString(head + "| metric | type | labels | |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		if !strings.HasPrefix(name, "lockstep_") {
			continue
		}
		labels := map[string]bool{}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				labels["`"+l.GetName()+"`"] = true
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()), strings.Join(slices.Sorted(maps.Keys(labels)), ", "), f.GetHelp())
	}
	if b.String() == doc {
		return
	}
	if !records {
		t.Error("docs/metrics.md is not true any more: LOCKSTEP_RECORD=1 go test ./cmd/lockstep -run '^TestMetrics$'")
		return
	}
	if err := os.WriteFile(metricsDocument, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

package raftnode

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metrics "github.com/hashicorp/go-metrics/compat"
)

// TestRaftReportsEachMetric: hashicorp/raft still has each metric of the table.
func TestRaftReportsEachMetric(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/hashicorp/raft").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{"raft.leader.oldestLogAge": true} // its name is put together
	call := regexp.MustCompile(`\[\]string\{((?:"\w+"(?:, )?)+)[^}]*\}`)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			name := strings.ReplaceAll(strings.Trim(m[1], `", `), `", "`, ".")
			there[name] = true
		}
	}
	names := map[string]bool{}
	for _, e := range table {
		if !there[e.from] {
			t.Errorf("Raft has no metric %s", e.from)
		}
		if names[e.name] || names[e.from] || e.help == "" || e.per == 0 {
			t.Errorf("%+v", e)
		}
		names[e.name], names[e.from] = true, true
	}
}

// TestRaftMetricsAreBounded: what Raft reports for each peer makes no new metric, and no label counts.
func TestRaftMetricsAreBounded(t *testing.T) {
	listen()
	find := func(name string) Metric {
		for _, m := range Emitted() {
			if m.Name == name {
				return m
			}
		}
		t.Fatal("no metric", name)
		return Metric{}
	}
	n, before := len(Emitted()), find("heartbeat_round_trip_seconds")
	proposals := find("proposals_total").Value
	for _, peer := range []string{"n2", "n3", strings.Repeat("x", 1000), ""} {
		metrics.MeasureSince([]string{"raft", "replication", "heartbeat", peer}, time.Now()) // Raft reports it in both ways
		metrics.AddSampleWithLabels([]string{"raft", "replication", "heartbeat"}, 250, []metrics.Label{{Name: "peer_id", Value: peer}})
		metrics.IncrCounter([]string{"raft", "apply"}, 2)
		metrics.SetGaugeWithLabels([]string{"raft", peer}, 1, []metrics.Label{{Name: "peer_id", Value: peer}})
		metrics.IncrCounterWithLabels([]string{peer}, 1, nil)
		metrics.EmitKey([]string{"raft", "apply"}, 7)
	}
	metrics.SetGauge([]string{"raft", "leader", "oldestLogAge"}, 1500)
	if got := find("oldest_entry_age_seconds"); got.Value != 1.5 || got.Kind != Gauge {
		t.Errorf("%+v", got)
	}
	got := find("heartbeat_round_trip_seconds")
	if len(Emitted()) != n || got.Count-before.Count != 4 || got.Value-before.Value < 0.999 || got.Value-before.Value > 1.001 {
		t.Errorf("%d metrics, not %d; %+v, before %+v", len(Emitted()), n, got, before)
	}
	if grown := find("proposals_total").Value - proposals; grown != 8 {
		t.Errorf("%v proposals", grown)
	}
}

// TestRaftMetricsAllocateNothing: Raft reports metrics for each entry.
func TestRaftMetricsAllocateNothing(t *testing.T) {
	listen()
	key := []string{"raft", "replication", "appendEntries", "rpc"}
	var s metrics.MetricSink = sink{map[string]*emitted{"raft.replication.appendEntries.rpc": {per: 1}}}
	if n := testing.AllocsPerRun(100, func() { s.AddSample(key, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

package kills

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/conformance/judge"
)

// spread describes a set of durations, in milliseconds.
type spread struct {
	N                  int
	P50, P90, P99, Max float64
}

func summarise(all []time.Duration) spread {
	if len(all) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(all))
	at := func(p int) float64 {
		return float64(sorted[(len(sorted)*p+99)/100-1].Microseconds()) / 1000
	}
	return spread{N: len(all), P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
}

func (s spread) String() string {
	return fmt.Sprintf("p50 %.0f ms, p90 %.0f ms, p99 %.0f ms, max %.0f ms (n %d)", s.P50, s.P90, s.P99, s.Max, s.N)
}

// report is the outcome of a run.
type report struct {
	Clients int
	Kills   int
	Seconds float64
	// NextGrant and Everywhere are the times from the leader's death until one survivor and until every survivor grants a lock.
	NextGrant, Everywhere spread `json:",omitzero"`
	// These are the longest waits for a reply: during a transfer of leadership, during a stop of the leader by SIGTERM, and undisturbed.
	Transfer, Stop, Undisturbed spread `json:",omitzero"`
	Operations                  map[string]int
	Faults                      map[judge.Fault]int
	Told                        []string `json:",omitempty"`
}

// text returns the report as text for people.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d clients on three nodes, %d leader kills, %.0f s\n", r.Clients, r.Kills, r.Seconds)
	for _, s := range []struct {
		what string
		spread
	}{
		{"kill to next grant at a surviving node", r.NextGrant},
		{"kill to next grant at every surviving node", r.Everywhere},
		{"longest wait of a client in a planned transfer", r.Transfer},
		{"longest wait of a client while the leader stops", r.Stop},
		{"longest wait of a client while nothing is done", r.Undisturbed},
	} {
		if s.N > 0 {
			fmt.Fprintf(&b, "%s: %v\n", s.what, s.spread)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(r.Operations)) {
		fmt.Fprintf(&b, "  %8d %s\n", r.Operations[what], what)
	}
	for _, f := range judge.Faults {
		fmt.Fprintf(&b, "  %8d %s\n", r.Faults[f], f)
	}
	return b.String()
}

// write writes the report as JSON to the file that $LOCKSTEP_KILLS_REPORT names.
func (r *report) write() error {
	path := os.Getenv("LOCKSTEP_KILLS_REPORT")
	if path == "" {
		return nil
	}
	out, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(out, '\n'), 0o644)
}

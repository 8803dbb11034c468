// Package compatibility writes docs/compatibility.md from the command table and from what the suites of foreign clients reported.
//
// A suite appends JSON objects, one per line, to the file in $LOCKSTEP_RESULTS:
//
//	{"client":"redis-py Lock","version":"8.1.0","mode":"RESP3","test":"extend","result":"passed"}
//
// mode says how the client was set up (plain, sentinel, cluster, RESP2 …). A test that was skipped has the field "reason".
// `LOCKSTEP_RECORD=1 make conformance` keeps the results in results/. `go run ./conformance/compatibility/generate` writes the
// document.
package compatibility

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// These are the outcomes of a test.
const (
	Passed  = "passed"
	Skipped = "skipped"
	Failed  = "failed"
)

// Result is one test of one client in one mode.
type Result struct {
	Client  string `json:"client"`
	Version string `json:"version"`
	Mode    string `json:"mode"`
	Nodes   int    `json:"nodes,omitempty"` // 1 or 3; the suites do not report it, the harness adds it
	Test    string `json:"test"`
	Outcome string `json:"result"`
	Reason  string `json:"reason,omitempty"`
}

// validate returns an error if a result is incomplete.
func (r Result) validate() error {
	switch {
	case r.Client == "" || r.Version == "" || r.Mode == "" || r.Test == "":
		return fmt.Errorf("client, version, mode or test is missing in %+v", r)
	case r.Outcome == Skipped && r.Reason == "":
		return fmt.Errorf("skipped without a reason: %+v", r)
	case r.Outcome != Passed && r.Outcome != Skipped && r.Outcome != Failed:
		return fmt.Errorf("result %q is none of passed, skipped, failed", r.Outcome)
	}
	return nil
}

// ReadResults reads a file of results. If a suite reports nothing, it has no file.
func ReadResults(file string) ([]Result, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var results []Result
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		var r Result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		if err := r.validate(); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		results = append(results, r)
	}
	return results, lines.Err()
}

// WriteResults writes results in an order that does not depend on when the tests ran.
func WriteResults(file string, results []Result) error {
	results = slices.Clone(results)
	slices.SortFunc(results, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Client, b.Client), cmp.Compare(a.Mode, b.Mode),
			cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Test, b.Test))
	})
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, r := range results {
		if err := r.validate(); err != nil {
			return err
		}
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

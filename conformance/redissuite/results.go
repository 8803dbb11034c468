package redissuite

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
)

// Result has the counts of a file.
type Result struct {
	Unit                     string
	Passed, Skipped, LeftOut int
}

// result returns the counts of a report without faults.
func (u Unit) result(r Report) Result {
	res := Result{Unit: u.Name, Passed: len(r.Passed), Skipped: len(r.Skipped)}
	for _, n := range r.Ignored {
		res.LeftOut += n
	}
	return res
}

// WriteResults writes a file of results.
func WriteResults(file string, results []Result) error {
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "%s %d passed %d skipped %d left-out\n", r.Unit, r.Passed, r.Skipped, r.LeftOut)
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// ReadResults reads what WriteResults has written.
func ReadResults(r io.Reader) ([]Result, error) {
	var list []Result
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var x Result
		if _, err := fmt.Sscanf(lines.Text(), "%s %d passed %d skipped %d left-out", &x.Unit, &x.Passed, &x.Skipped, &x.LeftOut); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		list = append(list, x)
	}
	return list, lines.Err()
}

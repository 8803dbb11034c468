package redissuite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const sectionHead = `
## Redis's own suite

` + "`make redis-suite`" + ` runs the test suite of Redis 7.0.15 (Debian 12's source package). Each file runs against a node of its own, as the suite runs against an external server.
%d tests pass, and none fails; %d are skipped by name, with the reasons below. The suite itself leaves out %d tests or groups of tests for an external
server, because they start servers of their own, attach replicas or need several GB of memory; they are in neither number. In the files marked *, those that start a server run, too. Many files run a test once for each encoding, and each run counts.

| file | passed | skipped | left out |
|---|---|---|---|
`

// Section returns the part of docs/compatibility.md about the suite. It reads suite.txt and results.txt in a directory.
func Section(dir string) (string, error) {
	units, results, err := read(dir)
	if err != nil {
		return "", err
	}
	var table, skipped, absent strings.Builder
	var all Result
	for _, u := range units {
		if u.Absent != "" {
			fmt.Fprintf(&absent, "- %s: %s\n", u.Name, u.Absent)
			continue
		}
		r, ok := results[u.Name]
		if !ok {
			return "", fmt.Errorf("results.txt lacks %s: run LOCKSTEP_RECORD=1 make redis-suite", u.Name)
		}
		mark := ""
		if u.Within {
			mark = " *"
		}
		fmt.Fprintf(&table, "| %s%s | %d | %d | %d |\n", u.Name, mark, r.Passed, r.Skipped, r.LeftOut)
		all.Passed, all.Skipped, all.LeftOut = all.Passed+r.Passed, all.Skipped+r.Skipped, all.LeftOut+r.LeftOut
		for _, s := range u.Skips {
			fmt.Fprintf(&skipped, "- %s, %s: %s\n", u.Name, s.Test, s.Reason)
		}
	}
	return fmt.Sprintf(sectionHead, all.Passed, all.Skipped, all.LeftOut) + table.String() +
		"\nSkipped:\n" + skipped.String() + "\nNot run:\n" + absent.String(), nil
}

func read(dir string) ([]Unit, map[string]Result, error) {
	list, err := os.Open(filepath.Join(dir, "suite.txt"))
	if err != nil {
		return nil, nil, err
	}
	defer list.Close()
	units, err := ReadList(list)
	if err != nil {
		return nil, nil, err
	}
	counted, err := os.Open(filepath.Join(dir, "results.txt"))
	if err != nil {
		return nil, nil, err
	}
	defer counted.Close()
	results, err := ReadResults(counted)
	if err != nil {
		return nil, nil, err
	}
	byName := map[string]Result{}
	for _, r := range results {
		byName[r.Unit] = r
	}
	return units, byName, nil
}

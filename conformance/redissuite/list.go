package redissuite

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Unit is a file of the suite.
type Unit struct {
	Name   string
	Quick  bool   // run by `make test`, too
	Within bool   // also run the tests that the suite leaves out on an external server
	Absent string // why the file is not run at all; "" if it is run
	Skips  []Skip
}

// Skip is a test that is not run.
type Skip struct{ Test, Reason string }

// ReadList reads suite.txt. A line names a unit, with a colon and a reason if it is not run. An indented line names a skipped test, with
// " => " and a reason.
func ReadList(r io.Reader) ([]Unit, error) {
	var units []Unit
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		var err error
		if test, indented := strings.CutPrefix(line, "\t"); indented {
			err = addSkip(units, test)
		} else {
			var u Unit
			u, err = readUnit(line)
			units = append(units, u)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return units, lines.Err()
}

func readUnit(line string) (u Unit, err error) {
	words, absent, without := strings.Cut(line, ": ")
	if u.Absent = absent; without && absent == "" {
		return u, errors.New("no reason behind the colon")
	}
	for i, word := range strings.Fields(words) {
		switch {
		case i == 0:
			u.Name = word
		case word == "quick":
			u.Quick = true
		case word == "within":
			u.Within = true
		default:
			return u, fmt.Errorf("%q is none of quick, within", word)
		}
	}
	return u, nil
}

func addSkip(units []Unit, line string) error {
	test, reason, ok := strings.Cut(line, " => ")
	if !ok || reason == "" {
		return errors.New("no reason: write the test's name, \" => \" and why it is skipped")
	}
	if len(units) == 0 || units[len(units)-1].Absent != "" {
		return errors.New("a test that belongs to no file which is run")
	}
	u := &units[len(units)-1]
	u.Skips = append(u.Skips, Skip{test, reason})
	return nil
}

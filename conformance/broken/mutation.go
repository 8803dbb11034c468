package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A mutation is a file that says how to break the program and which test must
// notice:
//
//	class: J1
//	why: one sentence, what the broken program does
//	test: ./cluster ^TestJ1ExecutedOnce$
//	file: cluster/once.go
//	-- old --
//	the lines that are replaced; they occur exactly once in the file
//	-- new --
//	what stands there instead
//
// Further `file:` lines, each with its old and new text, may follow. A class is
// one of docs/failures.md, or a word for a bug that was lockstep's own.
const (
	oldMark = "-- old --"
	newMark = "-- new --"
)

type mutation struct {
	name  string // of its file, without the extension
	class string
	why   string
	pkg   string // the package of the test …
	run   string // … and its name, for go test -run
	edits []edit
}

type edit struct{ file, old, new string }

// readMutations reads every mutation of a folder, in the order of their classes.
func readMutations(dir string) ([]*mutation, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no mutations in %s: run this from the root of the repository", dir)
	}
	var list []*mutation
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		m, err := parseMutation(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		m.name = strings.TrimSuffix(filepath.Base(name), ".txt")
		list = append(list, m)
	}
	slices.SortStableFunc(list, func(a, b *mutation) int { return strings.Compare(sortable(a.class), sortable(b.class)) })
	return list, nil
}

// sortable returns a text for sorting: that of J2 comes before that of J10.
func sortable(class string) string {
	letters := strings.TrimRight(class, "0123456789")
	n, err := strconv.Atoi(class[len(letters):])
	if err != nil {
		return class
	}
	return fmt.Sprintf("%s%09d", letters, n)
}

func parseMutation(data []byte) (*mutation, error) {
	m := &mutation{}
	var text *string // the part of the mutation that the present line belongs to; nil: the header
	var faults []error
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if file, ok := strings.CutPrefix(line, "file: "); ok {
			m.edits, text = append(m.edits, edit{file: file}), nil
			continue
		}
		switch {
		case (line == oldMark || line == newMark) && len(m.edits) > 0:
			text = &m.edits[len(m.edits)-1].old
			if line == newMark {
				text = &m.edits[len(m.edits)-1].new
			}
		case text != nil:
			*text += line + "\n"
		default:
			if err := m.header(line); err != nil {
				faults = append(faults, fmt.Errorf("line %d: %w", n, err))
			}
		}
	}
	if m.class == "" || m.why == "" || m.run == "" || len(m.edits) == 0 {
		faults = append(faults, errors.New("class, why, test and file are needed"))
	}
	for _, e := range m.edits {
		if strings.TrimSpace(e.old) == "" || e.old == e.new {
			faults = append(faults, fmt.Errorf("%s: the old text is empty, or the same as the new one", e.file))
		}
	}
	return m, errors.Join(append(faults, lines.Err())...)
}

func (m *mutation) header(line string) error {
	name, value, ok := strings.Cut(line, ": ")
	switch {
	case strings.TrimSpace(line) == "":
	case ok && name == "class":
		m.class = value
	case ok && name == "why":
		m.why = value
	case ok && name == "test":
		if m.pkg, m.run, ok = strings.Cut(value, " "); !ok {
			return fmt.Errorf("%q: a package and an expression for -run are needed", value)
		}
	default:
		return fmt.Errorf("%q is no field of a mutation", line)
	}
	return nil
}

// apply returns the broken files by their path under root.
func (m *mutation) apply(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, e := range m.edits {
		data, read := files[e.file]
		if !read {
			var err error
			if data, err = os.ReadFile(filepath.Join(root, e.file)); err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
		}
		if n := bytes.Count(data, []byte(e.old)); n != 1 {
			return nil, fmt.Errorf("%s: its old text occurs %d times in %s, not once: the program has changed, change the mutation too", m.name, n, e.file)
		}
		files[e.file] = bytes.Replace(data, []byte(e.old), []byte(e.new), 1)
	}
	return files, nil
}

// Package dependencies lists the modules that are linked into lockstep, with their licences. docs/licenses.md is generated from the
// list.
package dependencies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Module is a module that is linked in.
type Module struct {
	Path, Version string
	License       string   // its SPDX identifier
	Packages      int      // how many packages of the module are linked in
	NeededBy      []string // the modules whose packages import the module
}

// linked is a package as go list describes it.
type linked struct {
	ImportPath string
	Imports    []string
	Module     *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// List lists the modules that the linker uses for the released program: for Linux, without cgo.
func List(root string) ([]Module, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Module", "./cmd/lockstep")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	var faults bytes.Buffer
	cmd.Stderr = &faults
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, faults.String())
	}
	packages := make(map[string]linked)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p linked
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		packages[p.ImportPath] = p
	}
	return modules(packages)
}

func modules(packages map[string]linked) ([]Module, error) {
	found := make(map[string]*Module)
	var faults error
	for _, p := range packages {
		if p.Module == nil || p.Module.Main {
			continue
		}
		m := found[p.Module.Path]
		if m == nil {
			license, err := licenseIn(p.Module.Dir)
			if err != nil {
				faults = errors.Join(faults, fmt.Errorf("%s %s: %w", p.Module.Path, p.Module.Version, err))
			}
			m = &Module{Path: p.Module.Path, Version: p.Module.Version, License: license}
			found[m.Path] = m
		}
		m.Packages++
	}
	for _, p := range packages {
		for _, name := range p.Imports {
			if to := packages[name].Module; to != nil && !to.Main && p.Module != nil && p.Module.Path != to.Path {
				m := found[to.Path]
				m.NeededBy = append(m.NeededBy, p.Module.Path)
			}
		}
	}
	var list []Module
	for _, m := range found {
		slices.Sort(m.NeededBy)
		m.NeededBy = slices.Compact(m.NeededBy)
		list = append(list, *m)
	}
	slices.SortFunc(list, func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	return list, faults
}

// licenseIn recognises the licence of a module by its text.
func licenseIn(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !strings.HasPrefix(name, "LICENSE") && !strings.HasPrefix(name, "LICENCE") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		if id := recognize(string(text)); id != "" {
			return id, nil
		}
		return "", fmt.Errorf("%s is a licence that is not known here: read it, and say in recognize what it is", e.Name())
	}
	return "", errors.New("it has no licence: it may not be linked in")
}

// recognize returns the SPDX identifier of a licence, or "" if it is unknown or not allowed.
func recognize(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	has := func(words string) bool { return strings.Contains(text, words) }
	switch {
	case has("GNU GENERAL PUBLIC LICENSE"), has("GNU AFFERO"), has("Business Source License"), has("Server Side Public License"):
		return ""
	case has("Mozilla Public License, version 2.0"), has("Mozilla Public License Version 2.0"):
		return "MPL-2.0"
	case has("Apache License Version 2.0"):
		return "Apache-2.0"
	case has("Permission is hereby granted, free of charge"):
		return "MIT"
	case has("Permission to use, copy, modify, and/or distribute this software"):
		return "ISC"
	case has("Redistributions in binary form must reproduce") && (has("Neither the name") || has("names of its contributors") || has("name of the copyright holder")):
		return "BSD-3-Clause"
	case has("Redistributions in binary form must reproduce"):
		return "BSD-2-Clause"
	}
	return ""
}

// Document returns the text of docs/licenses.md.
func Document(list []Module) []byte {
	var b bytes.Buffer
	b.WriteString(head)
	for _, m := range list {
		var by []string
		for _, path := range m.NeededBy {
			by = append(by, "`"+path+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %d | %s |\n", m.Path, m.Version, m.License, m.Packages, strings.Join(by, ", "))
	}
	b.WriteString(tail)
	return b.Bytes()
}

const head = `# What is linked in, and under which licences

` + "`make licenses`" + ` writes this page; ` + "`TestLicenses`" + ` fails if it is not true, if a module has no licence, or one that does not go with lockstep's own (Apache-2.0).
The Go standard library (BSD-3-Clause) comes with the compiler. Modules that only tests and tools need are in go.mod and not here.

| module | version | licence | packages linked | needed by |
|---|---|---|---|---|
`

const tail = `
## What is old and stays

- ` + "`github.com/coreos/etcd`" + ` 3.3.27 is archived, and it brings ` + "`coreos/pkg`" + ` and ` + "`coreos/go-systemd`" + `. raft-wal 0.4.2 uses one function of it, which reserves disk space for a file. lockstep does not call that function, because
  it makes its log segments itself (` + "`cluster/internal/datadir/segments.go`" + `). raft-wal has replaced the function since (its pull request 44), but no version in the Go proxy has the change. We do not put our own module in its
  place: go.mod would still name it, and ` + "`go install`" + ` refuses replacements. We do not rewrite raft-wal either: its logic is some 1,300 lines, and every recovery after a crash depends on them. The vulnerability database names
  no fault of the package.
- ` + "`github.com/boltdb/bolt`" + ` 1.3.1 is archived. raft-boltdb 2.3.1, the newest version, uses it to migrate data of its own version 1; lockstep never calls that migration. Raft's vote and settings are in its successor, ` + "`go.etcd.io/bbolt`" + `.
- ` + "`github.com/hashicorp/raft`" + ` 1.8.0 is out, but cannot be built together with raft-boltdb 2.3.1. It needs go-metrics 0.7, which no longer has the package ` + "`compat`" + `, and raft-boltdb imports that package. lockstep needs nothing that
  is new in 1.8.0 (the log may keep the commit index; a snapshot without anything new is no error line), and no fault that 1.8.0 repairs concerns lockstep. We take it with the next raft-boltdb.

` + "`.ci/vulnerabilities`" + ` compares all of it with the Go vulnerability database (docs/security.md).
`

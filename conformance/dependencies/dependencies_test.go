package dependencies

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLicenses: docs/licenses.md names the modules that are linked in, and their licences allow that.
func TestLicenses(t *testing.T) {
	list, err := List("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 10 {
		t.Fatalf("only %d modules: %v", len(list), list)
	}
	doc, err := os.ReadFile("../../docs/licenses.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(doc, Document(list)) {
		t.Error("docs/licenses.md is not true any more: make licenses")
	}
}

func TestRecognize(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"LICENSE", "Apache License\n   Version 2.0, January 2004", "Apache-2.0"},
		{"LICENSE.txt", "Mozilla Public License, version 2.0", "MPL-2.0"},
		{"COPYING", "Permission is hereby granted,\nfree of charge, to any", "MIT"},
		{"license", "Redistributions in binary form must reproduce … Neither the name of", "BSD-3-Clause"},
		{"LICENSE", "Redistributions in binary form must reproduce", "BSD-2-Clause"},
		{"LICENSE", "GNU AFFERO GENERAL PUBLIC LICENSE. Permission is hereby granted, free of charge", ""},
		{"LICENSE", "All rights reserved.", ""},
		{"README", "Apache License Version 2.0", ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := licenseIn(dir); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s, %q: %q, %v; want %q", c.file, c.text, got, err, c.want)
		}
	}
}

// TestImageContext: the build context of `docker build` contains the packages of the program.
func TestImageContext(t *testing.T) {
	ignore, err := os.ReadFile("../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	sent := strings.Fields(string(ignore))
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}", "./cmd/lockstep")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		top, _, _ := strings.Cut(strings.TrimPrefix(pkg, "github.com/lockstep-io/lockstep/"), "/")
		if !slices.Contains(sent, "!"+top) {
			t.Errorf("%s is not sent: .dockerignore has no !%s", pkg, top)
		}
	}
}

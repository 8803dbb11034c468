package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/transcript/redisd"
)

func TestRefusesOtherVersions(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'Redis server v=7.2.4 sha=00000000:0 malloc=libc bits=64'\n"
	if err := os.WriteFile(filepath.Join(dir, "redis-server"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	err := run(false, dir, 1, nil)
	if err == nil || !strings.Contains(err.Error(), "7.0.15 only, not from 7.2.4") {
		t.Errorf("got %v", err)
	}
}

func TestNeedsRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := run(true, t.TempDir(), 1, nil); err == nil {
		t.Error("no error without a redis-server")
	}
}

func TestRecordsAndChecks(t *testing.T) {
	if _, version, err := redisd.Find(); err != nil || version != redisd.Version {
		t.Skipf("needs redis-server %s on PATH: found %q, %v", redisd.Version, version, err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("> SET k v\n-stale\n> GET k\n")
	if err := run(false, dir, 2, nil); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if want := "> SET k v\n+OK\n> GET k\n$\"v\"\n"; err != nil || string(got) != want {
		t.Errorf("recorded %q, %v; want %q", got, err, want)
	}
	if err := run(true, dir, 2, nil); err != nil {
		t.Errorf("a fresh recording fails its check: %v", err)
	}
	write("> SET k v\n$-1\n")
	if err := run(true, dir, 2, []string{path}); err == nil || !strings.Contains(err.Error(), "got: +OK") {
		t.Errorf("a wrong golden reply passed: %v", err)
	}
	write("> CONFIG SET timeout 5\n")
	if err := run(false, dir, 1, nil); err == nil || !strings.Contains(err.Error(), "changed settings") {
		t.Errorf("a file that leaves a setting changed passed: %v", err)
	}
}

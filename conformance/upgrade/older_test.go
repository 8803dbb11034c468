// Package upgrade starts real nodes of version 0.1.0, and goes on with the present program on their data.
package upgrade

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// version010 is the commit of version 0.1.0.
const version010 = "87f3cadf2da4a5252c5df22a81c7f8d873dfe62d"

// older builds version 0.1.0 from the history of the repository, and returns the path of the program.
func older(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, program := filepath.Join(dir, "source"), filepath.Join(dir, "lockstep")
	if err := os.Mkdir(source, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"git", "-C", "../..", "archive", "--output=" + source + ".tar", version010},
		{"tar", "-x", "-C", source, "-f", source + ".tar"},
		{"go", "-C", source, "build", "-trimpath", "-o", program, "./cmd/lockstep"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			if os.Getenv("CI") == "true" && wholeHistory() {
				t.Fatalf("%q: %v: %s", args, err, out)
			}
			t.Skipf("skipped: version 0.1.0 needs the history of the repository (git fetch --unshallow), and its modules: %q: %v: %s", args, err, out)
		}
	}
	return program
}

// wholeHistory reports whether this tree is a clone with all of the history, and not an archive or a shallow clone.
func wholeHistory() bool {
	out, err := exec.Command("git", "-C", "../..", "rev-parse", "--is-shallow-repository").Output()
	return err == nil && strings.TrimSpace(string(out)) == "false"
}

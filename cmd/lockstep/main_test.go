package main

import (
	"os"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/conformance/environ"
)

// TestMain hides the environment variables of the tests from the commands that the tests run in this process.
func TestMain(m *testing.M) {
	if dir := os.Getenv(jobVariable); dir != "" {
		os.Exit(job(dir))
	}
	own := environ.Environ()
	os.Clearenv()
	for _, v := range own {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version", "-v"} {
		code, out := start(t, arg)
		if code != exitOK || !strings.HasPrefix(out, "lockstep "+version+" ") || !strings.Contains(out, " go1.") || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: exit code %d: %s", arg, code, out)
		}
	}
	refused(t, exitUsage, []string{"version"}, "--listen", "127.0.0.1:0", "--version")
}

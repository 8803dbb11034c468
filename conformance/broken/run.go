package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// overlay returns the flag that makes the go command read the broken files in place of the real ones.
func overlay(root, dir string, files map[string][]byte) (flag string, err error) {
	replace := map[string]string{}
	for name, data := range files {
		real, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		broken := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(broken, data, 0o600); err != nil {
			return "", err
		}
		replace[real] = broken
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return "-overlay=" + name, os.WriteFile(name, list, 0o600)
}

// goCommand passes the overlay in the environment, so that a test which builds a binary itself builds the broken one.
func goCommand(ctx context.Context, root, flag string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = os.Environ()
	if flag != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" "+flag))
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// outcome is what a run of a test has shown.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	unclear outcome = "unclear" // the test was not built, does not exist, or was skipped
)

// judge reads the output of go test -v. A failed build, and a test that is missing or skipped, are unclear.
func judge(out string, err error) outcome {
	switch {
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"), !strings.Contains(out, "=== RUN"):
		return unclear
	case err == nil && strings.Contains(out, "\n--- PASS: "):
		return passed
	case err != nil && (strings.Contains(out, "\n--- FAIL: ") || strings.Contains(out, "panic: ") || strings.Contains(out, "fatal error: ")):
		return failed
	}
	return unclear
}

// checker runs tests on the real program and on broken ones.
type checker struct {
	root string
	real map[string]outcome // outcomes on the real program, by package and test
	log  io.Writer          // gets what went wrong
}

func (c *checker) test(ctx context.Context, m *mutation, flag string) (outcome, string) {
	out, err := goCommand(ctx, c.root, flag, "test", "-count=1", "-v", "-timeout=90s", "-run", m.run, m.pkg)
	return judge(out, err), out
}

// check reports whether the test of a mutation passes on the real program and
// fails on the broken one.
func (c *checker) check(ctx context.Context, m *mutation) (real, broken outcome, err error) {
	real, known := c.real[m.pkg+" "+m.run]
	if !known {
		var out string
		if real, out = c.test(ctx, m, ""); real != passed {
			fmt.Fprintf(c.log, "%s on the real program:\n%s\n", m.name, out)
		}
		c.real[m.pkg+" "+m.run] = real
	}
	files, err := m.apply(c.root)
	if err != nil {
		return real, unclear, err
	}
	dir, err := os.MkdirTemp("", "broken")
	if err != nil {
		return real, unclear, err
	}
	defer os.RemoveAll(dir)
	flag, err := overlay(c.root, dir, files)
	if err != nil {
		return real, unclear, err
	}
	broken, out := c.test(ctx, m, flag)
	if broken != failed {
		fmt.Fprintf(c.log, "%s on the broken program:\n%s\n", m.name, out)
	}
	return real, broken, nil
}

// compile builds the packages of the given files, all in one overlay. The files come from several mutations, no two of which change
// the same file.
func compile(ctx context.Context, root string, files map[string][]byte) error {
	dir, err := os.MkdirTemp("", "broken")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	flag, err := overlay(root, dir, files)
	if err != nil {
		return err
	}
	args := []string{"build"}
	for name := range files {
		args = append(args, "./"+filepath.Dir(name))
	}
	if out, err := goCommand(ctx, root, flag, args...); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

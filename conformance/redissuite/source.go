package redissuite

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const version = "7.0.15"

// Source returns the directory of Redis's source: $LOCKSTEP_REDIS_SOURCE, or the directory in which Fetch puts it. The directory
// need not exist.
func Source() (string, error) {
	if dir := os.Getenv("LOCKSTEP_REDIS_SOURCE"); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "lockstep", "redis-"+version), err
}

// There reports whether a directory contains the suite.
func There(source string) bool {
	_, err := os.Stat(filepath.Join(source, "tests", "test_helper.tcl"))
	return err == nil
}

// Fetch lets apt get the source package into the directory that Source returns.
func Fetch(source string) error {
	into := filepath.Dir(source)
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	cmd := exec.Command("apt-get", "source", "-q", "redis")
	cmd.Dir = into
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get source redis: %w: it needs a deb-src line in apt's sources and dpkg-dev\n%s", err, out)
	}
	if !There(source) {
		return fmt.Errorf("apt has another version than %s: put its source into $LOCKSTEP_REDIS_SOURCE", version)
	}
	return nil
}

// Copy copies the suite for the run of one unit, because the suite writes into its own directory.
func Copy(source, dir string, within string) error {
	if err := os.CopyFS(filepath.Join(dir, "tests"), os.DirFS(filepath.Join(source, "tests"))); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "src"), 0o755); err != nil {
		return err
	}
	for _, tool := range []string{"redis-cli", "redis-benchmark"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(dir, "src", tool)); err != nil {
			return err
		}
	}
	if within == "" {
		return nil
	}
	return runWithin(dir, within)
}

var leftOut = regexp.MustCompile(`\bexternal:skip\b`)

// runWithin makes the suite run tests that need a server with parameters: it sets the parameters on the node.
func runWithin(dir, unit string) error {
	file := filepath.Join(dir, "tests", unit+".tcl")
	src, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, leftOut.ReplaceAll(src, []byte("external:run")), 0o644); err != nil {
		return err
	}
	const set = "        r config set $param $val\n"
	file = filepath.Join(dir, "tests", "support", "server.tcl")
	if src, err = os.ReadFile(file); err != nil {
		return err
	}
	if strings.Count(string(src), set) != 2 {
		return errors.New("the suite sets parameters otherwise")
	}
	return os.WriteFile(file, []byte(strings.ReplaceAll(string(src), set, "        catch {r config set $param $val}\n")), 0o644)
}

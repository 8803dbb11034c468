package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// edit replaces one place of one file in a build. The source tree stays unchanged (go build -overlay).
type edit struct{ file, from, to string }

// clockVariable is an environment variable: it names a file with the offset of the node's wall clock.
const clockVariable = "CHAOS_CLOCK"

// testEdits returns the edits that make the test build.
func testEdits() []edit { return slices.Concat(settableClock(), shortLogs()) }

// shortLogs makes logs so short that a node needs a snapshot after a second of absence.
func shortLogs() []edit {
	return []edit{
		{"cluster/config.go", "SnapshotThreshold: 50_000", "SnapshotThreshold: 100"},
		{"cluster/config.go", "SnapshotInterval:  10 * time.Second", "SnapshotInterval:  200 * time.Millisecond"},
		{"cluster/config.go", "TrailingLogs:      10_000", "TrailingLogs:      20"},
	}
}

// settableClock gives each node a wall clock that can be set: libfaketime and time namespaces cannot.
//
// The edit moves only the wall reading of a time.Time. Time.Add would move the monotonic reading, too.
func settableClock() []edit {
	return []edit{
		{"cluster/internal/clock/source.go", "import (\n", "import (\n\t\"os\"\n\t\"unsafe\"\n"},
		{"cluster/internal/clock/source.go", "func (s *System) Wall() time.Time { return time.Now() }",
			`func (s *System) Wall() time.Time { return skewed(time.Now(), skew()) }

func skewed(now time.Time, by time.Duration) time.Time {
	later := now.Round(0).Add(by)
	wall := (*uint64)(unsafe.Pointer(&now))
	const fraction = 1<<30 - 1
	seconds := later.Unix() - now.Unix()
	*wall = (*wall&^fraction + uint64(seconds)<<30) | uint64(later.Nanosecond())
	if !now.Round(0).Equal(later) {
		panic("package time keeps its readings elsewhere")
	}
	return now
}

func skew() time.Duration {
	text, err := os.ReadFile(os.Getenv("` + clockVariable + `"))
	if err != nil {
		panic(err)
	}
	d, err := time.ParseDuration(string(text))
	if err != nil {
		panic(err)
	}
	return d
}`},
	}
}

// build builds lockstep with edits into a directory and returns the path of the program.
func build(dir string, edits []edit) (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/lockstep-io/lockstep").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the source of lockstep: %w", err)
	}
	root, replaced := strings.TrimSpace(string(out)), map[string]string{}
	for _, e := range edits {
		original := filepath.Join(root, filepath.FromSlash(e.file))
		from := original
		if r := replaced[original]; r != "" {
			from = r
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if n := strings.Count(string(text), e.from); n != 1 {
			return "", fmt.Errorf("%s has %d times, not once: %q", e.file, n, e.from)
		}
		copied := filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_")+".txt")
		if err := os.WriteFile(copied, []byte(strings.Replace(string(text), e.from, e.to, 1)), 0o644); err != nil {
			return "", err
		}
		replaced[original] = copied
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	list, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "lockstep")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		return "", err
	}
	compile := exec.Command("go", "build", "-overlay", list, "-o", binary, "github.com/lockstep-io/lockstep/cmd/lockstep")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building lockstep: %w: %s", err, out)
	}
	return binary, nil
}

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutationSeeds is within how many seeds a deliberate bug must be found.
const mutationSeeds = 500

// Each file of testdata/mutations is a deliberate bug that the simulation finds: the path of a source file, a text of that file
// after a line "--- old", and its replacement after "--- new". Without LOCKSTEP_MUTATIONS, TestMutations only checks that the
// bugs fit.
func TestMutations(t *testing.T) {
	files, err := filepath.Glob("testdata/mutations/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no mutations: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			overlay := mutate(t, file)
			if os.Getenv("LOCKSTEP_MUTATIONS") == "" {
				return
			}
			cmd := exec.Command("go", "test", "-count=1", "-overlay", overlay, "-run", "^TestSimulation$", ".")
			cmd.Env = append(os.Environ(), fmt.Sprintf("LOCKSTEP_SEEDS=%d", mutationSeeds), "LOCKSTEP_FIRST=1", "LOCKSTEP_MUTATIONS=")
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("not found within %d seeds", mutationSeeds)
			}
			_, found, ok := strings.Cut(string(out), "seed ")
			if !ok {
				t.Fatalf("%v\n%s", err, out)
			}
			line, _, _ := strings.Cut(found, "\n")
			t.Log("seed", line)
		})
	}
}

// mutate writes the changed source and returns the overlay that puts it in place.
func mutate(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path, rest, _ := strings.Cut(string(text), "\n--- old\n")
	old, replacement, ok := strings.Cut(rest, "--- new\n")
	if !ok {
		t.Fatalf("%s: want a path, --- old, --- new", file)
	}
	path, err = filepath.Abs(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(source), old) != 1 {
		t.Fatalf("%s: the old text is not there once", file)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, filepath.Base(path)), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

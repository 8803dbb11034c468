// Command generate writes docs/compatibility.md. Run it in the root of the
// repository, after `LOCKSTEP_RECORD=1 make conformance`.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lockstep-io/lockstep/conformance/compatibility"
	"github.com/lockstep-io/lockstep/conformance/redissuite"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	results, err := compatibility.ReadAll(filepath.Join("conformance", "compatibility", "results"))
	if err != nil {
		return err
	}
	sights, err := compatibility.ReadSights(filepath.Join("conformance", "compatibility", "results", "sight"))
	if err != nil {
		return err
	}
	corpus, err := compatibility.ReadCorpus(filepath.Join("conformance", "transcript", "testdata"), filepath.Join("conformance", "discovery", "testdata"))
	if err != nil {
		return err
	}
	suite, err := redissuite.Section(filepath.Join("conformance", "redissuite"))
	if err != nil {
		return err
	}
	doc, err := compatibility.Generate(results, sights, compatibility.Commands(compatibility.Table()), corpus, suite)
	if err != nil {
		return err
	}
	if err := os.MkdirAll("docs", 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("docs", "compatibility.md"), []byte(doc), 0o644)
}

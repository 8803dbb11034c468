// Command generate writes docs/licenses.md. Run it from the root of the repository.
package main

import (
	"log"
	"os"

	"github.com/lockstep-io/lockstep/conformance/dependencies"
)

func main() {
	list, err := dependencies.List(".")
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("docs/licenses.md", dependencies.Document(list), 0o644); err != nil {
		log.Fatal(err)
	}
}

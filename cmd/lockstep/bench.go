package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// benchProgram measures lockstep beside other servers. It is a separate program, in the module of bench/, because it
// links libraries that no node needs.
const benchProgram = "lockstep-bench"

// benchmark replaces this process by benchProgram, which it looks for in the directory of this program and then in PATH.
func benchmark(args []string) error {
	own, err := os.Executable()
	if err != nil {
		return fmt.Errorf("bench: where is this program? %w", err)
	}
	path, err := exec.LookPath(filepath.Join(filepath.Dir(own), benchProgram))
	if err != nil {
		if path, err = exec.LookPath(benchProgram); err != nil {
			return fmt.Errorf("bench: %s is neither in %s nor in PATH: `make build` builds it beside lockstep", benchProgram, filepath.Dir(own))
		}
	}
	if err := syscall.Exec(path, append([]string{path}, args...), os.Environ()); err != nil {
		return fmt.Errorf("bench: %s: %w", path, err)
	}
	return nil
}

//go:build !linux

package main

import (
	"os/exec"
)

// endWithParent does nothing, because only Linux can end a process with its parent.
func endWithParent(*exec.Cmd) {}

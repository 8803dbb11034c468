//go:build !linux

package postgres

import "os/exec"

// endWithParent does nothing, because only Linux can end a process with its parent.
func endWithParent(*exec.Cmd) {}

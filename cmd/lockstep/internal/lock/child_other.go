//go:build !linux

package lock

import "os"

func ownProgram() (string, error) { return os.Executable() }

// dieWithParent does nothing: if `lockstep lock` is killed, only the guard ends the command.
func dieWithParent() error { return nil }

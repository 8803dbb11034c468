//go:build !linux

package peers

import "os/exec"

// startTied starts a command. Only Linux can end the command together with this program. On other systems, a bench that is killed
// leaves its servers running; one that is interrupted does not.
func startTied(cmd *exec.Cmd) error { return cmd.Start() }

package postgres

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the server end together with this process. On SIGQUIT the server also ends its own processes.
func endWithParent(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT }

package main

import (
	"os/exec"
	"syscall"
)

// endWithParent makes lockstep end together with this program, because a suite may kill this program to stop its server.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

package main

import (
	"net"
	"os/exec"
	"syscall"
)

// endWithParent: a suite may kill what it takes for the server.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// source is where connections to lockstep come from. A suite of 48 servers has fixed ports for them; from another address none of
// them is taken by a connection in between.
var source = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}

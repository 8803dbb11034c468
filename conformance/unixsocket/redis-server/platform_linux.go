package main

import (
	"net"
	"os/exec"
	"syscall"
)

// endWithParent makes lockstep end together with this program, because a suite may kill this program to stop its server.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// source is the address from which connections to lockstep come. A suite gives fixed ports to its 48 servers, and a connection from
// 127.0.0.1 could take one of these as its own port.
var source = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}

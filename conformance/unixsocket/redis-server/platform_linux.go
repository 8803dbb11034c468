package main

import (
	"net"
	"os/exec"
	"syscall"
)

// endWithParent ends lockstep with this program, which a suite may kill as its server.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// source is where connections to lockstep come from. A suite of 48 servers gives them fixed ports, which a connection from
// 127.0.0.1 could take as its own port.
var source = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}

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

// source is the address of connections to lockstep. From 127.0.0.1, these could take a fixed port of a suite's server.
var source = &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}

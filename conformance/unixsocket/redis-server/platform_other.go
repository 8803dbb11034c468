//go:build !linux

package main

import (
	"net"
	"os/exec"
)

// endWithParent: only Linux can do it.
func endWithParent(*exec.Cmd) {}

// source: only Linux answers on all of 127.0.0.0/8 without being told to.
var source = &net.Dialer{}

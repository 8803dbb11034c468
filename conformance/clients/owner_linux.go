package clients

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ofSuite reports whether a TCP address is that of a socket of a process which this process has started, but for the given ones: the nodes.
func ofSuite(addr string, but []int) bool {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return false
	}
	sockets := socketsAt(ap)
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return false
	}
	for _, dir := range procs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if pid == os.Getpid() || slices.Contains(but, pid) || !startedHere(pid) {
			continue
		}
		files, _ := filepath.Glob(dir + "/fd/*") // none if the process has ended
		for _, f := range files {
			if to, err := os.Readlink(f); err == nil && slices.Contains(sockets, to) {
				return true
			}
		}
	}
	return false
}

// socketsAt returns the TCP sockets with a local address of IPv4, as /proc names them. There may be several: a client may use one port for
// connections to several nodes. Java uses such addresses in an IPv6 socket.
func socketsAt(addr netip.AddrPort) (sockets []string) {
	ip := addr.Addr().Unmap().As4()
	v4 := fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], addr.Port())
	for _, table := range []struct{ file, local string }{{"/proc/net/tcp", v4}, {"/proc/net/tcp6", "0000000000000000FFFF0000" + v4}} {
		f, err := os.Open(table.file)
		if err != nil {
			continue
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if cols := strings.Fields(lines.Text()); len(cols) > 9 && cols[1] == table.local {
				sockets = append(sockets, "socket:["+cols[9]+"]")
			}
		}
	}
	return sockets
}

// startedHere reports whether this process is an ancestor of another one.
func startedHere(pid int) bool {
	for range 64 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		rest := stat[strings.LastIndexByte(string(stat), ')')+1:] // the name of the program may have any bytes
		cols := strings.Fields(string(rest))
		if len(cols) < 2 {
			return false
		}
		if pid, err = strconv.Atoi(cols[1]); err != nil || pid <= 1 {
			return false
		}
		if pid == os.Getpid() {
			return true
		}
	}
	return false
}

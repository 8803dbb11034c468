package main

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
)

// hosts is how many machines every system has.
const hosts = 3

// site is where the servers run.
type site interface {
	addr(host, port int) string
	command(host int, name string, args ...string) *exec.Cmd
	// cut drops all packets between a host and the other hosts. The senders get no error, and the clients still reach all hosts.
	// heal undoes cut.
	cut(host int) error
	heal(host int) error
	close() error
}

// loopback runs all servers at 127.0.0.1.
type loopback struct{ base int }

func (l loopback) addr(host, port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.base+10*host+port))
}

func (loopback) command(_ int, name string, args ...string) *exec.Cmd {
	return exec.Command(name, args...)
}

var errLoopback = errors.New("there are no links to cut on loopback: use -netns")

func (loopback) cut(int) error  { return errLoopback }
func (loopback) heal(int) error { return errLoopback }
func (loopback) close() error   { return nil }

// namespaces runs each host in a network namespace of its own. A bridge connects the namespaces; the clients are at the bridge.
// This needs root.
type namespaces struct {
	base   int
	bridge string
	names  [hosts]string
}

// RFC 2544 reserves this range of addresses for measurements.
const network = "198.18.77."

func newNamespaces(base, pid int) (*namespaces, error) {
	n := &namespaces{base: base, bridge: fmt.Sprintf("ll%dbr", pid)}
	for i := range n.names {
		n.names[i] = fmt.Sprintf("ll%dn%d", pid, i+1)
	}
	if err := n.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("-netns: %w (it needs root)", err), n.close())
	}
	return n, nil
}

func (n *namespaces) build() error {
	lines := []string{
		"link add " + n.bridge + " type bridge",
		"addr add " + network + "254/24 dev " + n.bridge,
		"link set " + n.bridge + " up",
	}
	for i, ns := range n.names {
		lines = append(lines,
			"netns add "+ns,
			fmt.Sprintf("link add %sv type veth peer name eth0 address %s netns %s", ns, hardware(i), ns),
			"link set "+ns+"v master "+n.bridge+" up",
			"-n "+ns+" link set lo up",
			fmt.Sprintf("-n %s addr add %s/24 dev eth0", ns, n.ip(i)),
			"-n "+ns+" link set eth0 up")
	}
	for _, line := range lines {
		if err := ip(line); err != nil {
			return err
		}
	}
	return nil
}

// hardware returns the hardware address of a host's interface.
func hardware(host int) string { return fmt.Sprintf("02:77:00:00:00:%02x", host+1) }

// nowhere is a hardware address that no interface has.
const nowhere = "02:77:00:00:00:ff"

func (n *namespaces) ip(host int) string { return network + strconv.Itoa(host+1) }

func ip(line string) error {
	out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (n *namespaces) addr(host, port int) string {
	return net.JoinHostPort(n.ip(host), strconv.Itoa(n.base+10*host+port))
}

// command returns a command that runs in the host's namespace. The program ip replaces itself by the command, so signals reach the
// command.
func (n *namespaces) command(host int, name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", n.names[host], name}, args...)...)
}

// cut makes the packets between a host and the other hosts go to a hardware address that no interface has.
func (n *namespaces) cut(host int) error {
	return n.neighbours(host, func(int) string { return nowhere })
}

func (n *namespaces) heal(host int) error { return n.neighbours(host, hardware) }

func (n *namespaces) neighbours(host int, address func(int) string) (err error) {
	for other := range n.names {
		if other == host {
			continue
		}
		for _, pair := range [][2]int{{host, other}, {other, host}} {
			err = errors.Join(err, ip(fmt.Sprintf("-n %s neigh replace %s lladdr %s dev eth0 nud permanent",
				n.names[pair[0]], n.ip(pair[1]), address(pair[1]))))
		}
	}
	return err
}

// close removes the namespaces and the bridge. When a namespace is removed, the kernel removes its interfaces, too.
func (n *namespaces) close() (err error) {
	for _, ns := range n.names {
		err = errors.Join(err, ip("netns del "+ns))
	}
	return errors.Join(err, ip("link del "+n.bridge))
}

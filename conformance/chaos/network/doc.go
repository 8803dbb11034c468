// Package network gives each process a network namespace of its own, and joins them by a network
// that tests can break. Each host has one TUN device. The Switch is the other end of all TUN
// devices, and causes loss, delay, reordering, duplication and one-way partitions. The package
// needs namespaces and /dev/net/tun, but neither netem nor iptables. It never touches the machine's
// own network.
package network

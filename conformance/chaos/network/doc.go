// Package network gives processes network namespaces of their own, and a
// network between them that can be broken. Each host has one TUN device, and the
// other end of all of them is the Switch: so loss, delay, reordering,
// duplication and one-way partitions need neither netem nor iptables, nothing but
// namespaces and /dev/net/tun, and the machine's own network is never touched.
package network

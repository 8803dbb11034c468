package nodes

import "testing"

// StartDiscoverable does what Start does, for nodes that also have listeners for Sentinel and Cluster clients.
func StartDiscoverable(t testing.TB, n int, flags ...string) []*Node {
	t.Helper()
	return StartSetupDiscoverable(t, n, Setup{Flags: flags})
}

// StartSetupDiscoverable does what StartDiscoverable does, for nodes that need more than flags.
func StartSetupDiscoverable(t testing.TB, n int, setup Setup) []*Node {
	t.Helper()
	setup.own, setup.of = 2, func(node *Node, addrs []string) []string {
		node.SentinelAddr, node.ClusterAddr = addrs[0], addrs[1]
		return []string{"--sentinel-listen", node.SentinelAddr, "--cluster-listen", node.ClusterAddr}
	}
	return StartSetup(t, n, setup)
}
